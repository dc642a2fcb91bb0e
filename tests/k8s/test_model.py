"""Random sequences of what people and other controllers do to a topology, in virtual time on a cluster in memory.

After each, and some quiet: the topology is served, or a condition names the obstacle; nothing is written any more; objects of
others are as they were; the topology can be deleted. A dozen such sequences run on a real API server
(tests/kubernetes/test_other_owners.py).
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from support.fake_api import NAME, NAMESPACE, FakeCluster
from support.operator_world import Object, manifest
from support.seeds import seed_of_commit
from support.virtual_operator import VirtualRelease
from support.virtual_time import run_virtual

from streamtopology.k8s.io.ownership import GONE_SECONDS

STEPS = 8
# In which a topology is served or explained: it may have to drain, wait for its Lease and be made again.
SETTLED_SECONDS = 300

QUIET_SECONDS = 20.0
LARGE = {"name": "large", "replicas": 2, "cpu": "400m", "memory": "1Gi"}
SMALL = {"name": "small", "replicas": 1, "cpu": "150m", "memory": "1Gi"}

ODD: list[Object] = [
    {"executors": [{**LARGE, "cpu": None, "memory": None}, SMALL]},
    {"executors": [{**LARGE, "cpu": 0.4, "memory": "1073741824000m"}, {**SMALL, "cpu": ".15", "pod": None}]},
    {"executors": [{**LARGE, "replicas": 0}, SMALL], "driver": None, "migration": None},
    {"executors": [{**LARGE, "cpu": "lots"}]},
    {"executors": []},
    {"operators": None},
    {"executors": [{**LARGE, "pod": {"labels": {"team": "é"}}}]},
    {"image": "registry.example/spark:2", "rebalance": {"mode": "Off"}},
    {"suspend": True},
]
FOREIGN = (("ServiceAccount", "flow-driver"), ("Secret", "flow-spark"), ("Service", "flow-driver"))


class People:
    """Users of the namespace and other controllers; each method is an action of theirs."""

    def __init__(self, cluster: FakeCluster, rng: random.Random) -> None:
        self.cluster = cluster
        self.rng = rng
        self.foreign: dict[tuple[str, str], Object] = {}
        self.first, self.second = VirtualRelease(cluster, "first"), VirtualRelease(cluster, "second")

    async def apply(self) -> None:
        executors = [{**LARGE, "replicas": self.rng.randint(1, 3), "cpu": self.rng.choice(["300m", "400m"])}, SMALL]
        await self._give(manifest(NAME, executors=executors))

    async def give_odd_values(self) -> None:
        await self._give(manifest(NAME, **copy.deepcopy(self.rng.choice(ODD))))

    async def _give(self, body: Object) -> None:
        if self.cluster.topology is None:
            self.cluster.create(body)
        elif self.cluster.is_served:
            self.cluster.edit({"spec": {**dict.fromkeys(self.cluster.topology["spec"]), **body["spec"]}})

    async def replace(self) -> None:
        """As `kubectl replace` does: without the annotations and finalizers that the operator has added."""
        if self.cluster.topology is not None and "deletionTimestamp" not in self.cluster.topology["metadata"]:
            self.cluster.edit({"metadata": {"annotations": None, "finalizers": None}})

    async def orphan(self) -> None:
        self.cluster.delete(orphans=True)
        await self._gone()

    async def delete(self) -> None:
        self.cluster.delete()
        await self._gone()

    async def restore(self) -> None:
        """From an export, with its finalizer, annotations and status."""
        if self.cluster.topology is None or "deletionTimestamp" in self.cluster.topology["metadata"]:
            return
        exported = copy.deepcopy(self.cluster.topology)
        await self.delete()
        self.cluster.create(exported)

    async def forget(self) -> None:
        if self.cluster.topology is not None:
            self.cluster.edit({"status": None})

    async def occupy(self) -> None:
        """An object of somebody else takes the name of one of ours, which is missing."""
        place = self.rng.choice(FOREIGN)
        if place not in self.cluster.objects and not self.cluster.is_terminating:
            metadata = {"name": place[1], "namespace": NAMESPACE, "labels": {"team": "other"}}
            self.foreign[place] = self.cluster.put({"kind": place[0], "apiVersion": "v1", "metadata": metadata})

    async def make_room(self) -> None:
        """The owner of foreign objects deletes them."""
        for place, body in self.foreign.items():
            if self.cluster.objects.pop(place, None) is not None:
                self.cluster.note("DELETED", body)
        self.foreign = {}

    async def scale(self) -> None:
        """By hand, behind the operator's back."""
        if ("StatefulSet", "flow-large") in self.cluster.objects:
            self.cluster.world.edit("StatefulSet", "flow-large", "spec.replicas", 5)
            self.cluster.put(self.cluster.objects["StatefulSet", "flow-large"])

    async def label(self) -> None:
        """A label of somebody else on an object of ours."""
        if (body := self.cluster.objects.get(("Service", "flow-executors"))) is not None:
            labels = {**(body["metadata"].get("labels") or {}), "team": "streams"}
            self.cluster.put({**body, "metadata": {**body["metadata"], "labels": labels}})

    async def remove_pods(self) -> None:
        for place, body in [one for one in self.cluster.objects.items() if one[0][0] == "Pod"][:2]:
            del self.cluster.objects[place]
            self.cluster.note("DELETED", body)

    async def refuse_statuses(self) -> None:
        self.cluster.refused_statuses = self.rng.choices([409, 422, 500], k=3)

    async def take_the_definition_away(self) -> None:
        await self.delete()
        self.cluster.is_served = False
        await asyncio.sleep(self.rng.choice([0.0, 3.0, 60.0]))
        self.cluster.is_served = True

    async def remove_namespace(self) -> None:
        self.cluster.is_terminating = True
        self.foreign = {}
        await self.delete()
        await until(lambda: not self.cluster.is_terminating, "the namespace is gone")

    async def install_second(self) -> None:
        self.second.start()

    async def uninstall_second(self) -> None:
        await self.second.stop()

    async def kill_first(self) -> None:
        await self.first.stop()
        await asyncio.sleep(self.rng.choice([0.0, 5.0]))
        self.first.start()

    async def _gone(self) -> None:
        await until(lambda: self.cluster.topology is None, "the topology is gone", SETTLED_SECONDS + GONE_SECONDS)


