"""Sinks of a topology's rows: `check` a sink of the manifest, `open_sink` it, `publish` a committed batch."""

from streamtopology.jobs.connectors.sinks.base import Sink, SinkError, Writer, Written
from streamtopology.jobs.connectors.sinks.memory import memory_rows
from streamtopology.jobs.connectors.sinks.registry import check, destination, open_sink, written, written_batch

__all__ = [
    "Sink",
    "SinkError",
    "Writer",
    "Written",
    "check",
    "destination",
    "memory_rows",
    "open_sink",
    "written",
    "written_batch",
]
