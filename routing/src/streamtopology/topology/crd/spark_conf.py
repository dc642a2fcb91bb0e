"""The schema of `spec.sparkConf`, with the sentences of `parse`."""

from __future__ import annotations

from streamtopology.topology.crd.fields import Schema, texts_by_name
from streamtopology.topology.crd.rules import sentence, telling
from streamtopology.topology.limits import LONGEST_SPARK_SETTING, MOST_SPARK_SETTINGS
from streamtopology.topology.spark_conf import (
    JARS,
    JARS_EXPECTED,
    NAME_EXPECTED,
    NAME_PATTERN,
    OPEN_SECRET_PATTERN,
    RESERVED_PATTERN,
    RESERVED_WHY,
    SECRET_EXPECTED,
    SECRET_PATTERN,
    VARIABLE_PATTERN,
)

_IS_ONE = f"k.matches('^{NAME_PATTERN}$')"
_IS_OURS = f"k.matches('^{RESERVED_PATTERN}$')"
_IS_FREE = f"{_IS_ONE} && !{_IS_OURS}"
_IS_OF_JARS = f"k.startsWith('{JARS}')"
_CHECKS = (
    (f"!{_IS_ONE}", NAME_EXPECTED),
    (_IS_OURS, RESERVED_WHY),
    (f"{_IS_OF_JARS} && self[k].matches('{OPEN_SECRET_PATTERN}')", JARS_EXPECTED),
    (
        f"{_IS_FREE} && !{_IS_OF_JARS} && k.matches('^{SECRET_PATTERN}$') && !self[k].matches('^{VARIABLE_PATTERN}$')",
        SECRET_EXPECTED,
    ),
)


def spark_conf() -> Schema:
    values = {"type": "string", "maxLength": LONGEST_SPARK_SETTING}
    checks = [
        telling(f"!self.exists(k, {wrong})", sentence(f"found '%s', {why}", f"self.filter(k, {wrong})[0]"), why)
        for wrong, why in _CHECKS
    ]
    return texts_by_name("Spark's settings for connectors: spark.jars.packages, spark.hadoop..., spark.sql.catalog...") | {
        "additionalProperties": values,
        "maxProperties": MOST_SPARK_SETTINGS,
        "x-kubernetes-validations": checks,
    }
