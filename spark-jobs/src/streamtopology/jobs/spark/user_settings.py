"""`spec.sparkConf` for a Spark session: secrets of the environment, and jars, which the driver's JVM gets as it starts."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from streamtopology.jobs.variables import MissingVariable, with_variables
from streamtopology.topology import Problem
from streamtopology.topology.spark_conf import JARS, SPARK_HIDES


def user_settings(conf: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The settings with the variables' values. Raises MissingVariable, see `missing_variables`."""
    settings = {name: with_variables(name, text, environ, "the driver") for name, text in conf.items()}
    return settings | _hiding([name for name in conf if settings[name] != conf[name] and not re.search(SPARK_HIDES, name)])


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


def missing_jar(conf: Mapping[str, str]) -> str | None:
    """The first local file of `spark.jars` that this machine lacks; Spark would start without it. It reads patterns itself."""
    for jar in filter(None, map(str.strip, conf.get(JARS, "").split(","))):
        place = urlsplit(jar)
        is_here = place.scheme in ("", "file") and not any(sign in jar for sign in "*?[{")
        if is_here and not Path(unquote(place.path) if place.scheme else jar).is_file():
            return jar
    return None


def _hiding(secrets: Sequence[str]) -> dict[str, str]:
    """Have Spark hide the values of these settings from its logs, too, where Hadoop's have no `spark.hadoop.`."""
    quoted = [f"{name.removeprefix('spark.hadoop.').replace('.', '[.]')}$" for name in secrets]
    return {"spark.redaction.regex": "|".join([SPARK_HIDES, *quoted])} if quoted else {}
