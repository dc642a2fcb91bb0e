"""Fault switches: places where a process kills itself, named after the steps of a batch and of a re-routing.

Off unless the environment says otherwise:

    STREAMTOPOLOGY_CRASH_AT=commit.written          at the first passage
    STREAMTOPOLOGY_CRASH_AT=commit.written:3        at the third in this process
    STREAMTOPOLOGY_CRASH_AT=commit.written:3@/x/y   once only: the file is made before the death, and none dies where it is

It dies by SIGKILL, as from outside: nothing is flushed, nothing is cleaned up. Every point is hit by a test
(tests/jobs/test_crash_points.py, test_kafka.py, test_lookup_tables.py and test_partitioned_sinks.py there).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from streamtopology.contract.errors import UnknownFailpoint

VARIABLE = "STREAMTOPOLOGY_CRASH_AT"

POINTS: Mapping[str, str] = {
    "epoch.writing": "an epoch is decided and nowhere written",
    "epoch.written": "an epoch is in the checkpoint, and nobody runs under it",
    "batch.recording": "a batch is about to be recorded",
    "batch.recorded": "a batch is recorded, its epoch active, no work begun",
    "state.writing": "an instance is about to write its delta",
    "state.written": "an instance's delta is written, and no record names it",
    "output.staging": "an instance is about to stage rows for a sink",
    "output.staged": "rows for a sink are staged, and no record names them",
    "table.writing": "a version of a table to look up in is about to be kept",
    "table.written": "a version of a table is kept, and no record names it",
    "commit.writing": "all work of a batch is done and not committed",
    "commit.written": "a batch is committed and not published",
    "file.drafted": "a record's or snapshot's draft is complete and has no name yet",
    "file.linked": "a record or snapshot has its name, its draft is still there",
    "sink.publishing": "a sink is about to be given a committed batch",
    "sink.placing": "one of a batch's files is in place, and others are not yet",
    "sink.placed": "a folder sink's file is in place, and its manifest does not know it",
    "sink.published": "a sink has a batch, others may not have it yet",
    "kafka.sent": "a transaction holds the rows and not yet the batch's number",
    "kafka.marked": "a transaction holds the rows and the batch's number, uncommitted",
    "kafka.committed": "a transaction is committed, and the driver does not know",
    "lease.writing": "an epoch's state is about to be pre-copied",
    "lease.written": "an epoch holds a version, and no one copies it yet",
    "copy.writing": "the migration process is about to write what moves between two instances",
    "copy.written": "a copy is written, and not noted",
    "copy.noted": "all that leaves one instance is copied and noted",
    "copy.finishing": "everything is copied, and the driver does not know",
    "copy.finished": "everything is copied, and the driver may switch",
    "lease.releasing": "the epoch's first batch is committed, its lease still there",
    "lease.released": "the lease is gone, what was noted of the copy is still there",
    "snapshot.writing": "a snapshot is about to be written",
    "snapshot.written": "a snapshot is written, and no commit names it",
    "garbage.deleting": "a file that no one needs is about to be deleted",
}


@dataclass
class Switch:
    """Dies at the `nth` passage of `point`; with `once`, only when that file can be made first."""

    point: str
    nth: int
    once: Path | None
    passed: int = 0

    @staticmethod
    def parse(text: str) -> Switch:
        """The value of the environment's variable, see the module. Raises UnknownFailpoint."""
        where, _, once = text.partition("@")
        point, _, nth = where.partition(":")
        if point not in POINTS or not (nth or "1").isdigit():
            raise UnknownFailpoint(f"{VARIABLE}={text}: NAME[:N][@FILE] with one of the names {', '.join(POINTS)}")
        return Switch(point, int(nth or 1), Path(once) if once else None)

    def at(self, point: str) -> None:
        if point != self.point:
            return
        self.passed += 1
        if self.passed == self.nth and (self.once is None or _make(self.once)):
            os.kill(os.getpid(), signal.SIGKILL)


def _make(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


_at: Callable[[str], None] | None = Switch.parse(os.environ[VARIABLE]).at if VARIABLE in os.environ else None


def arm(text: str | None) -> None:
    """Set the switch of this process, as the environment would have at its start; None takes it off."""
    watch(None if text is None else Switch.parse(text).at)


def watch(at: Callable[[str], None] | None) -> None:
    """Call `at` with the name of each point that this process passes, in place of any switch; None: nothing."""
    global _at
    _at = at


def passing(point: str) -> None:
    """This process is at `point` of POINTS; when the switch is set for it, it goes no further."""
    if _at is not None:
        _at(point)
