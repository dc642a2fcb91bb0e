"""Everything a decision is made from, in one value: the resource, what it owns, what its driver last said, the time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from streamtopology.operator import names
from streamtopology.operator.planning import Reading
from streamtopology.operator.resources.objects import Owner
from streamtopology.operator.scrape import Answer, Silence
from streamtopology.operator.seen import Job, Pod, RoutingMap, Seen, Workload
from streamtopology.operator.stats import Stats
from streamtopology.routing.topology import API_VERSION, KIND, Topology

Object = dict[str, Any]


def manifest_text(manifest: Mapping[str, Any]) -> str:
    """The part of a resource that is the topology, as JSON; equal ones give equal texts."""
    name = {"name": manifest["metadata"]["name"]}
    return json.dumps({"apiVersion": API_VERSION, "kind": KIND, "metadata": name, "spec": manifest.get("spec")}, sort_keys=True)


@dataclass(frozen=True)
class Observed:
    """One look at one topology. `objects`: (kind, name) -> what it owns; `now`: seconds since 1970.

    `read`: the topology in the manifest, or a sentence for each of its problems. `running`: the topology that the driver
    has been given by the ConfigMap; None where there is none, or none that can be read.
    `problem`: (reason, sentence) of the step that the API server refused when this topology was last worked on.
    """

    manifest: Object
    read: Reading
    running: Topology | None
    objects: Mapping[tuple[str, str], Seen]
    answer: Answer | None
    now: float
    problem: tuple[str, str] | None = None

    @cached_property
    def owner(self) -> Owner:
        metadata = self.manifest["metadata"]
        return Owner(metadata["name"], metadata["namespace"], metadata["uid"])

    @property
    def generation(self) -> int:
        return int(self.manifest["metadata"]["generation"])

    @property
    def status(self) -> Object:
        return self.manifest.get("status") or {}

    @property
    def deleting(self) -> bool:
        return "deletionTimestamp" in self.manifest["metadata"]

    @property
    def finalizers(self) -> tuple[str, ...]:
        return tuple(self.manifest["metadata"].get("finalizers") or ())

    @property
    def paused(self) -> bool:
        value = (self.manifest["metadata"].get("annotations") or {}).get(names.PAUSE)
        return value is not None and value.lower() not in ("false", "no", "0", "")

    @cached_property
    def routing(self) -> RoutingMap | None:
        return cast("RoutingMap | None", self.objects.get(("ConfigMap", names.routing(self.owner.name))))

    @property
    def driver(self) -> Workload | None:
        return cast("Workload | None", self.objects.get(("Deployment", names.driver(self.owner.name))))

    def stateful_set(self, class_name: str) -> Workload | None:
        found = self.objects.get(("StatefulSet", names.executor_class(self.owner.name, class_name)))
        return cast("Workload | None", found)

    def job(self, epoch: int) -> Job | None:
        return cast("Job | None", self.objects.get(("Job", names.migration(self.owner.name, epoch))))

    def jobs(self) -> tuple[Job, ...]:
        return tuple(cast("Job", seen) for (kind, _), seen in self.objects.items() if kind == "Job")

    def pods(self, component: str, class_name: str | None = None) -> tuple[Pod, ...]:
        """The pods of a component, and of a class, by ordinal; those being deleted are among them."""
        chosen = (
            pod for pod in self._pods() if pod.component == component and (class_name is None or pod.class_name == class_name)
        )
        return tuple(sorted(chosen, key=lambda pod: (pod.class_name, pod.ordinal, pod.name)))

    def _pods(self) -> Iterator[Pod]:
        return (cast("Pod", seen) for (kind, _), seen in self.objects.items() if kind == "Pod")

    @cached_property
    def driver_pod(self) -> Pod | None:
        """The driver's pod that counts: not one on its way out, of several the last."""
        pods = [pod for pod in self.pods("driver") if not pod.deleting and pod.phase not in ("Failed", "Succeeded")]
        return max(pods, key=lambda pod: pod.version, default=None)

    @property
    def stats(self) -> Stats | None:
        """What the driver's present pod has said last, silent since or not."""
        if self.answer is None or self.driver_pod is None or self.answer.pod != self.driver_pod.name:
            return None
        return self.answer.stats

    @property
    def silence(self) -> Silence | None:
        """Why the driver's present pod does not answer, though it is there."""
        if self.answer is None or self.driver_pod is None or self.answer.pod != self.driver_pod.name:
            return None
        return self.answer.silence
