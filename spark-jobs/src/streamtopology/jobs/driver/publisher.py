"""Publication of committed outputs to the sinks: only after the commit record, and again after each restart."""

from __future__ import annotations

from collections.abc import Mapping

from streamtopology.jobs.checkpoint import Checkpoint, CommitRecord
from streamtopology.jobs.connectors.sinks import Sink, Writer, open_sink
from streamtopology.jobs.connectors.sinks.dead_letters import DEAD_LETTERS, DeadLetters
from streamtopology.jobs.failpoints import passing
from streamtopology.topology import Topology


class Publisher:
    """Publishes the files that a commit names. Each sink makes a batch visible once, however often it is published."""

    def __init__(self, checkpoint: Checkpoint, sinks: Mapping[str, Sink]) -> None:
        self._checkpoint = checkpoint
        self._sinks = dict(sinks)

    @staticmethod
    def of(checkpoint: Checkpoint, topology: Topology) -> Publisher:
        """The publisher to the sinks of `topology`, and to the dead letters if it sets tuples aside."""
        writer = Writer(topology.name, checkpoint.run)
        sinks: dict[str, Sink] = {sink.name: open_sink(sink, writer) for sink in topology.sinks}
        if topology.on_bad_tuple == "deadLetter":
            sinks[DEAD_LETTERS] = DeadLetters(checkpoint.keep)
        return Publisher(checkpoint, sinks)

    def publish(self, commit: CommitRecord) -> None:
        for name, sink in self._sinks.items():
            with self._checkpoint.at_hand(commit.outputs.get(name, ())) as staged:
                passing("sink.publishing")
                sink.publish(commit.batch, staged)
                passing("sink.published")

    def close(self) -> None:
        for sink in self._sinks.values():
            sink.close()
