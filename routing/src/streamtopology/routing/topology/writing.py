"""A topology back to its manifest: complete, with every default written out, and `parse` reads it to the same value."""

from __future__ import annotations

from streamtopology.routing.topology.quantities import format_cpu, format_duration, format_memory
from streamtopology.routing.topology.values import API_VERSION, KIND, Grouping, Input, Operator, Source, Topology


def to_manifest(topology: Topology) -> dict[str, object]:
    """The manifest of the topology, of plain dicts, lists and scalars, ready for YAML or JSON."""
    rebalance, trigger = topology.rebalance, topology.trigger
    spec: dict[str, object] = {
        "sources": [_source(source) for source in topology.sources],
        "operators": [_operator(operator) for operator in topology.operators],
        "sinks": [
            {"name": sink.name, "input": sink.input, "format": sink.format, "options": dict(sink.options)}
            for sink in topology.sinks
        ],
        "executors": [
            {
                "name": executor.name,
                "replicas": executor.replicas,
                "cpu": format_cpu(executor.cpu),
                "memory": format_memory(executor.memory_bytes),
            }
            for executor in topology.executors
        ],
        "rebalance": {
            "mode": rebalance.mode,
            "interval": format_duration(rebalance.interval_seconds),
            "tolerance": rebalance.tolerance,
            "maxTableEntries": rebalance.max_table_entries,
            "windowIntervals": rebalance.window_intervals,
        },
        "trigger": {"interval": format_duration(trigger.interval_seconds), "availableNow": trigger.available_now},
        "onBadTuple": topology.on_bad_tuple,
    }
    if topology.checkpoint is not None:
        spec["checkpoint"] = topology.checkpoint
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": topology.name}, "spec": spec}


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
        }
    return written


def _operator(operator: Operator) -> dict[str, object]:
    return {
        "name": operator.name,
        "inputs": [_input(edge) for edge in operator.inputs],
        "parallelism": operator.parallelism,
        "grouping": _grouping(operator.grouping),
        "run": operator.run,
        "with": dict(operator.options),
        "aggregateEvery": operator.aggregate_every,
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
