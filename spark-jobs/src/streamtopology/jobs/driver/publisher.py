"""Publication of committed outputs to the sinks: only after the commit record, and again after each restart.

A sink and the checkpoint cannot commit together. If the sink came first, a lost attempt would leave rows that nobody
can take back. So the commit record comes first, and the driver may die before it publishes. The next start therefore
publishes the last commit again, and each sink makes a batch visible once, by its number, however often it gets it.

After the commit nothing can be refused any more. So rows are proved against the sink's format before it, and a sink that
still fails leaves a note (`checkpoint.publications`), from which the user decides.
"""

# pyarrow has no types.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pyarrow as pa

from streamtopology.jobs.checkpoint import Checkpoint, CheckpointError, CommitRecord
from streamtopology.jobs.connectors.sinks import BatchSink, SinkError, Writer, open_sink, written_batch
from streamtopology.jobs.connectors.sinks.dead_letters import DEAD_LETTERS, DeadLetters
from streamtopology.jobs.failpoints import passing
from streamtopology.topology import Sink, Topology

_UNKNOWN: Mapping[str, pa.Schema] = {}
_CANNOT_TAKE = (SinkError, OSError, pa.ArrowException, ValueError, TypeError, LookupError)
# Options that name a place; what console and memory have ends with a run.
_LASTING = frozenset({"path", "table", "topic", "run", "writer"})


class Publisher:
    """Publishes the files that a commit names. Each sink makes a batch visible once, however often it is published."""

    def __init__(self, checkpoint: Checkpoint, sinks: Mapping[str, BatchSink], opened: Callable[[Sink], BatchSink]) -> None:
        self._checkpoint = checkpoint
        self._sinks = dict(sinks)
        self._opened = opened
        self._has_notes = False  # on any batch and sink
        self._complete: CommitRecord | None = None

    @staticmethod
    def of(checkpoint: Checkpoint, topology: Topology, base_dir: Path, rows: Mapping[str, pa.Schema] = _UNKNOWN) -> Publisher:
        """The publisher to a topology's sinks, its manifest in `base_dir`, and to the dead letters. Raises SinkError.

        rows: by sink the columns of its rows, where they are known.
        """
        writer = Writer(topology.name, checkpoint.run)

        def opened(sink: Sink) -> BatchSink:
            with _named(sink.name, "cannot be opened"):
                return open_sink(sink, writer, base_dir=base_dir, rows=rows.get(sink.name))

        sinks = {sink.name: opened(sink) for sink in topology.sinks}
        return Publisher(checkpoint, {**sinks, DEAD_LETTERS: DeadLetters(checkpoint.keep)}, opened)

    def publish_again(self, commit: CommitRecord, former: Topology) -> None:
        """Publish the newest commit of a previous run, made under `former`, which may have been killed before it did.

        Sinks that the manifest has lost since get it, too: no later run knows of them. Those whose place has it do not, also if
        the manifest has given them another one, or if the folder was moved away. Raises SinkError.
        """
        publications = self._checkpoint.publications
        self._has_notes = publications.are_noted()  # later ones are of this process: nobody exports while a topology runs
        is_complete = publications.is_complete(commit.batch, commit.attempt)
        if not is_complete:
            for sink in former.sinks:
                if sink.name not in self._sinks and commit.outputs.get(sink.name):
                    self._publish_to_lost(commit, sink)
        self.publish(commit, {sink.name for sink in former.sinks if self._has_batch(sink, commit, is_complete)})

    def publish(self, commit: CommitRecord, but_for: Collection[str] = ()) -> None:
        """Publish a batch to each sink, but for those that it was exported for. Raises SinkError, which names the ways out.

        The other sinks get the batch first: one that fails for good holds nobody else up.
        """
        failures: dict[str, SinkError] = {}
        for name, sink in ((name, sink) for name, sink in self._sinks.items() if name not in but_for):
            try:
                self._publish(commit, name, sink)
            except SinkError as error:
                failures[name] = error
        self._complete = None if failures else commit
        if failures:
            name, error = next(iter(failures.items()))
            raise SinkError(_with_ways_out(error, name, commit.batch)) from error

    def _has_batch(self, sink: Sink, commit: CommitRecord, is_complete: bool) -> bool:
        """True if the place that a sink had is known to have the batch, or it was exported. Raises SinkError if none can."""
        publications = self._checkpoint.publications
        if self._has_notes and publications.exported_to(sink.name, commit.batch) is not None:
            return True
        if is_complete:
            return not _LASTING.isdisjoint(sink.options)
        writer = Writer(self._checkpoint.topology, self._checkpoint.run)
        try:
            return written_batch(sink, writer, commit.batch, commit.end_digest) is not None
        except OSError:  # a folder that is gone or cannot be read says nothing
            return False
        except SinkError as error:
            if self._has_notes and publications.has_failed(sink.name, commit.batch):
                return False
            raise SinkError(
                f"{error}. This place of the former run may have batch {commit.batch}, or not, so it must be asked; or start "
                f"again after `streamtopology state export-batch MANIFEST --sink {sink.name} --to FOLDER`, which moves the "
                "batch to a folder instead"
            ) from error

    def _publish_to_lost(self, commit: CommitRecord, spec: Sink) -> None:
        try:
            with closing(self._opened(spec)) as sink:
                self._publish(commit, spec.name, sink)
        except SinkError as error:
            raise SinkError(
                f"sink {spec.name!r} is not in the manifest any more, and batch {commit.batch} is committed for it and may not "
                f"be published: {error}. Put it back, or move its rows to a folder with `streamtopology state export-batch "
                f"MANIFEST --sink {spec.name} --to FOLDER`"
            ) from error

    def _publish(self, commit: CommitRecord, name: str, sink: BatchSink) -> None:
        publications = self._checkpoint.publications
        if self._has_notes and publications.exported_to(name, commit.batch) is not None:
            return
        try:
            with self._checkpoint.at_hand(commit.outputs.get(name, ())) as staged, _named(name, "cannot take a batch"):
                passing("sink.publishing")
                sink.publish(commit.batch, staged, commit.end_digest)
                passing("sink.published")
        except SinkError as error:
            with suppress(CheckpointError):  # the disk may be full for both
                publications.failed(name, commit.batch, str(error))
                self._has_notes = True
            raise
        if self._has_notes and publications.has_failed(name, commit.batch):
            publications.published(name, commit.batch)

    def close(self) -> None:
        """Close all sinks, and note that each has the newest batch, if that is so: those that leave need not be asked again."""
        for sink in self._sinks.values():
            sink.close()
        if self._complete is not None:
            self._checkpoint.publications.complete(self._complete.batch, self._complete.attempt)


@contextmanager
def _named(sink: str, what: str) -> Generator[None]:
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
