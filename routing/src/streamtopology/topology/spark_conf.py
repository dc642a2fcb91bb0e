"""`spec.sparkConf`: jars and settings of connectors. Settings that the data path stands on are not among them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from streamtopology.topology.limits import MOST_SPARK_SETTINGS
from streamtopology.topology.problems import Problem
from streamtopology.topology.reading import Place

NAME_PATTERN = "spark[.][A-Za-z0-9_.-]+"
NAME_EXPECTED = "expected a name that begins with spark."
# Beginnings, behind `spark.`, of names that are the driver's own: an instance is a task of a pinned executor.
RESERVED = (
    "api.", "app.", "authenticate", "barrier.", "blockManager.", "broadcast.", "cleaner.", "closure.", "connect.", "cores.",
    "decommission.", "default.", "deploy.", "driver.", "dynamicAllocation.", "eventLog.", "excludeOnFailure.", "executor",
    "hadoop.fs.defaultFS", "hadoop.fs.file.", "home", "io.", "kryo", "kubernetes.", "local.", "locality.", "master", "memory.",
    "network.", "port.", "pyspark.", "python.", "redaction.", "reducer.", "remote", "resource", "rpc.", "scheduler.",
    "serializer", "shuffle.", "speculation", "sql.adaptive.", "sql.codegen.", "sql.execution.", "sql.session.", "sql.shuffle.",
    "sql.streaming.", "sql.warehouse.", "ssl.", "stage.", "storage.", "submit.", "task.", "testing", "ui.", "worker.",
)  # fmt: skip
RESERVED_PATTERN = f"spark[.]({'|'.join(start.replace('.', '[.]') for start in RESERVED)}).*"
RESERVED_WHY = "which the driver sets itself: sparkConf is for jars and settings of connectors"
# Names whose values Spark itself hides, the default of spark.redaction.regex.
SPARK_HIDES = "(?i)secret|password|token|access[.]?key"
# Names whose values are secrets: those that Spark hides, and others of connectors.
SECRET_PATTERN = (
    "(?i).*(secret|passw|pwd|token|access[.]?key|account[.]key[.]|private[._-]?key|api[._-]?key|encryption[.]key|"
    "[.]sas[.]|credential$).*"
)
VARIABLE_PATTERN = r"[$][{]env:([A-Za-z_][A-Za-z0-9_]*)[}]"
SECRET_EXPECTED = "expected ${env:NAME}, a variable of the driver, as its value: a manifest is copied into a ConfigMap"
# Settings of these names are arguments of the driver's JVM.
JARS = "spark.jars"
OPEN_SECRET_PATTERN = f"({VARIABLE_PATTERN}|://[^/]*@)"
JARS_EXPECTED = "expected no ${env:NAME} and no password@ in its value, which others see on the driver's command line"


def is_free(name: str) -> bool:
    """True for the name of a setting that is not the driver's own."""
    return re.fullmatch(NAME_PATTERN, name) is not None and re.fullmatch(RESERVED_PATTERN, name) is None


def read_spark_conf(place: Place) -> dict[str, str]:
    """The settings at this place, which may be absent."""
    place.at_most(MOST_SPARK_SETTINGS, "settings")
    return place.text_map()


def spark_conf_problems(settings: Mapping[str, str]) -> Iterator[Problem]:
    """Find names that are none of Spark's or belong to the driver, and secrets that others could read."""
    for name, value in settings.items():
        why = None
        if not re.fullmatch(NAME_PATTERN, name):
            why = NAME_EXPECTED
        elif re.fullmatch(RESERVED_PATTERN, name):
            why = RESERVED_WHY
        elif name.startswith(JARS):
            why = JARS_EXPECTED if re.search(OPEN_SECRET_PATTERN, value) else None
        elif re.fullmatch(SECRET_PATTERN, name) and not re.fullmatch(VARIABLE_PATTERN, value):
            why = SECRET_EXPECTED
        if why is not None:
            yield Problem("spec.sparkConf", f"found {name!r}, {why}")
