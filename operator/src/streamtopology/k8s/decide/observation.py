"""The input of a decision as one value: the resource, its owned objects, its driver's last answer, the time.

A decision that asked the cluster on its way would mix several moments, and could not be repeated in a test.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

from streamtopology.contract.pods import driver_name, routing_map_name
from streamtopology.contract.stats import Stats
from streamtopology.k8s import names
from streamtopology.k8s.decide.answers import Answer, Reading, Silence
from streamtopology.k8s.decide.attempts import Aim, Attempts, Away, Known, Place
from streamtopology.k8s.decide.fields import items_at, mapping_at
from streamtopology.k8s.decide.owned_objects import Job, ObservedRoutingMap, OwnedObject, Pod, Workload
from streamtopology.k8s.decide.transition import Transition, recorded
from streamtopology.k8s.instants import parse_time
from streamtopology.k8s.resources.objects import Object, Owner
from streamtopology.topology import API_VERSION, KIND, ManifestError, Topology, parse, problems_in_pods

# Answers missed in a row before a driver counts as silent: one may be lost in a switch or a long batch.
SILENT_TIMES = 3


def manifest_text(manifest: Mapping[str, Any]) -> str:
    """The topology in a resource, as JSON; equal topologies give equal texts."""
    name = {"name": manifest["metadata"]["name"]}
    return json.dumps({"apiVersion": API_VERSION, "kind": KIND, "metadata": name, "spec": manifest.get("spec")}, sort_keys=True)


def read_topology(text: str) -> Reading:
    """The topology in a manifest's JSON, or a sentence for each of its problems."""
    try:
        topology = parse(json.loads(text))
        return tuple(map(str, problems_in_pods(topology))) or topology
    except ManifestError as error:
        return tuple(str(problem) for problem in error.problems)
    except ValueError as error:
        return (f"this is not JSON: {error}",)


