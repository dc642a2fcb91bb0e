"""From committed outputs to the sinks: after the commit record, never before, and as often as a restart asks for."""

from __future__ import annotations

from collections.abc import Mapping

from streamtopology.jobs.checkpoint import Checkpoint, CommitRecord
from streamtopology.jobs.crashpoints import passing
from streamtopology.jobs.sinks import Sink

DEAD_LETTERS = ""  # the name under which a commit record lists tuples that were set aside; no sink can be called that


class Publisher:
    """Publishes the files that a commit names. Each sink makes a batch visible once, however often it is asked."""

    def __init__(self, checkpoint: Checkpoint, sinks: Mapping[str, Sink]) -> None:
        self._checkpoint = checkpoint
        self._sinks = dict(sinks)

    def publish(self, commit: CommitRecord) -> None:
        for name, sink in self._sinks.items():
            staged = [self._checkpoint.local_path(path) for path in commit.outputs.get(name, ())]
            passing("sink.publishing")
            sink.publish(commit.batch, staged)
            passing("sink.published")

    def close(self) -> None:
        for sink in self._sinks.values():
            sink.close()
