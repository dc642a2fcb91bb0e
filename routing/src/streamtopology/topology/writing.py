"""A topology back to its manifest, which `parse` reads to the same value: every default is written out, but for a
parallelism that follows the executors and pod settings that are empty."""

from __future__ import annotations

from streamtopology.topology.pods import write_pod
from streamtopology.topology.quantities import format_cpu, format_duration, format_memory
from streamtopology.topology.values import (
    API_VERSION,
    KIND,
    Autoscale,
    Driver,
    ExecutorClass,
    Grouping,
    Input,
    Migration,
    OperatorSpec,
    PodSettings,
    Source,
    Topology,
    Trigger,
)


def to_manifest(topology: Topology) -> dict[str, object]:
    """The manifest of the topology, of plain dicts, lists and scalars, ready for YAML or JSON."""
    rebalance = topology.rebalance
    spec: dict[str, object] = {
        "sources": [_source(source) for source in topology.sources],
        "operators": [_operator(operator) for operator in topology.operators],
        "sinks": [
            {"name": sink.name, "input": sink.input, "format": sink.format, "options": dict(sink.options)}
            for sink in topology.sinks
        ],
        "executors": [_executor_class(executor, topology.autoscale) for executor in topology.executors],
        "rebalance": {
            "mode": rebalance.mode,
            "interval": format_duration(rebalance.interval_seconds),
            "tolerance": rebalance.tolerance,
            "maxTableEntries": rebalance.max_table_entries,
            "windowIntervals": rebalance.window_intervals,
        },
        "trigger": _trigger(topology.trigger),
        "onBadTuple": topology.on_bad_tuple,
        "onRemove": topology.on_remove,
        "suspend": topology.suspend,
        "driver": _with_pod(_limits(topology.driver), topology.driver.pod),
        "migration": _migration(topology.migration),
    }
    for name, value in (
        ("checkpoint", topology.checkpoint),
        ("image", topology.image),
        ("imagePullPolicy", topology.image_pull_policy),
    ):
        if value is not None:
            spec[name] = value
    if topology.restore is not None:
        spec["restore"] = {"from": topology.restore.origin, "mode": topology.restore.mode}
    if topology.snapshots is not None:
        kept = {} if topology.snapshots.keep is None else {"keep": topology.snapshots.keep}
        spec["snapshots"] = {"schedule": topology.snapshots.schedule, "to": topology.snapshots.to} | kept
    if topology.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in topology.image_pull_secrets]
    if topology.spark_conf:
        spec["sparkConf"] = dict(topology.spark_conf)
    if topology.autoscale is not None:
        spec["autoscale"] = _autoscale(topology.autoscale)
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": topology.name}, "spec": spec}


def _trigger(trigger: Trigger) -> dict[str, object]:
    given: dict[str, object] = {
        "interval": format_duration(trigger.interval_seconds),
        "availableNow": trigger.available_now,
        "realTime": trigger.real_time,
    }
    if trigger.latency_seconds is not None:
        given["latency"] = format_duration(trigger.latency_seconds)
    return given


def _migration(migration: Migration) -> dict[str, object]:
    return {
        "threshold": format_memory(migration.threshold_bytes),
        "portion": format_memory(migration.portion_bytes),
        "resources": _limits(migration),
    }


def _limits(of: Driver | ExecutorClass | Migration) -> dict[str, object]:
    written: dict[str, object] = {"cpu": format_cpu(of.cpu), "memory": format_memory(of.memory_bytes)}
    return written if of.storage_bytes is None else written | {"storage": format_memory(of.storage_bytes)}


def _source(source: Source) -> dict[str, object]:
    written: dict[str, object] = {"name": source.name, "format": source.format}
    if source.schema is not None:
        written["schema"] = source.schema
    written["options"] = dict(source.options)
    if source.select:
        written["select"] = list(source.select)
    if source.where is not None:
        written["where"] = source.where
    if source.watermark is not None:
        written["watermark"] = {
            "column": source.watermark.column,
            "delay": format_duration(source.watermark.delay_seconds),
            "idleTimeout": format_duration(source.watermark.idle_seconds),
            "maxAhead": format_duration(source.watermark.max_ahead_seconds),
        }
    return written


def _operator(operator: OperatorSpec) -> dict[str, object]:
    written: dict[str, object] = {
        "name": operator.name,
        "inputs": [_input(edge) for edge in operator.inputs],
        "grouping": _grouping(operator.grouping),
        "run": operator.run,
        "with": dict(operator.options),
        "aggregateEvery": operator.aggregate_every,
    }
    if operator.late is not None:
        written["late"] = operator.late
    if operator.state.backend == "disk":
        written["state"] = {"backend": "disk", "memory": format_memory(operator.state.memory_bytes)}
    if not operator.follows_executors:
        written["parallelism"] = operator.parallelism
    return written


def _executor_class(executor: ExecutorClass, autoscale: Autoscale | None) -> dict[str, object]:
    written: dict[str, object] = {"name": executor.name}
    if autoscale is None or executor.name not in autoscale.start:
        written["replicas"] = executor.replicas
    if executor.max_unavailable is not None:
        written["maxUnavailable"] = executor.max_unavailable
    if executor.cost_per_hour is not None:
        written["costPerHour"] = executor.cost_per_hour
    return _with_pod(written | _limits(executor), executor.pod)


def _with_pod(written: dict[str, object], pod: PodSettings) -> dict[str, object]:
    settings = write_pod(pod)
    return written | {"pod": settings} if settings else written


def _autoscale(autoscale: Autoscale) -> dict[str, object]:
    return {
        **_scaled(autoscale),
        "by": autoscale.by,
        "targetUtilisation": autoscale.target_utilisation,
        "stabilisation": format_duration(autoscale.stabilisation_seconds),
    }


def _scaled(autoscale: Autoscale) -> dict[str, object]:
    """The scaled classes, and their bounds."""
    if autoscale.classes:
        return {
            "classes": [
                {"name": one.name, "minReplicas": one.min_replicas, "maxReplicas": one.max_replicas}
                for one in autoscale.classes
            ]
        }
    return {
        "class": autoscale.executor_class,
        "replicas": autoscale.replicas,
        "minReplicas": autoscale.min_replicas,
        "maxReplicas": autoscale.max_replicas,
    }


def _input(edge: Input) -> dict[str, object]:
    written: dict[str, object] = {"from": edge.source, "as": edge.alias}
    if edge.key:
        written["key"] = list(edge.key)
    return written


def _grouping(grouping: Grouping) -> dict[str, object]:
    written: dict[str, object] = {"policy": grouping.policy}
    if grouping.key:
        written["key"] = list(grouping.key)
    if grouping.options:
        written["options"] = dict(grouping.options)
    return written
