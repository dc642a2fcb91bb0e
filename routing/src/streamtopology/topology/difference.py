"""The changes between two manifests, and how much of a running topology each disturbs: most never restart it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from streamtopology.topology.pods import POD_FIELDS
from streamtopology.topology.quantities import format_cpu, format_duration, format_memory
from streamtopology.topology.reading import is_list, is_mapping
from streamtopology.topology.values import (
    Autoscale,
    Driver,
    ExecutorClass,
    Input,
    OperatorSpec,
    PodSettings,
    ScaledClass,
    Sink,
    Source,
    StateRoom,
    Topology,
    Watermark,
)


class Level(IntEnum):
    """The depth of a change; the deepest of all changes decides."""

    IGNORE = 0
    # A new epoch of routing at the next batch.
    ROUTE = 1
    # Other limits for running executors, or other pods in their place one after the other: the query keeps running.
    RESIZE = 2
    # More or fewer executors or instances, by re-routing.
    SCALE = 3
    # The query starts again from its checkpoint.
    RESTART = 4


@dataclass(frozen=True)
class Change:
    """The deepest level of a change and one sentence for each thing that changed."""

    level: Level
    sentences: tuple[str, ...]


_Step = tuple[Level, str]
# Longer texts, such as a class that was pickled, are shown by their beginning.
_LONGEST_SHOWN, _BEGIN = 200, 40
_Item = TypeVar("_Item", Source, OperatorSpec, Sink, ExecutorClass)


def difference(old: Topology, new: Topology) -> Change:
    """List the changes from one topology to the other. The order of sources, operators, sinks and classes means nothing.

    Compare topologies that are `resolved`: what an autoscaler has decided is then a change of replicas like any other.
    IGNORE with sentences is what a running driver does not act on: suspend, the bounds of autoscaling, migration, restore,
    snapshots.
    """
    steps = [
        *_value(Level.RESTART, "name", old.name, new.name),
        *_items("source", old.sources, new.sources, Level.RESTART, _source),
        *_items("operator", old.operators, new.operators, Level.RESTART, _operator),
        *_items("sink", old.sinks, new.sinks, Level.RESTART, _sink),
        *_items("executor class", old.executors, new.executors, Level.SCALE, _executor_class),
        *_rebalance(old, new),
        *_trigger(old, new),
        *_value(Level.RESTART, "checkpoint", old.checkpoint, new.checkpoint),
        *_value(Level.IGNORE, "restore", _restored(old), _restored(new)),
        *_value(Level.RESTART, "onBadTuple", old.on_bad_tuple, new.on_bad_tuple),
        *_value(Level.RESTART, "onRemove", old.on_remove, new.on_remove),
        *_value(Level.RESTART, "image", old.image, new.image),
        *_value(Level.RESTART, "imagePullPolicy", old.image_pull_policy, new.image_pull_policy),
        *_value(Level.RESTART, "imagePullSecrets", old.image_pull_secrets, new.image_pull_secrets),
        *_spark_conf(old.spark_conf, new.spark_conf),
        *_driver(old.driver, new.driver),
        *_autoscale(old.autoscale, new.autoscale),
        *_value(Level.IGNORE, "suspend", old.suspend, new.suspend),
        *_migration(old, new),
        *_value(Level.IGNORE, "snapshots", _snapshots(old), _snapshots(new)),
    ]
    return Change(max((level for level, _ in steps), default=Level.IGNORE), tuple(sentence for _, sentence in steps))


def _restored(topology: Topology) -> str | None:
    """A running topology's checkpoint has begun: `restore` is about the next one that has not."""
    restore = topology.restore
    return None if restore is None else f"{restore.mode} from {restore.origin}"


def _snapshots(topology: Topology) -> str | None:
    given = topology.snapshots
    return None if given is None else f"{given.schedule} to {given.to}, keep {given.keep or 'all'}"


def _value(level: Level, what: str, old: object, new: object) -> Iterator[_Step]:
    if old != new:
        yield level, f"{what}: {_shown(old)} -> {_shown(new)}"


def _items(
    what: str,
    old: tuple[_Item, ...],
    new: tuple[_Item, ...],
    membership: Level,
    changes: Callable[[str, _Item, _Item], Iterator[_Step]],
) -> Iterator[_Step]:
    before = {item.name: item for item in old}
    after = {item.name: item for item in new}
    for name in before:
        if name not in after:
            yield membership, f"{what} {name} removed"
    for name, item in after.items():
        if name in before:
            yield from changes(f"{what} {name}", before[name], item)
        else:
            yield membership, f"{what} {name} added"


