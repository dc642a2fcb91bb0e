"""Everything that keeps a topology from being as asked for: how it comes about, the condition that says so, how it goes.

Each state is brought about on the cluster in memory (fake_api.py) and lasts until it is ended.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any

from streamtopology.contract.conditions import BalancedReason as B
from streamtopology.contract.conditions import DegradedReason as D
from streamtopology.contract.conditions import MutatedReason as M
from streamtopology.contract.conditions import ReadyReason as R
from streamtopology.contract.conditions import ReconfiguringReason as C
from streamtopology.contract.reasons import Hold, HoldReason
from streamtopology.contract.stats import DriverRefusal, LostAttempts, SlotMemory
from streamtopology.k8s import names
from streamtopology.k8s.decide.answers import Judgement, Silence
from streamtopology.k8s.decide.observation import SILENT_TIMES
from streamtopology.k8s.instants import format_time
from streamtopology.k8s.io.api import ApiAway, ApiError
from support.fake_api import FakeCluster
from support.operator_world import RUNNING, Object, World, manifest
from support.reasons import REBALANCED
from support.virtual_operator import VirtualRelease
from support.virtual_time import now

LARGE = {"name": "large", "replicas": 2, "cpu": "400m", "memory": "1Gi"}
SMALL = {"name": "small", "replicas": 1, "cpu": "150m", "memory": "1Gi"}
SCALED = {"class": "large", "by": "External", "replicas": 2, "minReplicas": 1, "maxReplicas": 9}
NO_ROOM = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: 3 Insufficient cpu."}
UNSCHEDULED: Object = {"phase": "Pending", "conditions": [NO_ROOM]}
NOT_READY: Object = {"phase": "Running", "podIP": "10.0.0.1", "conditions": []}
DRIVER, LAST = "flow-driver", "flow-large-1"


@dataclass
class Stage:
    """A topology that runs, its cluster and its operator. `troublemakers` go on until the state is ended."""

    cluster: FakeCluster
    release: VirtualRelease
    troublemakers: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])
    tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    @property
    def world(self) -> World:
        return self.cluster.world

    def apply(self, **spec: Any) -> None:
        self.cluster.edit({"spec": spec})

    def driver(self) -> str:
        return self.world.pod_names("driver")[0]

    def pods(self, status: Object, *pods: str) -> None:
        """The kubelets report this."""
        for pod in pods:
            self.cluster.report("Pod", pod, status)

    def remove(self, pod: str) -> None:
        body = self.cluster.objects.pop(("Pod", pod))
        self.cluster.note("DELETED", body)

    def goes_on(self, act: Callable[[], None], *pauses: float) -> None:
        """Act until the state is ended, after these pauses; the last one again and again."""

        async def again() -> None:
            for seconds in chain(pauses, repeat(pauses[-1])):
                act()
                await asyncio.sleep(seconds)

        self.troublemakers.append(asyncio.create_task(again(), name="troublemaker"))

    def quieten(self) -> None:
        for task in self.troublemakers:
            task.cancel()

    def all_is_well(self) -> None:
        """Nothing keeps pods and calls back any more."""
        fresh = World(manifest())
        self.quieten()
        self.cluster.fails, self.cluster.refuses = (lambda: False), (lambda call: None)
        self.world.kubelet, self.world.admission, self.world.unmade = fresh.kubelet, fresh.admission, {}
        self.world.silence = self.world.refused = self.world.judgement = None
        self.world.imbalance, self.world.memory, self.world.lost = fresh.imbalance, fresh.memory, fresh.lost
        for (kind, name), body in list(self.cluster.objects.items()):
            if kind == "Pod" and body["status"] != RUNNING:
                self.cluster.report(kind, name, RUNNING)


Act = Callable[[Stage], None]


@dataclass(frozen=True)
class Stuck:
    """A state. `says`: type and reason of the condition; `spec`: of the topology; `ends`: acted before `all_is_well`."""

    name: str
    says: tuple[str, str]
    begins: Act
    ends: Act = lambda stage: None
    spec: Mapping[str, Any] = field(default_factory=dict[str, Any])


def waiting(container: str, reason: str, message: str) -> Object:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "conditions": [], "containerStatuses": [{"name": container, "state": state}]}


def ended(container: str, code: int, message: str) -> Object:
    last = {"terminated": {"exitCode": code, "message": message}}
    return {"phase": "Running", "conditions": [], "containerStatuses": [{"name": container, "lastState": last}]}


def drivers_pod(status: Object) -> Act:
    return lambda stage: stage.pods(status, stage.driver())


def executors_pods(status: Object) -> Act:
    return lambda stage: stage.pods(status, *stage.world.pod_names("executor"))


def applied(**spec: Any) -> Act:
    return lambda stage: stage.apply(**spec)


def refused(start: str, status: int, reason: str, then: Act) -> Act:
    """Calls that begin like this are refused from now on."""

    def act(stage: Stage) -> None:
        refusal = ApiError(status, reason, f"{start} is refused: {reason}", "/apis")
        stage.cluster.refuses = lambda call: refusal if call.startswith(start) else None
        then(stage)

    return act


def judged(kind: Any, verdict: Hold | None = None, **figures: Any) -> Act:
    """The controller comes to this with each answer."""

    def act(stage: Stage) -> None:
        driver = stage.world.driver
        assert driver is not None
        reason = REBALANCED if verdict is None and kind != "hold" else (verdict or Hold(HoldReason.NOT_DUE, due_seconds=3.0))
        figures.setdefault("packed", b"packed")
        stage.world.judgement = Judgement(
            kind, reason, driver.generation, driver.newest + 1, stages=("counts",), verdict=verdict, **figures
        )

    return act


def refused_epoch(stage: Stage) -> None:
    judged("reroute")(stage)
    assert stage.world.judgement is not None
    stage.world.refused = DriverRefusal(stage.world.judgement.number, None, "another checkpoint")


def deaf_driver(stage: Stage) -> None:
    """It takes no epoch, and says nothing of this one."""
    judged("reroute")(stage)
    stage.world.refused = DriverRefusal(0, None, "damaged")


def copied_ahead(status: Object | None) -> Act:
    """An epoch whose state a Job copies; the Job's status, None: it gets no pod."""

    def act(stage: Stage) -> None:
        judged("reroute", moved_bytes=2**30)(stage)

        def work() -> None:
            for kind, name in list(stage.cluster.objects):
                if kind == "Job" and status is not None and "status" not in stage.cluster.objects[kind, name]:
                    stage.cluster.report(kind, name, status)
                if kind == "Job" and status is None:
                    stage.world.unmade[name] = "exceeded quota: team"

        stage.goes_on(work, 1.0)

    return act


