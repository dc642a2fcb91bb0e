"""Publication of committed outputs to the sinks: only after the commit record, and again after each restart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import pyarrow as pa

from streamtopology.jobs.checkpoint import Checkpoint, CheckpointError, CommitRecord
from streamtopology.jobs.connectors.sinks import Sink, SinkError, Writer, open_sink
from streamtopology.jobs.connectors.sinks.dead_letters import DEAD_LETTERS, DeadLetters
from streamtopology.jobs.failpoints import passing
from streamtopology.topology import Topology

_CANNOT_TAKE = (SinkError, OSError, pa.ArrowException, ValueError, TypeError, LookupError)


class Publisher:
    """Publishes the files that a commit names. Each sink makes a batch visible once, however often it is published."""

    def __init__(self, checkpoint: Checkpoint, sinks: Mapping[str, Sink]) -> None:
        self._checkpoint = checkpoint
        self._sinks = dict(sinks)
        self._notes: set[str] | None = None  # of any batch and sink; None: not looked for yet

    @staticmethod
    def of(checkpoint: Checkpoint, topology: Topology) -> Publisher:
        """The publisher to the sinks of `topology`, and to the dead letters if it sets tuples aside. Raises SinkError."""
        writer = Writer(topology.name, checkpoint.run)
        sinks: dict[str, Sink] = {}
        for sink in topology.sinks:
            with _named(sink.name, "cannot be opened"):
                sinks[sink.name] = open_sink(sink, writer)
        if topology.on_bad_tuple == "deadLetter":
            sinks[DEAD_LETTERS] = DeadLetters(checkpoint.keep)
        return Publisher(checkpoint, sinks)

    def publish(self, commit: CommitRecord) -> None:
        """Publish a batch to each sink, but for those that it was exported for. Raises SinkError, which names the ways out.

        The other sinks get the batch first: one that fails for good holds nobody else up.
        """
        if self._notes is None:  # later ones are of this process: nobody exports while a topology runs
            self._notes = self._checkpoint.publications.known()
            self._refuse_lost_sinks(commit)
        failure: SinkError | None = None
        for name, sink in self._sinks.items():
            try:
                self._publish(commit, name, sink)
            except SinkError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _publish(self, commit: CommitRecord, name: str, sink: Sink) -> None:
        publications = self._checkpoint.publications
        if self._notes and publications.exported_to(name, commit.batch) is not None:
            return
        try:
            with self._checkpoint.at_hand(commit.outputs.get(name, ())) as staged, _named(name, "cannot take a batch"):
                passing("sink.publishing")
                sink.publish(commit.batch, staged)
                passing("sink.published")
        except SinkError as error:
            with suppress(CheckpointError):  # the disk may be full for both
                publications.failed(name, commit.batch, str(error))
                self._notes = {*(self._notes or ()), name}
            raise SinkError(_with_ways_out(error, name, commit.batch)) from error
        if self._notes and publications.has_failed(name, commit.batch):
            publications.published(name, commit.batch)

    def _refuse_lost_sinks(self, commit: CommitRecord) -> None:
        """Refuse a manifest without a sink that could not take the newest batch: its rows would be lost."""
        for name in self._checkpoint.publications.waiting(commit.batch) if self._notes else ():
            if name not in self._sinks:
                raise SinkError(
                    f"sink {name!r} is not in the manifest any more, and batch {commit.batch} is committed for it and not "
                    "published: put it back, or move its rows to a folder with `streamtopology state export-batch MANIFEST "
                    f"--sink {name} --to FOLDER`"
                )

    def close(self) -> None:
        for sink in self._sinks.values():
            sink.close()


@contextmanager
def _named(sink: str, what: str) -> Iterator[None]:
    """Raise whatever a sink cannot go past as a SinkError that names it."""
    try:
        yield
    except (SinkError, BrokenPipeError):  # what reads our output has left: the command ends without a word
        raise
    except _CANNOT_TAKE as error:
        raise SinkError(f"sink {sink!r} {what}: {error}") from error


def _with_ways_out(error: SinkError, sink: str, batch: int) -> str:
    return (
        f"{error}. Batch {batch} is committed, and its rows for the sink wait in the checkpoint: correct the cause, or give "
        "the sink another place in the manifest, and start again, which publishes them; or start again after `streamtopology "
        f"state export-batch MANIFEST --sink {sink} --to FOLDER`, which moves them to a folder instead"
    )