def _source(what: str, old: Source, new: Source) -> Iterator[_Step]:
    for name, before, after in (
        ("format", old.format, new.format),
        ("schema", old.schema, new.schema),
        ("options", old.options, new.options),
        ("select", old.select, new.select),
        ("where", old.where, new.where),
        ("watermark", old.watermark, new.watermark),
    ):
        yield from _value(Level.RESTART, f"{what} {name}", before, after)


def _operator(what: str, old: OperatorSpec, new: OperatorSpec) -> Iterator[_Step]:
    for level, name, before, after in (
        (Level.RESTART, "run", old.run, new.run),
        (Level.RESTART, "with", old.options, new.options),
        (Level.RESTART, "inputs", old.inputs, new.inputs),
        (Level.RESTART, "key", old.grouping.key, new.grouping.key),
        (Level.RESTART, "aggregateEvery", old.aggregate_every, new.aggregate_every),
        (Level.RESTART, "late", old.late, new.late),
        (Level.RESTART, "state", old.state, new.state),
        (Level.SCALE, "parallelism", old.parallelism, new.parallelism),
        (Level.ROUTE, "policy", old.grouping.policy, new.grouping.policy),
        (Level.ROUTE, "grouping options", old.grouping.options, new.grouping.options),
    ):
        yield from _value(level, f"{what} {name}", before, after)


def _sink(what: str, old: Sink, new: Sink) -> Iterator[_Step]:
    yield from _value(Level.RESTART, f"{what} input", old.input, new.input)
    yield from _value(Level.RESTART, f"{what} format", old.format, new.format)
    yield from _value(Level.RESTART, f"{what} options", old.options, new.options)


def _executor_class(what: str, old: ExecutorClass, new: ExecutorClass) -> Iterator[_Step]:
    yield from _value(Level.SCALE, f"{what} replicas", old.replicas, new.replicas)
    yield from _value(Level.RESIZE, f"{what} cpu", format_cpu(old.cpu), format_cpu(new.cpu))
    yield from _value(Level.RESIZE, f"{what} memory", format_memory(old.memory_bytes), format_memory(new.memory_bytes))
    yield from _storage(Level.RESIZE, f"{what} storage", old.storage_bytes, new.storage_bytes)
    yield from _pod(Level.RESIZE, what, old.pod, new.pod)
    yield from _value(Level.IGNORE, f"{what} maxUnavailable", old.max_unavailable, new.max_unavailable)
    yield from _value(Level.IGNORE, f"{what} costPerHour", old.cost_per_hour, new.cost_per_hour)


def _storage(level: Level, what: str, old: int | None, new: int | None) -> Iterator[_Step]:
    yield from _value(level, what, *(None if amount is None else format_memory(amount) for amount in (old, new)))


def _pod(level: Level, what: str, old: PodSettings, new: PodSettings) -> Iterator[_Step]:
    """Names what changed and not the values: an environment variable may be a secret, and this goes into events."""
    for field in POD_FIELDS:
        if getattr(old, field.attribute) != getattr(new, field.attribute):
            yield level, f"{what} pod.{field.name} changed"


def _driver(old: Driver, new: Driver) -> Iterator[_Step]:
    yield from _value(Level.RESTART, "driver cpu", format_cpu(old.cpu), format_cpu(new.cpu))
    yield from _value(Level.RESTART, "driver memory", format_memory(old.memory_bytes), format_memory(new.memory_bytes))
    yield from _storage(Level.RESTART, "driver storage", old.storage_bytes, new.storage_bytes)
    yield from _pod(Level.RESTART, "driver", old.pod, new.pod)