def restarted(image: str | None) -> Act:
    """The operator starts again with this --image."""

    def act(stage: Stage) -> None:
        async def again() -> None:
            await stage.release.stop()
            stage.release.image = image
            stage.release.start()

        stage.tasks.append(asyncio.create_task(again()))

    return act


def quota(stage: Stage) -> None:
    stage.world.unmade = {"flow-large": 'pods "flow-large-2" is forbidden: exceeded quota: team'}
    stage.apply(executors=[{**LARGE, "replicas": 3}, SMALL])


def no_driver(stage: Stage) -> None:
    stage.world.unmade = {DRIVER: "exceeded quota: team"}
    stage.remove(stage.driver())
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota: team"}
    stage.cluster.report("Deployment", DRIVER, {"conditions": [failure]})


def no_node(stage: Stage) -> None:
    stage.world.kubelet = lambda pod: copy.deepcopy(UNSCHEDULED)
    stage.apply(executors=[{**LARGE, "replicas": 3}, SMALL])


def no_pull(stage: Stage) -> None:
    """A new image that is not in the registry."""
    stage.world.kubelet = lambda pod: waiting(
        "driver" if "driver" in pod else "executor", "ImagePullBackOff", "manifest unknown"
    )
    stage.apply(image="registry.example/spark:typo")


