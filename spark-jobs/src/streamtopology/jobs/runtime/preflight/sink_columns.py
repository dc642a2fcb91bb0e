"""The columns that operators give to sinks, held against what each sink can write, before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from streamtopology.jobs.connectors.sinks.formats import unread_columns
from streamtopology.jobs.connectors.sinks.registry import check, in_messages, takes
from streamtopology.jobs.plan.dag import Dag
from streamtopology.topology import Doubt, ManifestError, Problem, Sink, Topology


def refuse_unwritable_columns(topology: Topology, dag: Dag, base_dir: Path) -> None:
    """Raise ManifestError for columns that a sink cannot write."""
    problems = [finding for finding in sink_columns(topology, dag, base_dir) if not isinstance(finding, Doubt)]
    if problems:
        raise ManifestError(problems)


def sink_columns(topology: Topology, dag: Dag, base_dir: Path) -> Iterator[Problem]:
    """A problem for each column that a sink cannot write, a doubt for each that its readers may not find."""
    for index, sink in enumerate(topology.sinks):
        schema = _rows_of(sink, topology, dag)
        if schema is not None and not check(sink, base_dir):
            path = f"spec.sinks[{index}].input"
            for sentence in takes(sink, schema).refusals(schema):
                yield Problem(path, f"{in_messages(sink)} {sentence}")
            for sentence in unread_columns(sink, schema):
                yield Doubt(path, f"{in_messages(sink)} {sentence}")


def rows_of_sinks(topology: Topology, dag: Dag) -> dict[str, pa.Schema]:
    """By sink the columns of its rows, where they are known."""
    rows = {sink.name: _rows_of(sink, topology, dag) for sink in topology.sinks}
    return {name: schema for name, schema in rows.items() if schema is not None}


def _rows_of(sink: Sink, topology: Topology, dag: Dag) -> pa.Schema | None:
    """The rows that the sink gets; None if its operator emits none, or is of a source whose rows only Spark knows."""
    node = next((node for node in dag.nodes if node.name == sink.input), None)
    if node is None:
        return None
    return node.make().late_schema if topology.operator(sink.input).late == sink.name else node.output