def _spark_conf(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[_Step]:
    """Names alone: this goes into events."""
    for name in sorted(set(old) | set(new)):
        if old.get(name) != new.get(name):
            yield Level.RESTART, f"sparkConf {name} changed"


def _autoscale(old: Autoscale | None, new: Autoscale | None) -> Iterator[_Step]:
    """All but `replicas`, which is a change of its class."""
    if old is None or new is None:
        named_before, named_after = (", ".join(scaled.name for scaled in one.scaled) if one else None for one in (old, new))
        yield from _value(Level.IGNORE, "autoscale", named_before, named_after)
        return
    stabilisation = (format_duration(one.stabilisation_seconds) for one in (old, new))
    yield from _value(Level.IGNORE, "autoscale class", old.executor_class or None, new.executor_class or None)
    yield from _value(Level.IGNORE, "autoscale classes", *(_bounds(one.classes) for one in (old, new)))
    yield from _value(Level.IGNORE, "autoscale by", old.by, new.by)
    yield from _value(Level.IGNORE, "autoscale minReplicas", old.min_replicas, new.min_replicas)
    yield from _value(Level.IGNORE, "autoscale maxReplicas", old.max_replicas, new.max_replicas)
    yield from _value(Level.IGNORE, "autoscale targetUtilisation", old.target_utilisation, new.target_utilisation)
    yield from _value(Level.IGNORE, "autoscale stabilisation", *stabilisation)


def _bounds(classes: tuple[ScaledClass, ...]) -> str | None:
    return ", ".join(f"{one.name} {one.min_replicas} to {one.max_replicas}" for one in classes) or None


def _migration(old: Topology, new: Topology) -> Iterator[_Step]:
    thresholds = format_memory(old.migration.threshold_bytes), format_memory(new.migration.threshold_bytes)
    portions = format_memory(old.migration.portion_bytes), format_memory(new.migration.portion_bytes)
    yield from _value(Level.IGNORE, "migration threshold", *thresholds)
    yield from _value(Level.IGNORE, "migration portion", *portions)
    yield from _value(Level.IGNORE, "migration cpu", format_cpu(old.migration.cpu), format_cpu(new.migration.cpu))
    limits = format_memory(old.migration.memory_bytes), format_memory(new.migration.memory_bytes)
    yield from _value(Level.IGNORE, "migration memory", *limits)
    yield from _storage(Level.IGNORE, "migration storage", old.migration.storage_bytes, new.migration.storage_bytes)


def _rebalance(old: Topology, new: Topology) -> Iterator[_Step]:
    before, after = old.rebalance, new.rebalance
    interval_before, interval_after = format_duration(before.interval_seconds), format_duration(after.interval_seconds)
    yield from _value(Level.ROUTE, "rebalance mode", before.mode, after.mode)
    yield from _value(Level.ROUTE, "rebalance interval", interval_before, interval_after)
    yield from _value(Level.ROUTE, "rebalance tolerance", before.tolerance, after.tolerance)
    yield from _value(Level.ROUTE, "rebalance maxTableEntries", before.max_table_entries, after.max_table_entries)
    yield from _value(Level.ROUTE, "rebalance windowIntervals", before.window_intervals, after.window_intervals)


def _trigger(old: Topology, new: Topology) -> Iterator[_Step]:
    before, after = old.trigger, new.trigger
    interval_before, interval_after = format_duration(before.interval_seconds), format_duration(after.interval_seconds)
    yield from _value(Level.RESTART, "trigger interval", interval_before, interval_after)
    yield from _value(Level.RESTART, "trigger availableNow", before.available_now, after.available_now)
    yield from _value(Level.RESTART, "trigger realTime", before.real_time, after.real_time)
    latency_before, latency_after = _duration_or_none(before.latency_seconds), _duration_or_none(after.latency_seconds)
    yield from _value(Level.ROUTE, "trigger latency", latency_before, latency_after)


def _duration_or_none(seconds: float | None) -> str | None:
    return None if seconds is None else format_duration(seconds)


def _shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_SHOWN else f"{value[:_BEGIN]}... ({len(value):,} characters)"
    if isinstance(value, Input):
        alias = f" as {value.alias}" if value.alias != value.source else ""
        return f"{value.source}{alias}" + (f" key {_shown(value.key)}" if value.key else "")
    if isinstance(value, Watermark):
        durations = (value.delay_seconds, value.idle_seconds, value.max_ahead_seconds)
        delay, idle, ahead = map(format_duration, durations)
        return f"{value.column}, delay {delay}, idleTimeout {idle}, maxAhead {ahead}"
    if isinstance(value, StateRoom):
        return f"disk, memory {format_memory(value.memory_bytes)}" if value.backend == "disk" else value.backend
    if is_mapping(value):
        return "{" + ", ".join(f"{name}: {_shown(item)}" for name, item in value.items()) + "}"
    if is_list(value):
        return "[" + ", ".join(_shown(item) for item in value) + "]"
    return str(value)