def contested(stage: Stage) -> None:
    """Somebody writes a service back each second."""

    def change() -> None:
        body = copy.deepcopy(stage.cluster.objects["Service", DRIVER])
        body["metadata"]["annotations"][names.CONTENT] = "theirs"
        stage.cluster.put(body)

    stage.goes_on(change, 1.0)


def held(stage: Stage) -> None:
    """Somebody deletes a service that a finalizer of somebody else keeps."""
    body = copy.deepcopy(stage.cluster.objects["Service", DRIVER])
    body["metadata"] |= {"finalizers": ["example.com/hold"], "deletionTimestamp": format_time(now())}
    stage.cluster.put(body)


def let_go(stage: Stage) -> None:
    stage.cluster.note("DELETED", stage.cluster.objects.pop(("Service", DRIVER)))


def quarrel(stage: Stage) -> None:
    """An HPA and a GitOps controller."""
    numbers = iter([3, 6] * 100)
    stage.goes_on(lambda: stage.apply(autoscale={"replicas": next(numbers)}), *[60.0] * 6, 600.0)


def name_taken(stage: Stage) -> None:
    metadata = {"name": DRIVER, "namespace": "space", "labels": {"team": "other"}}
    gone = stage.cluster.objects.pop(("Service", DRIVER))
    stage.cluster.note("DELETED", gone)
    stage.cluster.put({"kind": "Service", "apiVersion": "v1", "metadata": metadata})


def name_free(stage: Stage) -> None:
    stage.cluster.note("DELETED", stage.cluster.objects.pop(("Service", DRIVER)))


def evicted(stage: Stage) -> None:
    """Again and again, as an executor that takes too much of its disk."""

    def act() -> None:
        over = {"type": "Ready", "status": "False", "lastTransitionTime": format_time(now())}
        stage.pods({"phase": "Failed", "reason": "Evicted", "message": "10Gi exceeded", "conditions": [over]}, LAST)

    stage.goes_on(act, 300.0)


def resized(kind: str, reason: str) -> Act:
    def act(stage: Stage) -> None:
        stage.apply(executors=[{**LARGE, "cpu": "600m"}, SMALL])
        condition = {"type": kind, "status": "True", "reason": reason, "message": "node has no room"}
        stage.pods({**RUNNING, "conditions": [*RUNNING["conditions"], condition]}, LAST)

    return act


def calls_fail(stage: Stage) -> None:
    """Of each look the status comes through, and the first step has no answer."""
    stage.cluster.refuses = lambda call: ApiAway("no answer in time") if call.startswith("apply") else None
    stage.apply(executors=[{**LARGE, "replicas": 3}, SMALL])


def half_of_calls_fail(stage: Stage) -> None:
    rng = random.Random(1)
    stage.cluster.fails = lambda: rng.random() < 0.5
    stage.goes_on(lambda: stage.apply(executors=[{**LARGE, "replicas": 1 + rng.randrange(3)}, SMALL]), 300.0)


def mirrored(stage: Stage) -> None:
    """A webhook lets images come from a mirror."""

    def admission(body: Object) -> None:
        if body["kind"] == "StatefulSet":
            body["spec"]["template"]["spec"]["containers"][0]["image"] = "mirror.example/spark:1"

    stage.world.admission = admission
    stage.apply(executors=[{**LARGE, "pod": {"labels": {"team": "streams"}}}, SMALL])


def paused(value: str | None) -> Act:
    def act(stage: Stage) -> None:
        stage.cluster.edit({"metadata": {"annotations": {names.PAUSE: value}}})

    return act


