"""`spec.sparkConf`: jars and settings of connectors. Settings that the data path stands on are not among them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from streamtopology.topology.limits import MOST_SPARK_SETTINGS
from streamtopology.topology.problems import Problem
from streamtopology.topology.reading import Place

NAME_PATTERN = "spark[.][A-Za-z0-9_.-]+"
NAME_EXPECTED = "expected a name that begins with spark."
RESERVED = (
    "app.", "authenticate", "barrier.", "blockManager.", "cores.", "decommission.", "driver.", "dynamicAllocation.",
    "eventLog.", "excludeOnFailure.", "executor", "kubernetes.", "local.", "locality.", "master", "network.", "port.",
    "pyspark.", "python.", "rpc.", "scheduler.", "serializer", "shuffle.", "speculation", "sql.adaptive.", "sql.codegen.",
    "sql.execution.arrow.", "sql.session.", "sql.shuffle.", "sql.streaming.", "sql.warehouse.", "stage.", "submit.", "task.",
    "ui.",
)  # fmt: skip
"""Beginnings, behind `spark.`, of names that are the driver's own: an instance is a task of a pinned executor."""
RESERVED_PATTERN = f"spark[.]({'|'.join(start.replace('.', '[.]') for start in RESERVED)}).*"
RESERVED_WHY = "which the driver sets itself: sparkConf is for jars and settings of connectors"
SECRET_PATTERN = "(?i).*(secret|password|token|access[.]?key).*"
"""Names whose values Spark itself hides, by the default of spark.redaction.regex."""
VARIABLE_PATTERN = r"[$][{]env:([A-Za-z_][A-Za-z0-9_]*)[}]"
SECRET_EXPECTED = "expected ${env:NAME}, a variable of the driver, as its value: a manifest is copied into a ConfigMap"
JARS = "spark.jars"
"""Settings of these names are arguments of the driver's JVM."""
JARS_EXPECTED = "expected no ${env:NAME} in its value, which others see on the command line of the driver's JVM"


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
            why = JARS_EXPECTED if re.search(VARIABLE_PATTERN, value) else None
        elif re.fullmatch(SECRET_PATTERN, name) and not re.fullmatch(VARIABLE_PATTERN, value):
            why = SECRET_EXPECTED
        if why is not None:
            yield Problem("spec.sparkConf", f"found {name!r}, {why}")