async def until(holds: Callable[[], bool], what: str, seconds: float = SETTLED_SECONDS) -> None:
    """Wait until it holds, for at most these virtual seconds."""
    ends = asyncio.get_running_loop().time() + seconds
    while not holds():
        assert asyncio.get_running_loop().time() < ends, what
        await asyncio.sleep(0.25)


def is_explained(people: People) -> bool:
    """True once the topology is served, or a condition names an obstacle that there is."""
    topology = people.cluster.topology
    status = (topology or {}).get("status") or {}
    if topology is None or status.get("observedGeneration") != topology["metadata"]["generation"]:
        return False
    if is_name_taken(status):
        return bool(people.foreign)
    stalled = any(one["type"] == "Stalled" and one["status"] == "True" for one in status["conditions"])
    return stalled or (status["phase"] in ("Running", "Suspended") and "intent" not in status)


def is_name_taken(status: Object) -> bool:
    return any(one["reason"] == "NameTaken" for one in status.get("conditions") or ())


async def play(seed: int) -> None:
    cluster, rng = FakeCluster(), random.Random(seed)
    people = People(cluster, rng)
    actions: list[Callable[[], Coroutine[Any, Any, None]]] = [
        people.apply, people.give_odd_values, people.replace, people.orphan, people.delete, people.restore, people.forget,
        people.occupy, people.make_room, people.scale, people.label, people.remove_pods, people.refuse_statuses,
        people.take_the_definition_away, people.remove_namespace, people.install_second, people.uninstall_second,
        people.kill_first,
    ]  # fmt: skip
    running = asyncio.create_task(cluster.run())
    people.first.start()
    done: list[str] = []

    def explained() -> bool:
        return is_explained(people)

    try:
        await people.apply()
        for action in rng.choices(actions, k=STEPS):
            if cluster.topology is not None and rng.random() < 0.6:
                await until(explained, f"served or explained before {action.__name__}, after {done}", SETTLED_SECONDS * 3)
            await asyncio.sleep(rng.choice([0.0, 0.3, 2.0]))
            done.append(action.__name__)
            await action()
        await rng.choice([people.apply, people.give_odd_values])()
        await until(explained, f"served or explained after {done}", SETTLED_SECONDS + GONE_SECONDS)
        await asyncio.sleep(SETTLED_SECONDS)
        before = len(cluster.writes)
        await asyncio.sleep(QUIET_SECONDS)
        tries_again = is_name_taken((cluster.topology or {}).get("status") or {})
        assert cluster.writes[before:] == [] or tries_again, (done, cluster.writes[before:])
        for place, body in people.foreign.items():
            assert cluster.objects[place] == body, f"{place} after {done}"
        await people.delete()
        assert people.first.mistakes + people.second.mistakes == 0, done
    finally:
        await people.first.stop()
        await people.second.stop()
        running.cancel()


# The last one had a timer within the loop's resolution.
SEEDS = [*range(8), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(8, 30)), 394647035692]


@pytest.mark.parametrize("seed", SEEDS)
def test_topology_is_served_or_explained_after_any_sequence_of_actions(seed: int) -> None:
    run_virtual(play(seed))


@pytest.mark.long
def test_topology_is_served_or_explained_after_new_sequences_of_actions() -> None:
    first = seed_of_commit()
    for seed in range(first, first + 200):
        print(f"seed {seed}")
        run_virtual(play(seed))
