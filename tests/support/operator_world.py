"""A cluster as plain values, for decisions without a cluster: steps change its objects, controllers make its pods.

What it says of the API server is little: apply replaces, patch merges, delete removes. The tests in tests/kubernetes take
the same decisions to a real one.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

from streamtopology.contract.phases import Activity
from streamtopology.contract.reasons import Binding
from streamtopology.contract.stats import Batch, DriverRefusal, LiveExecutor, LostAttempts, Rerouting, Slot, SlotMemory, Stats
from streamtopology.k8s import failpoints, names
from streamtopology.k8s.decide.answers import Answer, Gain, Judgement, Scaling, Silence
from streamtopology.k8s.decide.attempts import Aim, Attempts, Place, aim_of, noted
from streamtopology.k8s.decide.decision import Decision, decide
from streamtopology.k8s.decide.observation import Observation, manifest_text, read_topology
from streamtopology.k8s.decide.owned_objects import Pod, owned_object
from streamtopology.k8s.decide.steps import Apply, Delete, Finalizer, MakeSecret, Patch, Resize, Step
from streamtopology.k8s.instants import format_time
from streamtopology.k8s.io.apply import ResizeRefusedError, refused_in
from streamtopology.k8s.io.topology_body import orphans_among, owned_by
from streamtopology.k8s.resources.access import spark_secret
from streamtopology.k8s.settings import Settings
from streamtopology.topology import Level, Topology, difference, format_cpu, format_memory

read = lru_cache(read_topology)
SETTINGS = Settings(image="registry.example/spark:1", drain_seconds=60.0)
Object = dict[str, Any]
# The status of a pod that is well.
RUNNING: Object = {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}


def manifest(name: str = "flow", **spec: Any) -> Object:
    """A StreamTopology as the API server would have it."""
    return {
        "apiVersion": "streamtopology.dev/v1alpha1",
        "kind": "StreamTopology",
        "metadata": {"name": name, "namespace": "space", "uid": "uid-1", "generation": 1, "resourceVersion": "1"},
        "spec": {
            "sources": [{"name": "rows", "format": "parquet", "schema": "key BIGINT", "options": {"path": "/data"}}],
            "operators": [
                {"name": "counts", "inputs": ["rows"], "grouping": {"policy": "mixed", "key": "key"}, "run": "count"}
            ],
            "executors": [
                {"name": "large", "replicas": 2, "cpu": "400m", "memory": "1Gi"},
                {"name": "small", "replicas": 1, "cpu": "150m", "memory": "1Gi"},
            ],
            "checkpoint": "/checkpoint",
            **spec,
        },
    }


@dataclass
class DriverModel:
    """The driver of a pod, and the state that it has taken from the ConfigMap."""

    pod: str
    topology: Topology
    generation: int
    newest: int
    epoch: int | None = None


@dataclass
class World:
    """One topology and its cluster. `now`: seconds since 1970, moved by the test; `missing`: executors that never came."""

    manifest: Object
    now: float = 1_700_000_000.0
    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    held_by_others: dict[str, str] = field(default_factory=dict[str, str])
    # Data and binaryData of the ConfigMap that somebody else has written, too: server-side apply leaves them.
    bytes_held_by_others: dict[str, str] = field(default_factory=dict[str, str])
    driver: DriverModel | None = None
    epochs: int = 0
    silence: Silence | None = None
    judgement: Judgement | None = None
    scaling: Scaling | None = None
    refused: DriverRefusal | None = None
    reroutings: tuple[Rerouting, ...] = ()
    gains: tuple[Gain, ...] = ()
    imbalance: float = 0.01
    memory: tuple[SlotMemory, ...] = ()
    lost: LostAttempts | None = None
    binding: Binding | None = None
    joining: int = 0
    missing: set[str] = field(default_factory=set)
    not_created: dict[Place, str] = field(default_factory=dict)
    # Name of a workload -> why its controller is refused any further pod.
    unmade: dict[str, str] = field(default_factory=dict[str, str])
    # The status of a new pod, by its name.
    kubelet: Callable[[str], Object] = lambda pod: copy.deepcopy(RUNNING)
    phase: str = "running"
    reached: bool = False
    idle_seconds: float | None = None
    batch: int = 5
    settings: Settings = SETTINGS
    admission: Callable[[Object], None] = lambda body: None
    # The pods that a kubelet has evicted, as the cache remembers them.
    evicted: list[Pod] = field(default_factory=list[Pod])
    events: list[tuple[str, str]] = field(default_factory=list)
    attempts: dict[Aim, Attempts] = field(default_factory=dict)
    versions: Any = field(default_factory=lambda: itertools.count(2))
    # Deployment -> its version, and the revision of that version's template: asked for in every tick.
    revisions: dict[str, tuple[str, str]] = field(default_factory=dict)

    def change(self, **spec: Any) -> None:
        """`kubectl apply` of another spec."""
        self.manifest["spec"] |= spec
        self.manifest["metadata"]["generation"] += 1

    def look(self) -> Observation:
        answer = None
        if self.driver is not None:
            answer = Answer(self.driver.pod, self.stats(), self.judgement, self.scaling, self.silence, self.gains)
        there = {key: owned_object(body) for key, body in self.objects.items()}
        routing = self.objects.get(("ConfigMap", f"{self.manifest['metadata']['name']}-routing"))
        running = read(routing["data"]["topology"]) if routing else None
        manifest = copy.deepcopy(self.manifest)
        return Observation(
            manifest,
            read(manifest_text(manifest)),
            running if isinstance(running, Topology) else None,
            owned_by(self.manifest["metadata"]["uid"], there),
            answer,
            self.now,
            not_created=self.not_created,
            reached=self.reached,
            attempts=self.attempts,
            evicted=tuple(self.evicted),
            orphans=orphans_among(there),
        )

    def decide(self) -> Decision:
        return self.decide_on(self.look())

    def decide_on(self, seen: Observation) -> Decision:
        return decide(seen, self.settings)

    def carry_out(self, decision: Decision, steps: int | None = None, refuse_resize: str | None = None) -> None:
        """Writes the status, then takes the steps, as the reconciler does; killed after the first `steps`, if that is given."""
        self.manifest["status"] = copy.deepcopy(decision.status)
        self.events += [(event.reason, event.message) for event in decision.events]
        for step in decision.steps[:steps]:
            if isinstance(step, Resize) and refuse_resize is not None:
                refused = refused_in(decision.status, [ResizeRefusedError(step, refuse_resize)])
                self.manifest["status"] = copy.deepcopy(refused)
            else:
                self.take(step)
            self.attempts[aim_of(step)] = noted(self.attempts.get(aim_of(step)), step, self.now)
        if steps is not None:
            self.attempts.clear()

    def edit(self, kind: str, name: str, place: str, value: Any) -> None:
        """`kubectl edit` by somebody: the field at `place`, as `spec.replicas`, is theirs from now on."""
        body = self.objects[kind, name]
        fields = body["metadata"]["managedFields"][0]["fieldsV1"]
        *way, last = place.split(".")
        for part in way:
            known = f"f:{part}" if isinstance(body, dict) else f"k:{json.dumps({'name': part})}"
            fields = fields[known]
            body = body[part] if isinstance(body, dict) else next(item for item in body if item["name"] == part)
        body[last] = value
        fields.pop(f"f:{last}", None)

    def settle(self, rounds: int = 40) -> int:
        """Decides, carries out, lets controllers and driver work, until nothing is to be done; returns the rounds."""
        for number in range(rounds):
            decision = self.decide()
            self.carry_out(decision)
            moved = self.work()
            if not decision.steps and not moved and "intent" not in decision.status:
                return number
            self.now += 1
        raise AssertionError(f"not settled: {[str(step) for step in self.decide().steps]}, {self.manifest['status']}")

    def evict(self, pod: str, message: str, *conditions: Object) -> None:
        """A kubelet ends the pod for good. Its StatefulSet or Deployment makes another with the next `work`."""
        body = self.objects.pop(("Pod", pod))
        over = {"type": "Ready", "status": "False", "reason": "PodFailed", "lastTransitionTime": format_time(self.now)}
        body["status"] = {"phase": "Failed", "reason": "Evicted", "message": message, "conditions": [over, *conditions]}
        if body["metadata"]["ownerReferences"][0]["kind"] == "Deployment":  # whose pods have other names each time
            body["metadata"]["name"] = f"{pod}-before"
        self.put(body)
        self.evicted.append(cast(Pod, owned_object(body)))

    def take(self, step: Step) -> None:
        assert {f"before-{step.point}", f"after-{step.point}"} <= set(failpoints.POINTS)
        match step:
            case Apply(body):
                key = (body["kind"], body["metadata"]["name"])
                known = self.objects.get(key)
                made = {**copy.deepcopy(body), **({"status": known["status"]} if known and "status" in known else {})}
                made["metadata"]["managedFields"] = [written_by_us(body)]
                if body["kind"] == "ConfigMap":
                    made["data"] = {**self.held_by_others, **made["data"]}
                    made["binaryData"] = {**self.bytes_held_by_others, **made.get("binaryData", {})}
                self.admission(made)
                self.put(made)
            case MakeSecret(_, restarts):
                for delete in restarts:
                    self.take(delete)
                self.put(spark_secret(self.look().owner, "text"))
            case Finalizer(present):
                self.manifest["metadata"]["finalizers"] = [names.FINALIZER] if present else []
            case Patch(kind, name, body, _):
                for part, held in (("data", self.held_by_others), ("binaryData", self.bytes_held_by_others)):
                    for gone in [field for field, value in body.get(part, {}).items() if value is None]:
                        held.pop(gone, None)
                self.put(strategically_merged(self.objects[kind.kind, name], body))
            case Resize(pod, _, (cpu, memory)):
                body = copy.deepcopy(self.objects["Pod", pod])
                limits = {"cpu": format_cpu(cpu), "memory": format_memory(memory)}
                known = body["spec"]["containers"][0]["resources"]
                body["spec"]["containers"][0]["resources"] = {kind: {**known[kind], **limits} for kind in known}
                self.put(body)
            case Delete(kind, name, uid, _):
                assert self.objects[kind.kind, name]["metadata"]["uid"] == uid
                del self.objects[kind.kind, name]

    def work(self) -> bool:
        """Controllers make and remove pods, which run at once; the driver takes what it is given. Whether anything moved."""
        before = json.dumps([sorted(map(str, self.objects)), str(self.driver)])
        self.control()
        return before != json.dumps([sorted(map(str, self.objects)), str(self.driver)])

    def control(self) -> None:
        """The same for those who look for what has moved themselves."""
        for (kind, name), body in list(self.objects.items()):
            if kind in ("StatefulSet", "Deployment"):
                self._make_pods(kind, name, body)
        for kind, name in [key for key in self.objects if key[0] == "Pod"]:
            owner = self.objects[kind, name]["metadata"]["ownerReferences"][0]
            if (owner["kind"], owner["name"]) not in self.objects:
                del self.objects[kind, name]
        self._drive()

    def stats(self) -> Stats | None:
        driver = self.driver
        if driver is None:
            return None
        every = [(one, ordinal) for one in driver.topology.executors for ordinal in range(one.replicas)]
        places = [(one, ordinal) for one, ordinal in every if f"{one.name}-{ordinal}" not in self.missing]
        last = Batch(
            number=self.batch, epoch=driver.epoch or 0, rows=100, seconds=0.1, committed_at=self.now,
            imbalance={"counts": self.imbalance},
        )  # fmt: skip
        return Stats(
            topology=self.manifest["metadata"]["name"], activity=Activity.of_text(self.phase), generation=driver.generation,
            epoch=driver.epoch, newest_epoch=driver.newest, batch=None if driver.epoch is None else self.batch,
            rows_per_second=1000.0,
            slots=tuple(Slot(n, f"{one.name}-{ordinal}", one.name, one.cpu) for n, (one, ordinal) in enumerate(places)),
            executors=tuple(
                LiveExecutor(str(n), one.name, None, n, admitted=ordinal < one.replicas - self.joining)
                for n, (one, ordinal) in enumerate(places)
            ),
            replicas={one.name: one.replicas for one in driver.topology.executors},
            policies={}, checkpoint="/checkpoint", refused=self.refused, last_batch=last,
            batches=() if driver.epoch is None else (last,), reconfigurations=self.reroutings,
            idle_seconds=self.idle_seconds, binding=self.binding, memory=self.memory, lost=self.lost,
        )  # fmt: skip

    def pod_names(self, component: str) -> list[str]:
        return sorted(
            name
            for (kind, name), body in self.objects.items()
            if kind == "Pod" and body["metadata"]["labels"][names.COMPONENT] == component
        )

    def _make_pods(self, kind: str, name: str, body: Object) -> None:
        template, replicas = body["spec"]["template"], body["spec"]["replicas"]
        suffix = "" if kind == "StatefulSet" else f"{self._revision(body)}-"
        wanted = {f"{name}-{suffix}{number}" for number in range(replicas)}
        present = {
            pod
            for (of_kind, pod), one in self.objects.items()
            if of_kind == "Pod" and one["metadata"]["ownerReferences"][0]["name"] == name
        }
        over = {pod for pod in present if self.objects["Pod", pod]["status"].get("phase") == "Failed"}
        for pod in over if kind == "StatefulSet" else ():
            del self.objects["Pod", pod]
        present -= over
        for pod in present - wanted:
            del self.objects["Pod", pod]
        for pod in wanted - present if name not in self.unmade else ():
            metadata = {**copy.deepcopy(template["metadata"]), "name": pod, "namespace": "space"}
            metadata["ownerReferences"] = [{"kind": kind, "name": name}]
            pod_body = {
                "kind": "Pod",
                "metadata": metadata,
                "spec": copy.deepcopy(template["spec"]),
                "status": self.kubelet(pod),
            }
            self.admission(pod_body)
            self.put(pod_body)

    def _revision(self, deployment: Object) -> str:
        name, version = deployment["metadata"]["name"], deployment["metadata"]["resourceVersion"]
        if self.revisions.get(name, ("",))[0] != version:
            template = json.dumps(deployment["spec"]["template"], sort_keys=True)
            self.revisions[name] = version, format(abs(hash(template)) % 10_000, "04d")
        return self.revisions[name][1]

    def _drive(self) -> None:
        pods, routing = (
            self.pod_names("driver"),
            self.objects.get(("ConfigMap", f"{self.manifest['metadata']['name']}-routing")),
        )
        if not pods or routing is None:
            self.driver = None
            return
        data = routing["data"]
        wanted, generation = cast(Topology, read(data["topology"])), int(data["generation"])
        if self.driver is None or self.driver.pod not in pods:
            self.epochs += 1
            self.driver = DriverModel(pods[0], wanted, generation, self.epochs)
        driver = self.driver
        level = Level.IGNORE if driver.topology is wanted else difference(driver.topology, wanted).level
        if level < Level.RESTART:
            if level in (Level.ROUTE, Level.SCALE):
                self.epochs = driver.newest = self.epochs + 1
            driver.topology, driver.generation = wanted, generation
        number = int(data.get("epochNumber", 0))
        ready = number > driver.newest and data["epochState"] == "ready" and self.refused is None
        if ready and int(data["epochGeneration"]) == driver.generation:
            self.epochs = driver.newest = number
        driver.epoch = driver.newest

    def put(self, body: Object) -> None:
        key = (body["kind"], body["metadata"]["name"])
        known = self.objects.get(key)
        version = next(self.versions)
        uid = known["metadata"]["uid"] if known else f"uid-{version}"
        created = known["metadata"]["creationTimestamp"] if known else format_time(self.now)
        body["metadata"] = {"creationTimestamp": created, **body["metadata"], "uid": uid, "resourceVersion": str(version)}
        self.objects[key] = body


_NAMED = ("containers", "volumes", "env")
# The lists of named things in what we write, and their keys; other lists have one owner as a whole.
_KEYS = {**{name: ["name"] for name in _NAMED}, "volumeMounts": ["mountPath"], "ownerReferences": ["uid"]}


def written_by_us(body: Object) -> Object:
    """The account that the API server keeps of our apply."""
    return {"manager": names.MANAGER, "operation": "Apply", "fieldsV1": _fields(body)}


def _fields(value: Any, name: str = "") -> Object:
    if isinstance(value, dict):
        return {f"f:{key}": _fields(inner, key) for key, inner in value.items()}
    keys = _KEYS.get(name, [])
    if not keys or not isinstance(value, list):
        return {}
    return {f"k:{json.dumps({key: item[key] for key in keys})}": {".": {}, **_fields(item)} for item in value}


def shape(world: World) -> dict[str, Any]:
    """All objects, without the differences between two equal worlds: versions, generations, epochs."""
    left: dict[str, Any] = {}
    for (kind, name), body in world.objects.items():
        if kind in ("StatefulSet", "Pod") and (kind == "StatefulSet" or names.CLASS in body["metadata"]["labels"]):
            left[f"{kind} {name}"] = body["spec"]
        elif kind == "ConfigMap":
            left[f"{kind} {name}"] = json.loads(body["data"]["topology"])
        elif kind == "Deployment":
            left[f"{kind} {name}"] = {**body["spec"], "template": body["spec"]["template"]["spec"]}
        elif kind != "Pod":
            left[f"{kind} {name}"] = True
    return left


def condition(world: World, kind: str) -> tuple[str, str]:
    """Status and reason of the condition `kind`, as it is in the topology's status."""
    return next((one["status"], one["reason"]) for one in world.manifest["status"]["conditions"] if one["type"] == kind)


def routing(world: World) -> dict[str, Any]:
    """Return the data of the routing ConfigMap."""
    return world.objects["ConfigMap", "flow-routing"]["data"]


def reasons(steps: Sequence[Step]) -> list[str]:
    return [str(step) for step in steps]


def strategically_merged(body: Any, patch: Any) -> Any:
    """By strategic merge: what has names in a list is found by them."""
    if isinstance(patch, list) and isinstance(body, list):
        changes = {one["name"]: one for one in patch}
        return [strategically_merged(one, changes.get(one["name"], {})) for one in body]
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    body = body if isinstance(body, dict) else {}
    merged = {name: value for name, value in body.items() if patch.get(name, 1) is not None}
    return merged | {name: strategically_merged(merged.get(name), value) for name, value in patch.items() if value is not None}
