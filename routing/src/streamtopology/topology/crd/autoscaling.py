"""The schema of `spec.autoscale`, and its rules in CEL, with the sentences of `topology.autoscaling`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from streamtopology.topology.autoscaling import (
    AUTOSCALE_CLASS_EXPECTED,
    BOUNDS_OF_CLASSES,
    CLASS_AND_CLASSES,
    NONE_LASTS,
    ONLY_OPERATOR,
)
from streamtopology.topology.crd.fields import Schema, choice, duration, fraction, mapping, named_items, text, whole
from streamtopology.topology.crd.rules import duration_rules, rule, sentence, telling
from streamtopology.topology.limits import MOST_CLASSES, MOST_INSTANCES
from streamtopology.topology.quantities import format_duration
from streamtopology.topology.reading import LONGEST_NAME
from streamtopology.topology.values import Autoscale, AutoscaleBy, ScaledClass

_BOUNDS = telling(
    "!has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
    sentence("found %d, expected at most maxReplicas, %d", "self.minReplicas", "self.maxReplicas"),
    "expected at most maxReplicas",
    ".minReplicas",
)
_SEVERAL = "has(self.classes)"


def autoscale() -> Schema:
    return mapping(
        "Who says how many executors a class has.",
        {
            "class": text("The executor class that is scaled; it sets no replicas of its own.", LONGEST_NAME),
            "classes": named_items(
                "In place of class, replicas and their bounds, where by is Operator: the classes among which it chooses what "
                "brings the most for its price.",
                _scaled_class(),
                1,
                MOST_CLASSES,
            ),
            "by": choice(
                "External: spec.autoscale.replicas, as HPA, KEDA or `kubectl scale` set it. Operator: our own autoscaler, "
                "whose decision is in status. Nobody: as many as there are now.",
                get_args(AutoscaleBy),
                Autoscale.by,
            ),
            "replicas": whole("Executors to start with, and what External asks for.", 0, MOST_INSTANCES, Autoscale.replicas),
            "minReplicas": whole(
                "Never fewer. With 0 and no other class, the executors go while no rows come.",
                0,
                MOST_INSTANCES,
                Autoscale.min_replicas,
            ),
            "maxReplicas": whole("Never more; required where by is Operator.", 1, MOST_INSTANCES),
            "targetUtilisation": fraction("Share of measured capacity that Operator keeps busy.", Autoscale.target_utilisation),
            "stabilisation": duration(
                "How long Operator waits before it takes executors away.",
                duration_rules(),
                format_duration(Autoscale.stabilisation_seconds),
            ),
        },
        rules=list(_rules()),
    )


def _scaled_class() -> Schema:
    return mapping(
        "An executor class that is scaled; it sets no replicas of its own, and starts with minReplicas.",
        {
            "name": text("The executor class.", LONGEST_NAME),
            "minReplicas": whole(
                "Never fewer; of all classes together at least 1.", 0, MOST_INSTANCES, ScaledClass.min_replicas
            ),
            "maxReplicas": whole("Never more.", 1, MOST_INSTANCES),
        },
        required=("name", "maxReplicas"),
        rules=[_BOUNDS],
    )


def _rules() -> Iterator[Schema]:
    missing = "is missing, expected the most executors that the operator may ask for, since by is Operator"
    # Not `required`: that is the answer to `kubectl scale` of a topology without autoscale, and says nothing of a remedy.
    yield rule(f"has(self.class) || {_SEVERAL}", f"is missing, expected {AUTOSCALE_CLASS_EXPECTED}", ".class")
    yield rule(f"{_SEVERAL} || self.by != 'Operator' || has(self.maxReplicas)", missing, ".maxReplicas")
    yield _BOUNDS
    yield rule(f"!has(self.class) || !{_SEVERAL}", CLASS_AND_CLASSES, ".classes")
    only = sentence(f"found '%s', {ONLY_OPERATOR}", "self.by")
    yield telling(f"!{_SEVERAL} || self.by == 'Operator'", only, ONLY_OPERATOR, ".by")
    yield rule(f"!{_SEVERAL} || self.classes.exists(c, c.minReplicas > 0)", NONE_LASTS, ".classes")
    # Rules see the defaults that the API server adds.
    for field, left_out in (
        ("replicas", f"self.replicas == {Autoscale.replicas}"),
        ("minReplicas", f"self.minReplicas == {Autoscale.min_replicas}"),
        ("maxReplicas", "!has(self.maxReplicas)"),
    ):
        found = sentence(f"found %d {BOUNDS_OF_CLASSES}", f"self.{field}")
        yield telling(f"!{_SEVERAL} || {left_out}", found, f"found {field} {BOUNDS_OF_CLASSES}", f".{field}")
