"""`spec.autoscale` of a manifest, and every mistake in it that shows there alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast, get_args

from streamtopology.topology.limits import MOST_CLASSES, MOST_INSTANCES
from streamtopology.topology.quantities import parse_duration
from streamtopology.topology.reading import Place
from streamtopology.topology.values import Autoscale, AutoscaleBy, ScaledClass

AUTOSCALE_CLASS_EXPECTED = (
    "the name of an executor class: with it, and without that class's own replicas, `kubectl scale`, HPA and KEDA can set "
    "spec.autoscale.replicas"
)
CLASS_AND_CLASSES = "found class and classes together, allowed is one of them"
ONLY_OPERATOR = "expected Operator: only our own autoscaler chooses among classes"
BOUNDS_OF_CLASSES = "and classes, allowed is one of them: each of the classes has bounds of its own"
NONE_LASTS = "found minReplicas 0 for each of them, expected at least 1 for one: an executor stays while no rows come"


def read_autoscale(place: Place) -> Autoscale:
    fields = place.fields(
        "class", "classes", "by", "replicas", "minReplicas", "maxReplicas", "targetUtilisation", "stabilisation"
    )
    several = fields["classes"].present
    fields["classes"].at_most(MOST_CLASSES, "executor classes")
    autoscale = Autoscale(
        executor_class="" if several else fields["class"].text(AUTOSCALE_CLASS_EXPECTED),
        by=cast("AutoscaleBy", fields["by"].choice(get_args(AutoscaleBy), Autoscale.by)),
        replicas=fields["replicas"].whole(Autoscale.replicas, 0, MOST_INSTANCES),
        min_replicas=fields["minReplicas"].whole(Autoscale.min_replicas, 0, MOST_INSTANCES),
        max_replicas=fields["maxReplicas"].whole(Autoscale.max_replicas, 1, MOST_INSTANCES),
        target_utilisation=fields["targetUtilisation"].fraction(Autoscale.target_utilisation),
        stabilisation_seconds=fields["stabilisation"].quantity(parse_duration, Autoscale.stabilisation_seconds),
        classes=tuple(_scaled_class(item) for item in fields["classes"].items("executor classes")),
    )
    if several:
        _refuse_mistakes_of_several(fields, autoscale)
    else:
        _refuse_mistakes_of_one(fields, autoscale)
    return autoscale


def _scaled_class(place: Place) -> ScaledClass:
    fields = place.fields("name", "minReplicas", "maxReplicas")
    scaled = ScaledClass(
        name=fields["name"].name(),
        min_replicas=fields["minReplicas"].whole(ScaledClass.min_replicas, 0, MOST_INSTANCES),
        max_replicas=fields["maxReplicas"].whole(ScaledClass.max_replicas, 1, MOST_INSTANCES),
    )
    if not fields["maxReplicas"].present:
        fields["maxReplicas"].expected("the most executors of this class that the operator may ask for")
    _refuse_crossed(fields["minReplicas"], scaled)
    return scaled


def _refuse_mistakes_of_one(fields: Mapping[str, Place], autoscale: Autoscale) -> None:
    if autoscale.by == "Operator" and not fields["maxReplicas"].present:
        fields["maxReplicas"].expected("the most executors that the operator may ask for, since by is Operator")
    _refuse_crossed(fields["minReplicas"], autoscale)


def _refuse_mistakes_of_several(fields: Mapping[str, Place], autoscale: Autoscale) -> None:
    if fields["class"].present:
        fields["classes"].wrong(CLASS_AND_CLASSES)
    if autoscale.by != "Operator":
        fields["by"].wrong(f"found {autoscale.by!r}, {ONLY_OPERATOR}")
    # The API server adds the defaults of the first two to every topology.
    for name, default in (("replicas", Autoscale.replicas), ("minReplicas", Autoscale.min_replicas), ("maxReplicas", None)):
        if fields[name].present and fields[name].value != default:
            fields[name].wrong(f"found {fields[name].value!r} {BOUNDS_OF_CLASSES}")
    if not any(one.min_replicas for one in autoscale.classes):
        fields["classes"].wrong(NONE_LASTS)


def _refuse_crossed(place: Place, bounds: Autoscale | ScaledClass) -> None:
    if bounds.min_replicas > bounds.max_replicas:
        place.wrong(f"found {bounds.min_replicas}, expected at most maxReplicas, {bounds.max_replicas}")
