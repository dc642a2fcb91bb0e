"""Pods of an old version of the operator: kept as they are until the manifest restarts them or a roll-out reaches them.

What differs between a workload that runs and the one that this version makes of the same manifest is this version's doing:
another template, or another default image. Pure.
"""

# pyright takes the members of enums with a meaning for tuples.
# pyright: reportUnnecessaryComparison=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from streamtopology.contract.conditions import ReconfiguringReason
from streamtopology.k8s import names
from streamtopology.k8s.decide.observation import Observation
from streamtopology.k8s.decide.owned_objects import Workload, owned_object
from streamtopology.k8s.decide.rollout import Rollout
from streamtopology.k8s.decide.steps import Event, Patch
from streamtopology.k8s.resources import objects
from streamtopology.k8s.resources.objects import Object
from streamtopology.topology import Topology


@dataclass(frozen=True)
class Revision:
    """The version whose pods a topology gets; `is_present`: this one. `image`: theirs; `newest`: that after a restart."""

    is_present: bool
    image: str
    newest: str


def revision_of(seen: Observation, restart_generation: int, image: str) -> Revision:
    """The topology's, whose driver is to be of `restart_generation`. `image`: the manifest's, or else the operator's.

    A driver that restarts takes all of its topology along. It is applied last, so a killed operator finds it as it was.
    """
    driver = seen.driver
    starts = driver is None or driver.restart_generation != restart_generation or _is_stopped(seen)
    if starts or _is_upgrading(seen):
        return Revision(True, image, image)
    return Revision(False, running_image(seen, image), image)


def running_image(seen: Observation, image: str) -> str:
    """The image that the driver runs; `image` where there is none, or the manifest names it."""
    names_it = isinstance(seen.read, Topology) and seen.read.image is not None
    return image if names_it or seen.driver is None else seen.driver.image or image


def is_outdated(seen: Observation, revision: Revision, wanted: Sequence[Object]) -> bool:
    """True if a roll-out would change pods."""
    return revision.image != revision.newest or any(kept(seen, revision, each) is not None for each in wanted)


def upgrade(rollout: Rollout, image: str) -> Rollout:
    """The beginning of the topology's turn in the roll-out."""
    text = f"the pods are replaced by those of this version of the operator, with the image {image}"
    event = Event("Normal", ReconfiguringReason.UPGRADING, text)
    return replace(rollout, events=(*rollout.events, event), begun=ReconfiguringReason.UPGRADING)


def kept(seen: Observation, revision: Revision, wanted: Object) -> Workload | None:
    """The workload that keeps the template an old version has made of the same manifest; None if `wanted` is applied."""
    known = seen.objects.get((wanted["kind"], wanted["metadata"]["name"]))
    if not isinstance(known, Workload) or known.deleting or revision.is_present:
        return None
    if known.pod_content == _pod_content(wanted):
        return None
    made = _made(wanted)
    if known.image != made.image:  # all pods of a topology have one image
        return None
    if known.kind == names.DEPLOYMENT.kind:
        return known if made.replicas > 0 else None  # one that stops restarts nothing
    return known if known.pod_settings == made.pod_settings else None


def adjustment(known: Workload, wanted: Object) -> Patch | None:
    """Replicas and resources as `wanted`, in a workload that keeps its template; None where it has them."""
    made = _made(wanted)
    if (known.replicas, known.resources) == (made.replicas, made.resources):
        return None
    what = "set replicas and resources in the former template"
    return Patch(names.BY_KIND[known.kind], known.name, objects.adjustment(wanted), what)


def pod_contents(seen: Observation, revision: Revision, stateful_sets: Mapping[str, Object]) -> dict[str, str]:
    """Class -> the digest that its pods should have of their template."""
    return {
        name: known.pod_content if (known := kept(seen, revision, wanted)) is not None else _pod_content(wanted)
        for name, wanted in stateful_sets.items()
    }


def newest_revisions(seen: Observation, stateful_sets: Mapping[str, Object]) -> dict[str, str]:
    """Class -> the revision of its StatefulSet, of those that are written as they are to be."""
    known = {name: seen.stateful_set(name) for name in stateful_sets}
    return {
        name: each.revision
        for name, each in known.items()
        if each is not None and each.content == stateful_sets[name]["metadata"]["annotations"][names.CONTENT]
    }


def _pod_content(wanted: Object) -> str:
    return wanted["spec"]["template"]["metadata"]["annotations"][names.POD_CONTENT]


def _made(wanted: Object) -> Workload:
    return cast(Workload, owned_object(wanted))


def _is_upgrading(seen: Observation) -> bool:
    """True if the roll-out has reached the topology; status remembers it until all of its pods are replaced."""
    return seen.reached or (seen.transition is not None and seen.transition.kind == ReconfiguringReason.UPGRADING)


def _is_stopped(seen: Observation) -> bool:
    return seen.driver is not None and seen.driver.replicas == 0 and not seen.drivers
