"""Spark's secret, made once. If somebody deletes it, those that know it restart with another one. Pure."""

from __future__ import annotations

from streamtopology.contract.conditions import ReconfiguringReason
from streamtopology.k8s import names
from streamtopology.k8s.decide.observation import Observation
from streamtopology.k8s.decide.owned_objects import Pod
from streamtopology.k8s.decide.steps import Delete, Event, MakeSecret


def missing_secret(seen: Observation) -> list[MakeSecret]:
    """The step that makes it, where there is none."""
    name = names.spark_secret(seen.owner.name)
    if (names.SECRET.kind, name) in seen.objects:
        return []
    why = "it knows a secret that is gone"
    return [MakeSecret(name, tuple(Delete(names.POD, pod.name, pod.uid, why) for pod in _own_pods(seen) if not pod.deleting))]


def _own_pods(seen: Observation) -> list[Pod]:
    """The pods of the topology's workloads: a topology that begins has none of its own."""
    drivers = seen.pods("driver") if seen.driver is not None else ()
    return [*drivers, *(pod for pod in seen.pods("executor") if seen.stateful_set(pod.class_name) is not None)]


def events(made: list[MakeSecret]) -> list[Event]:
    """An event for pods that restart."""
    text = "Secret {} was not found: if it is gone, another one is made, and {} pods restart with it"
    return [
        Event("Warning", ReconfiguringReason.RESTARTING, text.format(step.name, len(step.restarts)))
        for step in made
        if step.restarts
    ]
