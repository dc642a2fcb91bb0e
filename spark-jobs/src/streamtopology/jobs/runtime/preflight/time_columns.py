"""A look at the event times of windows that are read from other columns than watermarks: their numbers are epoch seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pyarrow as pa

from streamtopology.jobs.connectors.sources.descriptors import SourceSpec
from streamtopology.jobs.connectors.sources.sample import check_event_times
from streamtopology.topology import OperatorSpec, Problem, Source, Topology

_WINDOWED = ("window-aggregate", "window-join")


def time_problems(topology: Topology, rows: Mapping[str, pa.Schema]) -> Iterator[Problem]:
    """The findings about numbers in the option `time` of windowed operators that read sources of files.

    `rows`: of each source. The column of a source's own watermark is not looked at again.
    """
    sources = {source.name: source for source in topology.sources if source.name in rows and "path" in source.options}
    for operator in topology.operators:
        for source, column in _times(operator, sources) if operator.run in _WINDOWED else ():
            looked_at = source.watermark is not None and source.watermark.column == column
            if not looked_at and _is_number(rows[source.name], column):
                for finding in check_event_times(SourceSpec.of(source), column):
                    yield replace(finding, path=f"{operator.path}.with.time")


def _times(operator: OperatorSpec, sources: Mapping[str, Source]) -> Iterator[tuple[Source, str]]:
    """The sources that the operator reads, each with its column of event time."""
    time = operator.options.get("time")
    for edge in operator.inputs:
        column = time.get(edge.alias) if isinstance(time, Mapping) else time
        if edge.source in sources and isinstance(column, str):
            yield sources[edge.source], column


def _is_number(schema: pa.Schema, column: str) -> bool:
    if column not in schema.names:
        return False
    kind = schema.field(column).type
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)
