"""Epochs that move much state: prepared, then copied ahead by another process, then ready.

While an epoch is prepared, batches run on under the one before. Whatever becomes of the copying process, the epoch runs in
the end: with its copy, or, when that cannot be had, with a first batch that moves all state itself.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from streamtopology.jobs.batch import Plan
from streamtopology.jobs.checkpoint import Checkpoint, Lease
from streamtopology.jobs.migrate import sources_of
from streamtopology.jobs.portions import moving, portions_for
from streamtopology.jobs.state import KeyedStateSchema

MOST_STARTS = 4
LONGEST_COPY_SECONDS = 900.0


class Copier(Protocol):
    """A copying process at work."""

    def failure(self) -> str | None:
        """None while it runs or when it is done; else what it said last."""
        ...

    def stop(self) -> None: ...


@dataclass
class Preparing:
    """One epoch at a time. `start` begins copying for an epoch; None where someone else does (the operator's Job)."""

    checkpoint: Checkpoint
    start: Callable[[str, int], Copier] | None
    tell: Callable[[str], None]
    clock: Callable[[], float]
    _epoch: int | None = None
    _began_at: float = 0.0
    _starts: int = 0
    _parts: int = 0
    _parts_told: int = 0
    _copier: Copier | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def is_large(self, before: Plan, plan: Plan) -> bool:
        """Whether `plan` moves so much state that it shall be copied ahead, by the manifest's threshold."""
        commit = self.checkpoint.last_commit()
        return commit is not None and moving(before, plan, commit, KeyedStateSchema) > plan.topology.migration.threshold_bytes

    def begin(self, before: Plan, plan: Plan) -> bool:
        """Hold the newest commit for the epoch of `plan` and start copying.

        False when that commit is not of `before`, or state still moves to where `before` has it: a copy would be overtaken.
        """
        commit = self.checkpoint.last_commit()
        if commit is None or commit.epoch != before.epoch.number or commit.switch is not None:
            return False
        with self._lock:
            portions = portions_for(before, plan, commit)
            lease = self.checkpoint.migrations.take(Lease(plan.epoch.number, commit.batch, before.epoch.number, portions))
            self._epoch, self._began_at, self._starts = lease.epoch, self.clock(), 0
            self._parts, self._parts_told = len(sources_of(plan, commit)), 0
            self.tell(f"epoch {lease.epoch} is prepared: what it moves is copied ahead, as of batch {lease.batch}")
            self._start_copying()
        return True

    def is_over(self) -> bool:
        """Whether the epoch may run now: all is copied, or copying it has failed for good."""
        with self._lock:
            if self._epoch is None:
                return True
            copied = self.checkpoint.migrations.copied(self._epoch)
            if copied is not None:
                keys, size = sum(part.keys for part in copied.parts), sum(part.bytes for part in copied.parts)
                seconds = self.clock() - self._began_at
                self.tell(f"epoch {self._epoch}: {keys:,} keys, {size:,} bytes are copied ahead, in {seconds:.1f} s")
                self._end()
                return True
            self._tell_progress(self._epoch)
            return self._has_failed_for_good()

    def give_up(self) -> None:
        """The epoch will not run: its copy ends and leaves nothing."""
        with self._lock:
            if self._epoch is not None:
                epoch = self._epoch
                self._end()
                self.checkpoint.migrations.release(epoch)

    def close(self) -> None:
        """This process ends: so does copying. The next one decides anew."""
        with self._lock:
            self._end()

    def _tell_progress(self, epoch: int) -> None:
        done = self.checkpoint.migrations.parts_done(epoch)
        if done > self._parts_told:
            self._parts_told = done
            self.tell(f"epoch {epoch}: what leaves {done} of {self._parts} instances is copied ahead")

    def _has_failed_for_good(self) -> bool:
        failure = self._copier.failure() if self._copier else None
        if self.clock() - self._began_at > LONGEST_COPY_SECONDS:
            failure, self._starts = f"not done after {LONGEST_COPY_SECONDS:.0f} s", MOST_STARTS
        if failure is None:
            return False
        self.tell(f"epoch {self._epoch}: copying ahead failed: {failure}")
        if self._starts < MOST_STARTS:
            self._start_copying()
            return False
        self.tell(f"epoch {self._epoch} runs without a copy: its first batch moves all state and takes longer")
        self.give_up()
        return True

    def _start_copying(self) -> None:
        if self.start is not None and self._epoch is not None:
            self._starts += 1
            self._copier = self.start(self.checkpoint.uri, self._epoch)

    def _end(self) -> None:
        if self._copier is not None:
            self._copier.stop()
        self._epoch, self._copier = None, None


class CopyProcess:
    """`python -m streamtopology.jobs.migrate` on this machine; it ends with us, however we end."""

    def __init__(self, uri: str, epoch: int) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        command = [sys.executable, "-m", "streamtopology.jobs.migrate", "--checkpoint", uri, "--epoch", str(epoch)]
        self.process = subprocess.Popen(
            [*command, "--while-stdin-is-open"], stdin=subprocess.PIPE, stdout=self._said, stderr=self._said
        )

    def failure(self) -> str | None:
        code = self.process.poll()
        if code in (None, 0):
            return None
        self._said.seek(0)
        said = self._said.read().decode(errors="replace").splitlines()
        return f"the process ended with code {code}: {' / '.join(said[-3:]) or 'it said nothing'}"

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()
        self._said.close()
