"""The manifest as typed values: what every other room reads, after `parse` has found nothing wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

from streamtopology.routing.topology.limits import MOST_INSTANCES

API_VERSION = "streamtopology.dev/v1alpha1"
KIND = "StreamTopology"

DESCRIPTOR_FILE_FORMATS = ("parquet", "csv", "json", "text")
DESCRIPTOR_FORMATS = (*DESCRIPTOR_FILE_FORMATS, "kafka")
SINK_FORMATS = ("parquet", "json", "console", "memory", "kafka")

RebalanceMode = Literal["Auto", "Recommend", "Off"]
BadTuple = Literal["fail", "deadLetter"]
ImagePullPolicy = Literal["Always", "IfNotPresent", "Never"]
AutoscaleBy = Literal["Operator", "External", "Nobody"]

JsonMap = Mapping[str, object]
"""A mapping of whatever JSON can say."""


@dataclass(frozen=True)
class Watermark:
    """Rows whose `column` is more than `delay_seconds` behind the newest are late.

    A source that is silent for `idle_seconds` no longer holds back the watermark of the others.
    """

    column: str
    delay_seconds: float = 0.0
    idle_seconds: float = 30.0


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
        """Whether our own pinned tasks read it (files, Kafka); otherwise Spark does, where Spark likes."""
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
    """How tuples find their instance. `key` is empty only where neither the policy nor the operator needs one."""

    policy: str
    key: tuple[str, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True)
class Operator:
    """A processing element. `run`: a built-in's name, `module:Class` or `path/file.py:Class`, `options` is `with`."""

    name: str
    inputs: tuple[Input, ...]
    parallelism: int
    grouping: Grouping
    run: str
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    aggregate_every: int = 1
    follows_executors: bool = field(default=False, compare=False)
    """`parallelism` was left out: it is the number of executors, and changes with it."""
    path: str = field(default="", compare=False, repr=False)
    """Where the operator stands in its manifest, `spec.operators[2]`: for messages, no part of the value."""

    def key_of(self, alias: str) -> tuple[str, ...]:
        """The key columns of the input with this alias: its own, else the grouping's."""
        for edge in self.inputs:
            if edge.alias == alias:
                return edge.key or self.grouping.key
        raise KeyError(f"operator {self.name!r} has no input {alias!r}; it has {[edge.alias for edge in self.inputs]}")


@dataclass(frozen=True)
class Sink:
    """Where the rows of one operator go."""

    name: str
    input: str
    format: str
    options: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class PodSettings:
    """What a pod needs beside our container, in Kubernetes' own shapes, as `pods.POD_FIELDS` lists them."""

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


@dataclass(frozen=True)
class ExecutorClass:
    """`replicas` executors with the same limits: `cpu` in cores, `memory_bytes` in bytes. `pod`: on Kubernetes."""

    name: str
    replicas: int = 1
    cpu: float = 1.0
    memory_bytes: int = 2**30
    pod: PodSettings = PodSettings()


@dataclass(frozen=True)
class Driver:
    """The driver's pod on Kubernetes: `cpu` in cores, `memory_bytes` in bytes."""

    cpu: float = 1.0
    memory_bytes: int = 3 * 2**30
    pod: PodSettings = PodSettings()


@dataclass(frozen=True)
class Autoscale:
    """Who says how many executors the class has: our operator, something outside (HPA, KEDA, people), or nobody.

    `replicas`: what External asks for, and what everybody starts with. `target_utilisation`: share of the measured
    capacity that Operator keeps busy. `stabilisation_seconds`: how long Operator waits before it takes executors away.
    """

    executor_class: str
    by: AutoscaleBy = "External"
    replicas: int = 1
    min_replicas: int = 1
    max_replicas: int = MOST_INSTANCES
    target_utilisation: float = 0.7
    stabilisation_seconds: float = 300.0

    def within(self, replicas: int) -> int:
        """The nearest number of replicas that the bounds allow."""
        return min(max(replicas, self.min_replicas), self.max_replicas)


@dataclass(frozen=True)
class Migration:
    """State of more than `threshold_bytes` is copied ahead by a Job before an epoch that moves it becomes active.

    More than `portion_bytes` to an executor with a whole CPU moves over several batches, beginning with that much.
    """

    threshold_bytes: int = 64 * 2**20
    portion_bytes: int = 2**19


@dataclass(frozen=True)
class Rebalance:
    """When to re-route: `tolerance` is theta, the largest |load/capacity - mean| / mean that is left alone."""

    mode: RebalanceMode = "Auto"
    interval_seconds: float = 10.0
    tolerance: float = 0.08
    max_table_entries: int = 3000
    window_intervals: int = 1


@dataclass(frozen=True)
class Trigger:
    """How often a batch starts (0: when the last one is done), and whether to stop at the end of what is there."""

    interval_seconds: float = 0.0
    available_now: bool = False


_Named = TypeVar("_Named", Source, Operator, Sink, ExecutorClass)


@dataclass(frozen=True)
class Topology:
    """A manifest without mistakes. `operators` stand in flow order: each behind those that it reads."""

    name: str
    sources: tuple[Source, ...]
    operators: tuple[Operator, ...]
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

    @property
    def replicas(self) -> int:
        """Executors of all classes together. A class that is scaled counts with `autoscale.replicas` within its bounds."""
        return sum(executor.replicas for executor in self.executors)

    @property
    def default_parallelism(self) -> int:
        """The parallelism of operators that name none."""
        return min(max(self.replicas, 1), MOST_INSTANCES)

    def resolved(self, replicas: int | None = None) -> Topology:
        """The topology that runs: so many executors of the class that is scaled, within its bounds, and no `autoscale`.

        None: as many as `autoscale.replicas` says. Operators that name no parallelism follow. Without `autoscale` it is
        the same topology.
        """
        scaled = self.autoscale
        if scaled is None:
            return self
        count = scaled.within(scaled.replicas if replicas is None else replicas)
        executors = tuple(replace(one, replicas=count) if one.name == scaled.executor_class else one for one in self.executors)
        plain = replace(self, executors=executors, autoscale=None)
        parallelism = plain.default_parallelism
        operators = tuple(replace(one, parallelism=parallelism) if one.follows_executors else one for one in self.operators)
        return replace(plain, operators=operators)

    def source(self, name: str) -> Source:
        return _named(self.sources, name, "source")

    def operator(self, name: str) -> Operator:
        return _named(self.operators, name, "operator")

    def sink(self, name: str) -> Sink:
        return _named(self.sinks, name, "sink")

    def executor_class(self, name: str) -> ExecutorClass:
        return _named(self.executors, name, "executor class")

    def sinks_of(self, operator: str) -> tuple[Sink, ...]:
        """The sinks that this operator's output goes to."""
        return tuple(sink for sink in self.sinks if sink.input == operator)

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
