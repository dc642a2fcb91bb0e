"""`${env:NAME}` in options of a manifest: passwords come from the environment, since a manifest is copied into a ConfigMap."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from streamtopology.contract.errors import InvalidInput
from streamtopology.topology.spark_conf import VARIABLE_PATTERN


class MissingVariable(InvalidInput):
    """The environment has no variable that an option names."""


def with_variables(option: str, text: str, environ: Mapping[str, str], needed_by: str) -> str:
    """`text` with the variables' values. Raises MissingVariable. needed_by: the pods that need them on Kubernetes."""
    missing = [name for name in re.findall(VARIABLE_PATTERN, text) if name not in environ]
    if missing:
        raise MissingVariable(
            f"option {option} needs the environment variable {missing[0]}, which is not set here; on Kubernetes give it to "
            f"{needed_by}: pod.env or pod.envFrom, from a Secret"
        )
    return re.sub(VARIABLE_PATTERN, lambda found: environ[found[1]], text)


def without_values(text: str, options: Iterable[str], environ: Mapping[str, str]) -> str:
    """`text` of another program, with the variables that `options` name in place of their values.

    >>> without_values("login of s3cret failed", ["${env:KEY}"], {"KEY": "s3cret"})
    'login of ${env:KEY} failed'
    """
    names = {name for option in options for name in re.findall(VARIABLE_PATTERN, option) if environ.get(name)}
    for name in sorted(names, key=lambda name: -len(environ[name])):  # a value may hold another one
        text = text.replace(environ[name], f"${{env:{name}}}")
    return text


def first_line(error: Exception, options: Iterable[str], environ: Mapping[str, str], text: str | None = None) -> str:
    """The first line of what another program says, `text` or the error's, without the values of variables."""
    shown = without_values(str(error) if text is None else text, options, environ)
    return next((line.strip() for line in shown.splitlines() if line.strip()), type(error).__name__)
