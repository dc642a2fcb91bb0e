"""Options of a source that Spark reads itself: secrets come from the environment, and appear in no message."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from streamtopology.jobs.users_code.functions import load_function
from streamtopology.jobs.variables import MissingVariable, with_variables, without_values
from streamtopology.topology import Problem, Source

# The format of a source whose frame a function of the user's makes.
DATAFRAME = "dataframe"


def load_maker(source: Source, base_dir: Path) -> Callable[..., Any]:
    """The user's function that makes the frame of a source with format dataframe from a session. Raises LoadError."""
    return load_function(source.options["run"], base_dir, spark="the session")


def spark_options(source: Source, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The options with the variables' values. Raises MissingVariable, see `missing_variables`."""
    for problem in missing_variables(source, environ):
        raise MissingVariable(problem.message)
    return {name: _value(name, text, environ) for name, text in source.options.items()}


def missing_variables(source: Source, environ: Mapping[str, str] = os.environ) -> Iterator[Problem]:
    """Find options for which the environment lacks a variable."""
    for name, text in source.options.items():
        try:
            _value(name, text, environ)
        except MissingVariable as missing:
            yield Problem(f"options.{name}", f"source {source.name!r}: {missing}")


def without_secrets(sources: Iterable[Source], message: str, environ: Mapping[str, str] = os.environ) -> str:
    """The message of a connector without the values of variables that the options of `sources` name."""
    return without_values(message, (text for source in sources for text in source.options.values()), environ)


def _value(name: str, text: str, environ: Mapping[str, str]) -> str:
    return with_variables(name, text, environ, "the driver")
