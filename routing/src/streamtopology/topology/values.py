"""The manifest as typed values: what every other room reads, after `parse` has found nothing wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from streamtopology.topology.limits import MOST_INSTANCES

API_VERSION = "streamtopology.dev/v1alpha1"
KIND = "StreamTopology"

DESCRIPTOR_FILE_FORMATS = ("parquet", "csv", "json", "text", "delta")
DESCRIPTOR_FORMATS = (*DESCRIPTOR_FILE_FORMATS, "iceberg", "kafka")
SINK_FORMATS = ("parquet", "json", "csv", "delta", "iceberg", "console", "memory", "function", "spark", "kafka")
# Formats of files whose columns nothing but a schema says.
WITH_SCHEMA = ("parquet", "csv", "json", "delta", "iceberg")
ICEBERG_NEEDS = ("table", "catalog.type", "catalog.uri")
SINK_NEEDS = {
    **dict.fromkeys(("parquet", "json", "csv", "delta"), ("path",)),
    "iceberg": ICEBERG_NEEDS,
    "kafka": ("kafka.bootstrap.servers", "topic"),
}

RebalanceMode = Literal["Auto", "Recommend", "Off"]
BadTuple = Literal["fail", "deadLetter"]
OnRemove = Literal["fail", "drop"]
StateBackend = Literal["memory", "disk"]
ImagePullPolicy = Literal["Always", "IfNotPresent", "Never"]
AutoscaleBy = Literal["Operator", "External", "Nobody"]
RestoreMode = Literal["Clone", "Own"]

# The origin of a checkpoint that begins with nothing, where another one was in use before.
EMPTY = "Empty"

# A mapping of whatever JSON can say.
JsonMap = Mapping[str, object]


@dataclass(frozen=True)
class Watermark:
    """Rows whose `column` is more than `delay_seconds` behind the newest are late.

    A source that is silent for `idle_seconds` no longer holds back the watermark of the others. A row whose `column` is more
    than `max_ahead_seconds` later than the clock does not count as the newest.
    """

    column: str
    delay_seconds: float = 0.0
    idle_seconds: float = 30.0
    max_ahead_seconds: float = 86_400.0


@dataclass(frozen=True)
class Source:
    """A stream of rows: `schema` is Spark DDL, `select` and `where` are SQL in DuckDB's dialect over its columns."""

    name: str
    format: str
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    select: tuple[str, ...] = ()
    where: str | None = None
    watermark: Watermark | None = None

    @property
    def reads_descriptors(self) -> bool:
        """True if our own pinned tasks read it (files, Kafka); otherwise Spark reads it on executors of its choice."""
        return self.format in DESCRIPTOR_FORMATS


@dataclass(frozen=True)
class Input:
    """An edge into an operator: from which source or operator, and under which alias.

    `key`: what this input calls the columns of the grouping's key, where it does not call them the same.
    """

    source: str
    alias: str
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class Grouping:
    """The routing of tuples to instances. `key` is empty only where neither the policy nor the operator needs one."""

    policy: str
    key: tuple[str, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True)
class StateRoom:
    """Where the state of an operator's instances is. On disk: of each instance, `memory_bytes` of keys are in memory, too."""

    backend: StateBackend = "memory"
    memory_bytes: int = 256 * 2**20


@dataclass(frozen=True)
class OperatorSpec:
    """A processing element. `run`: a built-in's name, `module:Class` or `path/file.py:Class`, `options` is `with`.

    `late`: the sink among those that read it that takes its late rows instead of its results; None: they are only counted.
    """

    name: str
    inputs: tuple[Input, ...]
    parallelism: int
    grouping: Grouping
    run: str
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    aggregate_every: int = 1
    late: str | None = None
    state: StateRoom = StateRoom()
    # `parallelism` was left out: it is the number of executors, and changes with it.
    follows_executors: bool = field(default=False, compare=False)
    # The operator's place in its manifest, `spec.operators[2]`: for messages, no part of the value.
    path: str = field(default="", compare=False, repr=False)

    def key_of(self, alias: str) -> tuple[str, ...]:
        """The key columns of the input with this alias: its own, else the grouping's."""
        for edge in self.inputs:
            if edge.alias == alias:
                return edge.key or self.grouping.key
        raise KeyError(f"operator {self.name!r} has no input {alias!r}; it has {[edge.alias for edge in self.inputs]}")