@dataclass(frozen=True)
class Observation:
    """One look at one topology. `objects`: (kind, name) -> owned object; `now`: seconds since 1970.

    `read`: the topology in the manifest, or a sentence for each of its problems. `running`: the topology in the driver's
    ConfigMap; None where there is none that can be read.
    `attempts`: the last steps of this process at each object of the topology. `reached`: the roll-out of this version's pods
    has come to this topology. `not_created`: workload -> why the cluster does not create its next pod. `rival`: the sentence
    for a topology that makes way for another one (rivals.py). `evicted`: the last pods of this name that a kubelet has
    evicted, gone since or not. `away`: the looks before this one that failed, if the last one did. `orphans`: what a deleted
    topology of this name has left, its pods' workloads among it.
    """

    manifest: Object
    read: Reading
    running: Topology | None
    objects: Mapping[tuple[str, str], OwnedObject]
    answer: Answer | None
    now: float
    attempts: Known = field(default_factory=dict[Aim, Attempts])
    not_created: Mapping[Place, str] = field(default_factory=dict[Place, str])
    reached: bool = False
    rival: str = ""
    evicted: tuple[Pod, ...] = ()
    away: Away | None = None
    orphans: tuple[OwnedObject, ...] = ()

    @cached_property
    def owner(self) -> Owner:
        metadata = self.manifest["metadata"]
        return Owner(metadata["name"], metadata["namespace"], metadata["uid"])

    @property
    def generation(self) -> int:
        return int(self.manifest["metadata"]["generation"])

    @property
    def created(self) -> float:
        """The topology's creation, in seconds since 1970."""
        moment = self.manifest["metadata"].get("creationTimestamp")
        return parse_time(moment) if moment else 0.0

    @property
    def status(self) -> Object:
        return mapping_at(self.manifest, "status")

    @property
    def reroutings(self) -> Mapping[tuple[int, str], Object]:
        """The re-routings in status by epoch and operator. One that lacks either was edited by somebody."""
        noted = items_at(self.status, "reroutings")
        return {(one["epoch"], one["operator"]): one for one in noted if {"epoch", "operator"} <= one.keys()}

    @cached_property
    def transition(self) -> Transition | None:
        """The unfinished change that status records."""
        return recorded(self.status)

    @property
    def changing_seconds(self) -> float:
        """Seconds since the unfinished change began; 0 without one."""
        return self.now - self.transition.begun if self.transition is not None else 0.0

    @property
    def deleting(self) -> bool:
        return "deletionTimestamp" in self.manifest["metadata"]

    @property
    def finalizers(self) -> tuple[str, ...]:
        return tuple(self.manifest["metadata"].get("finalizers") or ())

    @property
    def paused(self) -> bool:
        value = mapping_at(self.manifest["metadata"], "annotations").get(names.PAUSE)
        return value is not None and value.lower() not in ("false", "no", "0", "")

    @cached_property
    def routing(self) -> ObservedRoutingMap | None:
        return cast("ObservedRoutingMap | None", self.objects.get(("ConfigMap", routing_map_name(self.owner.name))))

    @property
    def driver(self) -> Workload | None:
        return cast("Workload | None", self.objects.get(("Deployment", driver_name(self.owner.name))))

    def stateful_set(self, class_name: str) -> Workload | None:
        found = self.objects.get(("StatefulSet", names.executor_class(self.owner.name, class_name)))
        return cast("Workload | None", found)

    def job(self, epoch: int) -> Job | None:
        return cast("Job | None", self.objects.get(("Job", names.migration(self.owner.name, epoch))))

    @property
    def precopy(self) -> Job | None:
        """The Job that copies state for the published epoch."""
        return self.job(self.routing.epoch) if self.routing is not None and self.routing.epoch else None

    def jobs(self) -> tuple[Job, ...]:
        return tuple(cast("Job", owned) for (kind, _), owned in self.objects.items() if kind == "Job")

    def pods(self, component: str, class_name: str | None = None) -> tuple[Pod, ...]:
        """The pods of a component, and of a class, by ordinal; those being deleted are among them."""
        return self._pods.get((component, class_name), ())

    @cached_property
    def _pods(self) -> Mapping[tuple[str, str | None], tuple[Pod, ...]]:
        """By component, and by component and class: each decision asks for the pods of every class several times."""
        found = [cast("Pod", owned) for (kind, _), owned in self.objects.items() if kind == "Pod"]
        places: defaultdict[tuple[str, str | None], list[Pod]] = defaultdict(list)
        for pod in sorted(found, key=lambda pod: (pod.class_name, pod.ordinal, pod.name)):
            places[pod.component, None].append(pod)
            places[pod.component, pod.class_name].append(pod)
        return {place: tuple(pods) for place, pods in places.items()}

    @property
    def drivers(self) -> tuple[Pod, ...]:
        """The driver's pods that have not ended: an evicted one stays until Kubernetes collects it."""
        return tuple(pod for pod in self.pods("driver") if not pod.is_over)

    @property
    def runs_nothing(self) -> bool:
        return not self.drivers and not self.pods("executor")

    @cached_property
    def driver_pod(self) -> Pod | None:
        """The driver's newest pod that is neither being deleted nor ended."""
        pods = [pod for pod in self.drivers if not pod.deleting]
        return max(pods, key=lambda pod: pod.version, default=None)

    @property
    def stats(self) -> Stats | None:
        """The last stats of the driver's present pod, silent since or not."""
        if self.answer is None or self.driver_pod is None or self.answer.pod != self.driver_pod.name:
            return None
        return self.answer.stats

    @property
    def silence(self) -> Silence | None:
        """The silence of the driver's present pod; None while it answers."""
        if self.answer is None or self.driver_pod is None or self.answer.pod != self.driver_pod.name:
            return None
        return self.answer.silence

    @property
    def is_silent(self) -> bool:
        """True if the driver's present pod has not answered for too long."""
        return self.silence is not None and self.silence.count >= SILENT_TIMES