AS_BEFORE = applied(executors=[LARGE, SMALL])
FAILED = {"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too often"}]}
NOT_WORTH_IT = Hold(HoldReason.NOT_WORTH_COST, gain_seconds=0.012, batches=30, cost_seconds=0.42)
NO_ROOM = Hold(HoldReason.NO_ROOM, stages=("counts",), slot=1, state_bytes=3e8, free_bytes=2e7)
NO_BETTER = Hold(HoldReason.NO_BETTER_PLAN, stages=("counts",))
MORE_CPU = applied(executors=[{**LARGE, "cpu": "600m"}, SMALL])
ONE_CLASS = {"executors": [{name: value for name, value in LARGE.items() if name != "replicas"}], "autoscale": SCALED}


def unbalanced(stage: Stage) -> None:
    stage.world.imbalance = 0.5


def and_then(*acts: Act) -> Act:
    def act(stage: Stage) -> None:
        for each in acts:
            each(stage)

    return act


STATES = [
    Stuck("invalid manifest", ("Ready", R.INVALID_MANIFEST), applied(executors=[{**LARGE, "cpu": "lots"}]), AS_BEFORE),
    Stuck("no image", ("Ready", R.NO_IMAGE), restarted(None), restarted("registry.example/spark:operators")),
    Stuck("driver not ready", ("Ready", R.DRIVER_STARTING), drivers_pod(NOT_READY)),
    Stuck("executors not ready", ("Ready", R.EXECUTORS_STARTING), executors_pods(NOT_READY)),
    Stuck("driver's quota", ("Ready", R.DRIVER_NOT_CREATED), no_driver, lambda s: s.cluster.report("Deployment", DRIVER, {})),
    Stuck("driver without a node", ("Ready", R.DRIVER_NOT_SCHEDULED), drivers_pod(UNSCHEDULED)),
    Stuck("image pull failure", ("Ready", R.IMAGE_UNAVAILABLE), no_pull, applied(image=None)),
    Stuck("driver fails", ("Ready", R.DRIVER_FAILED), drivers_pod(ended("driver", 1, "MemoryError"))),
    Stuck("driver refuses", ("Ready", R.DRIVER_REFUSED), drivers_pod(ended("driver", 2, "no such folder"))),
    Stuck(
        "driver silent",
        ("Ready", R.DRIVER_SILENT),
        lambda stage: setattr(stage.world, "silence", Silence("no route to host", now(), SILENT_TIMES)),
    ),
    Stuck("suspended", ("Ready", R.SUSPENDED), applied(suspend=True), applied(suspend=None)),
    Stuck("out of tolerance", ("Balanced", B.OUT_OF_TOLERANCE), unbalanced),
    Stuck("not worth it", ("Balanced", B.NOT_WORTH_IT), judged("hold", NOT_WORTH_IT, imbalance=0.5)),
    Stuck("no better plan", ("Balanced", B.NO_BETTER_PLAN), judged("hold", NO_BETTER, imbalance=0.5)),
    Stuck("no room for state", ("Balanced", B.NO_ROOM), judged("hold", NO_ROOM, imbalance=0.5)),
    Stuck("recommended", ("Balanced", B.RECOMMENDED), judged("recommend"), spec={"rebalance": {"mode": "Recommend"}}),
    Stuck("rebalance off", ("Balanced", B.REBALANCE_OFF), unbalanced, spec={"rebalance": {"mode": "Off"}}),
    Stuck("paused", ("Reconfiguring", C.PAUSED), paused("true"), paused(None)),
    Stuck("executor fails", ("Degraded", D.EXECUTORS_MISSING), lambda s: s.pods(ended("executor", 137, "OOMKilled"), LAST)),
    Stuck("unschedulable pods", ("Degraded", D.EXECUTORS_MISSING), no_node, AS_BEFORE),
    Stuck("evictions", ("Degraded", D.PODS_EVICTED), evicted),
    Stuck("quota", ("Degraded", D.EXECUTORS_NOT_CREATED), quota, AS_BEFORE),
    Stuck(
        "state fills an executor",
        ("Degraded", D.MEMORY_CROWDED),
        lambda stage: setattr(stage.world, "memory", (SlotMemory(0, 240, 250),)),
    ),
    Stuck(
        "a batch is lost again and again",
        ("Degraded", D.BATCH_LOST),
        lambda stage: setattr(stage.world, "lost", LostAttempts(7, 3, "executor large-0 was lost")),
    ),
    Stuck("resize deferred", ("Degraded", D.RESIZE_DEFERRED), resized("PodResizePending", "Deferred")),
    Stuck("resize infeasible", ("Degraded", D.RESIZE_INFEASIBLE), resized("PodResizePending", "Infeasible")),
    Stuck("resize fails", ("Degraded", D.RESIZE_ERROR), resized("PodResizeInProgress", "Error")),
    Stuck("resize without the right", ("Degraded", D.RESIZE_REFUSED), refused("patch Pod", 403, "Forbidden", MORE_CPU)),
    Stuck(
        "resize refused, no node for others",
        ("Degraded", D.RESIZE_REFUSED),
        and_then(
            lambda stage: setattr(stage.world, "kubelet", lambda pod: copy.deepcopy(UNSCHEDULED)),
            refused("patch Pod", 422, "Invalid", MORE_CPU),
        ),
    ),
    Stuck(
        "missing right",
        ("Degraded", D.APPLY_REFUSED),
        refused("apply StatefulSet", 403, "Forbidden", applied(executors=[{**LARGE, "replicas": 3}, {**SMALL, "replicas": 2}])),
    ),
    Stuck(
        "missing right to delete pods",
        ("Degraded", D.APPLY_REFUSED),
        refused("delete Pod", 403, "Forbidden", applied(executors=[{**LARGE, "memory": "2Gi"}, SMALL])),
    ),
    Stuck(
        "immutable routing",
        ("Degraded", D.APPLY_REFUSED),
        refused("apply ConfigMap", 422, "Invalid", applied(executors=[{**LARGE, "replicas": 3}, SMALL])),
    ),
    Stuck("held by a finalizer", ("Degraded", D.BEING_DELETED), held, let_go),
    Stuck("contested", ("Degraded", D.CONTESTED), contested),
    Stuck("two writers", ("Degraded", D.REPLICAS_CONTESTED), quarrel, spec=ONE_CLASS),
    Stuck("name taken", ("Degraded", D.NAME_TAKEN), name_taken, name_free),
    Stuck(
        "topology refused",
        ("Degraded", D.TOPOLOGY_REFUSED),
        lambda stage: setattr(stage.world, "refused", DriverRefusal(None, 2, "no column 'key'")),
    ),
    Stuck("refused epoch", ("Degraded", D.EPOCH_REFUSED), refused_epoch),
    Stuck("migration fails", ("Degraded", D.MIGRATION_FAILED), copied_ahead(FAILED)),
    Stuck("migration does not start", ("Degraded", D.MIGRATION_NOT_STARTED), copied_ahead(None)),
    Stuck("deaf driver", ("Degraded", D.EPOCH_NOT_TAKEN), deaf_driver),
    Stuck(
        "routing too large", ("Degraded", D.ROUTING_TOO_LARGE), judged("reroute", packed=random.Random(1).randbytes(900_000))
    ),
    Stuck("no step comes through", ("Degraded", D.API_FAILING), calls_fail),
    Stuck("half of the calls fail", ("Degraded", D.API_FAILING), half_of_calls_fail),
    Stuck("webhook", ("MutatedByAdmission", M.MUTATED), mirrored, AS_BEFORE),
]

# What is no state that somebody has to end: all is well, or a moment on the way.
PASSING = {
    R.RUNNING, R.ASLEEP, R.SUSPENDING, R.COMPLETED, R.DELETING, B.WITHIN_TOLERANCE, B.NOT_MEASURED, D.AS_EXPECTED,
    M.AS_WRITTEN, *set(C) - {C.PAUSED},
}  # fmt: skip
