"""Sinks of a topology's rows: `check` a sink of the manifest, `open_sink` it, `publish` a committed batch."""

from streamtopology.jobs.connectors.sinks.base import BatchSink, SinkError, Writer, WrittenOutput
from streamtopology.jobs.connectors.sinks.memory import memory_rows
from streamtopology.jobs.connectors.sinks.registry import check, destination, open_sink, written, written_batch

__all__ = [
    "BatchSink",
    "SinkError",
    "Writer",
    "WrittenOutput",
    "check",
    "destination",
    "memory_rows",
    "open_sink",
    "written",
    "written_batch",
]
