"""`spec.sparkConf` for a Spark session: secrets of the environment, and jars, which the driver's JVM gets as it starts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from streamtopology.jobs.variables import MissingVariable, with_variables
from streamtopology.topology import Problem
from streamtopology.topology.spark_conf import JARS


def user_settings(conf: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The settings with the variables' values. Raises MissingVariable, see `missing_variables`."""
    return {name: with_variables(name, text, environ, "the driver") for name, text in conf.items()}


def missing_variables(conf: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> Iterator[Problem]:
    """Find settings for which the environment lacks a variable."""
    for name, text in conf.items():
        try:
            with_variables(name, text, environ, "the driver")
        except MissingVariable as missing:
            yield Problem("spec.sparkConf", str(missing))


def jars_of(conf: Mapping[str, str]) -> dict[str, str]:
    """The settings that say which jars there are."""
    return {name: text for name, text in conf.items() if name.startswith(JARS)}
