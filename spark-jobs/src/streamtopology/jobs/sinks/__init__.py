"""Where a topology's rows go: `check` a sink of the manifest, `open_sink` it, `publish` a committed batch."""

from streamtopology.jobs.sinks.base import Sink, SinkError, Writer, stage
from streamtopology.jobs.sinks.memory import memory_rows
from streamtopology.jobs.sinks.registry import check, open_sink

__all__ = ["Sink", "SinkError", "Writer", "check", "memory_rows", "open_sink", "stage"]