@dataclass(frozen=True)
class Sink:
    """The destination of one operator's rows."""

    name: str
    input: str
    format: str
    options: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class PodSettings:
    """Additions to a pod and our container in it, in Kubernetes' own shapes, as `pods.POD_FIELDS` lists them."""

    volumes: tuple[JsonMap, ...] = ()
    volume_mounts: tuple[JsonMap, ...] = ()
    env: tuple[JsonMap, ...] = ()
    env_from: tuple[JsonMap, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict[str, str])
    tolerations: tuple[JsonMap, ...] = ()
    affinity: JsonMap = field(default_factory=dict[str, object])
    topology_spread_constraints: tuple[JsonMap, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    service_account_name: str | None = None
    image_pull_secrets: tuple[JsonMap, ...] = ()
    priority_class_name: str | None = None
    init_containers: tuple[JsonMap, ...] = ()
    security_context: JsonMap = field(default_factory=dict[str, object])
    scheduler_name: str | None = None
    runtime_class_name: str | None = None
    termination_grace_seconds: int | None = None


@dataclass(frozen=True)
class ExecutorClass:
    """`replicas` executors with the same limits: `cpu` in cores, `memory_bytes` in bytes. On Kubernetes, `pod`, and
    `max_unavailable`: the executors that may be missing at once while their pods are replaced; None: a tenth of them.
    `cost_per_hour`: the price of one executor, in any currency; None: unknown. `storage_bytes`: as of `Driver`."""

    name: str
    replicas: int = 1
    cpu: float = 1.0
    memory_bytes: int = 2**30
    pod: PodSettings = PodSettings()
    max_unavailable: int | None = None
    cost_per_hour: float | None = None
    storage_bytes: int | None = None

    @property
    def most_unavailable(self) -> int:
        """`max_unavailable`, or a tenth of the replicas, at least one."""
        return self.max_unavailable or max(self.replicas // 10, 1)


@dataclass(frozen=True)
class Driver:
    """The driver's pod on Kubernetes: `cpu` in cores, `memory_bytes` in bytes.

    `storage_bytes`: of its node's disk, for its volumes of its own, log and files together; None: as much as there is.
    """

    cpu: float = 1.0
    memory_bytes: int = 3 * 2**30
    pod: PodSettings = PodSettings()
    storage_bytes: int | None = None


@dataclass(frozen=True)
class ScaledClass:
    """One of several executor classes that the operator scales: never fewer than `min_replicas`, with which it starts."""

    name: str
    min_replicas: int = 0
    max_replicas: int = MOST_INSTANCES

    def within(self, replicas: int) -> int:
        """The nearest number of replicas that the bounds allow."""
        return min(max(replicas, self.min_replicas), self.max_replicas)


@dataclass(frozen=True)
class Autoscale:
    """The scaling of an executor class: by our operator or from outside (HPA, KEDA, people).

    `replicas`: what External asks for, and what everybody starts with. `target_utilisation`: share of the measured
    capacity that Operator keeps busy. `stabilisation_seconds`: how long Operator waits before it takes executors away.
    `classes`: where Operator scales several classes, in place of `executor_class`, which is empty, `replicas` and the bounds.
    """

    executor_class: str
    by: AutoscaleBy = "External"
    replicas: int = 1
    min_replicas: int = 1
    max_replicas: int = MOST_INSTANCES
    target_utilisation: float = 0.7
    stabilisation_seconds: float = 300.0
    classes: tuple[ScaledClass, ...] = ()

    @property
    def scaled(self) -> tuple[ScaledClass, ...]:
        """The classes that are scaled, with their bounds: those of `classes`, or the one."""
        return self.classes or (ScaledClass(self.executor_class, self.min_replicas, self.max_replicas),)

    @property
    def start(self) -> Mapping[str, int]:
        """The replicas of each scaled class that the manifest asks for, or begins with, within the bounds."""
        if self.classes:
            return {one.name: one.min_replicas for one in self.classes}
        return {self.executor_class: self.within(self.replicas)}

    def all_within(self, replicas: Mapping[str, int]) -> Mapping[str, int]:
        """The replicas of each scaled class within its bounds; of one that is not given, those that it starts with."""
        start = self.start
        return {one.name: one.within(replicas.get(one.name, start[one.name])) for one in self.scaled}

    def within(self, replicas: int) -> int:
        """The nearest number of replicas that the bounds allow."""
        return min(max(replicas, self.min_replicas), self.max_replicas)


@dataclass(frozen=True)
class Migration:
    """State of more than `threshold_bytes` is pre-copied by a Job before an epoch that moves it becomes active.

    `portion_bytes` moves in the first batch of a switch, per executor with a whole CPU; more moves over several batches.
    `cpu`, `memory_bytes`, `storage_bytes`: the limits of the Job's pod, the last one as of `Driver`.
    """

    threshold_bytes: int = 64 * 2**20
    portion_bytes: int = 2**19
    cpu: float = 0.5
    memory_bytes: int = 2**30
    storage_bytes: int | None = None


@dataclass(frozen=True)
class SnapshotSchedule:
    """Copies of the checkpoint below `to`, at the times of `schedule` (`cron`). `keep`: how many of them; None: all."""

    schedule: str
    to: str
    keep: int | None = None


@dataclass(frozen=True)
class Rebalance:
    """Conditions of re-routing: `tolerance` is theta, the imbalance above which one is considered."""

    mode: RebalanceMode = "Auto"
    interval_seconds: float = 10.0
    tolerance: float = 0.08
    max_table_entries: int = 3000
    window_intervals: int = 1


@dataclass(frozen=True)
class Trigger:
    """The interval between batches (0: one follows the other), and whether to stop at the end of the existing input.

    `latency_seconds`: about how long a batch may take; more input than that is left to the next. None: as long as it takes.
    `real_time`: the executors' workers are always there, and a batch needs no job of Spark.
    """

    interval_seconds: float = 0.0
    available_now: bool = False
    latency_seconds: float | None = None
    real_time: bool = False


@dataclass(frozen=True)
class Restore:
    """The beginning of a checkpoint without a committed batch: a copy of the checkpoint at `origin`, or nothing (`EMPTY`).

    Clone: with an identity of its own. Own: it continues the original, which does not run any more, also for its sinks.
    """

    origin: str
    mode: RestoreMode = "Clone"


_Named = TypeVar("_Named", Source, OperatorSpec, Sink, ExecutorClass)


@dataclass(frozen=True)
class Topology:
    """A manifest without mistakes. `operators` stand in flow order: each behind those that it reads."""

    name: str
    sources: tuple[Source, ...]
    operators: tuple[OperatorSpec, ...]
    sinks: tuple[Sink, ...]
    executors: tuple[ExecutorClass, ...]
    rebalance: Rebalance = Rebalance()
    trigger: Trigger = Trigger()
    checkpoint: str | None = None
    on_bad_tuple: BadTuple = "fail"
    image: str | None = None
    image_pull_policy: ImagePullPolicy | None = None
    suspend: bool = False
    autoscale: Autoscale | None = None
    driver: Driver = Driver()
    migration: Migration = Migration()
    on_remove: OnRemove = "fail"
    restore: Restore | None = None
    snapshots: SnapshotSchedule | None = None
    image_pull_secrets: tuple[str, ...] = ()
    spark_conf: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def replicas(self) -> int:
        """Executors of all classes together. A class that is scaled counts with those that it starts with."""
        return sum(executor.replicas for executor in self.executors)

    @property
    def default_parallelism(self) -> int:
        """The parallelism of operators that name none."""
        return min(max(self.replicas, 1), MOST_INSTANCES)

    def resolved(self, replicas: Mapping[str, int] | None = None) -> Topology:
        """The topology that runs: `replicas` executors of each scaled class, within its bounds, and no `autoscale`.

        Of a class that is not given, as many as it starts with. At least one of the first if no class has executors, as a
        driver plans for one also where it is away. Operators that name no parallelism follow. Without `autoscale` it is the
        same topology.
        """
        if self.autoscale is None:
            return self
        counts = dict(self.autoscale.all_within(replicas or {}))
        if not any(counts.get(one.name, one.replicas) for one in self.executors):
            counts[self.autoscale.scaled[0].name] = 1
        executors = tuple(replace(one, replicas=counts.get(one.name, one.replicas)) for one in self.executors)
        plain = replace(self, executors=executors, autoscale=None)
        parallelism = plain.default_parallelism
        operators = tuple(replace(one, parallelism=parallelism) if one.follows_executors else one for one in self.operators)
        return replace(plain, operators=operators)

    def source(self, name: str) -> Source:
        return _named(self.sources, name, "source")

    def operator(self, name: str) -> OperatorSpec:
        return _named(self.operators, name, "operator")

    def executor_class(self, name: str) -> ExecutorClass:
        return _named(self.executors, name, "executor class")

    def sinks_of(self, operator: str) -> tuple[Sink, ...]:
        """The sinks that this operator's output goes to; the sink of its late rows is none of them."""
        of_late_rows = {one.late for one in self.operators}
        return tuple(sink for sink in self.sinks if sink.input == operator and sink.name not in of_late_rows)

    def sources_of(self, operator: str) -> tuple[Source, ...]:
        """The sources whose rows reach this operator, however many operators lie between, in the manifest's order."""
        reached: set[str] = {operator}
        for upstream in reversed(self.operators):
            if upstream.name in reached:
                reached.update(edge.source for edge in upstream.inputs)
        return tuple(source for source in self.sources if source.name in reached)


def _named(items: tuple[_Named, ...], name: str, what: str) -> _Named:
    for item in items:
        if item.name == name:
            return item
    raise KeyError(f"no {what} {name!r}; there are {', '.join(item.name for item in items) or 'none'}")
