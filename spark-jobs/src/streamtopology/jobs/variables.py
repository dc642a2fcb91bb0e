"""`${env:NAME}` in options of a manifest: passwords come from the environment, since a manifest is copied into a ConfigMap."""

from __future__ import annotations

import re
from collections.abc import Mapping

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
