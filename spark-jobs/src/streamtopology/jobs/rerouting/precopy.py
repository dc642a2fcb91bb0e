"""Pre-copy: an epoch that moves much state is prepared, then another process copies the state, then the epoch is ready.

Beyond some size even portions would slow many batches. State files are immutable, so another process can copy them as of
one commit while batches continue. The epoch's first batch then hands over only what changed since that commit.

While an epoch is prepared, batches run under the previous one. Whatever happens to the copying process, the epoch runs in
the end: with its pre-copy or, if that failed, with batches that move all state themselves. Only the operator, whose Job
copies on Kubernetes, may withdraw it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from streamtopology.contract.pods import PRECOPY_SECONDS
from streamtopology.jobs.checkpoint import Checkpoint, Lease
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.rerouting.gradual import portions_for
from streamtopology.jobs.rerouting.movement import leaving_instances, moving_state_bytes
from streamtopology.jobs.state import KeyedStateSchema

MOST_STARTS = 4
LONGEST_COPY_SECONDS = 900.0
# By then the operator's Job has ended, and the operator has withdrawn the epoch or let it run, if there still is one.
LONGEST_JOB_SECONDS = PRECOPY_SECONDS + 900.0


class PrecopyJob(Protocol):
    """A running pre-copy process."""

    def failure(self) -> str | None:
        """Return None while it runs or when it is done, else its last lines."""
        ...

    def stop(self) -> None: ...


@dataclass
class Precopy:
    """The pre-copy of one epoch at a time. `start` starts a process for an epoch; None if the operator's Job copies."""

    checkpoint: Checkpoint
    start: Callable[[str, int], PrecopyJob] | None
    notify: Callable[[str], None]
    clock: Callable[[], float]
    _epoch: int | None = None
    _began_at: float = 0.0
    _starts: int = 0
    _parts: int = 0
    _parts_shown: int = 0
    _job: PrecopyJob | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def is_large(self, before: ExecutionPlan, plan: ExecutionPlan) -> bool:
        """True if `plan` moves more state than the manifest's threshold for a pre-copy."""
        commit = self.checkpoint.last_commit()
        return (
            commit is not None
            and moving_state_bytes(before, plan, commit, KeyedStateSchema) > plan.topology.migration.threshold_bytes
        )

    def begin(self, before: ExecutionPlan, plan: ExecutionPlan) -> bool:
        """Hold the newest commit for the epoch of `plan` and start copying.

        Returns False if that commit is not of `before`, or the switch to `before` still moves state: the copy would be stale.
        """
        commit = self.checkpoint.last_commit()
        if commit is None or commit.epoch != before.epoch.number or commit.switch is not None:
            return False
        with self._lock:
            portions = portions_for(before, plan, commit)
            lease = self.checkpoint.precopies.take(Lease(plan.epoch.number, commit.batch, before.epoch.number, portions))
            self._epoch, self._began_at, self._starts = lease.epoch, self.clock(), 0
            self._parts, self._parts_shown = len(leaving_instances(plan, commit)), 0
            self.notify(f"epoch {lease.epoch} is prepared: the state that it moves is pre-copied as of batch {lease.batch}")
            self._start_copying()
        return True

    def poll(self) -> bool:
        """Advance the pre-copy: True once the epoch may run, with all copied, or after the last failed start."""
        with self._lock:
            if self._epoch is None:
                return True
            copied = self.checkpoint.precopies.copied(self._epoch)
            if copied is not None:
                keys, size = sum(part.keys for part in copied.parts), sum(part.bytes for part in copied.parts)
                seconds = self.clock() - self._began_at
                self.notify(f"epoch {self._epoch}: {keys:,} keys, {size:,} bytes are pre-copied, in {seconds:.1f} s")
                self._end()
                return True
            self._show_progress(self._epoch)
            return self._retry_or_give_up()

    def give_up(self) -> None:
        """End the pre-copy of an epoch that will not run, and remove its files."""
        with self._lock:
            if self._epoch is not None:
                epoch = self._epoch
                self._end()
                self.checkpoint.precopies.release(epoch)

    def close(self) -> None:
        """Stop copying as this process ends. The next one decides again."""
        with self._lock:
            self._end()

    def _show_progress(self, epoch: int) -> None:
        done = self.checkpoint.precopies.parts_done(epoch)
        if done > self._parts_shown:
            self._parts_shown = done
            self.notify(f"epoch {epoch}: {done} of {self._parts} instances are pre-copied")

    def _retry_or_give_up(self) -> bool:
        """Start a failed process again; True once it was given up."""
        failure = self._job.failure() if self._job else None
        longest = LONGEST_COPY_SECONDS if self.start is not None else LONGEST_JOB_SECONDS
        if self.clock() - self._began_at > longest:
            failure, self._starts = f"not done after {longest:.0f} s", MOST_STARTS
        if failure is None:
            return False
        self.notify(f"epoch {self._epoch}: pre-copy failed: {failure}")
        if self._starts < MOST_STARTS:
            self._start_copying()
            return False
        self.notify(f"epoch {self._epoch} runs without a pre-copy: its state moves with the batches, which take longer")
        self.give_up()
        return True

    def _start_copying(self) -> None:
        if self.start is not None and self._epoch is not None:
            self._starts += 1
            self._job = self.start(self.checkpoint.uri, self._epoch)

    def _end(self) -> None:
        if self._job is not None:
            self._job.stop()
        self._epoch, self._job = None, None


class PrecopyProcess:
    """`python -m streamtopology.jobs.rerouting.precopy_job` on this machine; it ends with this process."""

    def __init__(self, uri: str, epoch: int) -> None:
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - kept open as long as the process runs
        command = [
            sys.executable,
            "-m",
            "streamtopology.jobs.rerouting.precopy_job",
            "--checkpoint",
            uri,
            "--epoch",
            str(epoch),
        ]
        self.process = subprocess.Popen(
            [*command, "--while-stdin-is-open"], stdin=subprocess.PIPE, stdout=self._output, stderr=self._output
        )

    def failure(self) -> str | None:
        code = self.process.poll()
        if code in (None, 0):
            return None
        self._output.seek(0)
        printed = self._output.read().decode(errors="replace").splitlines()
        return f"the process ended with code {code}: {' / '.join(printed[-3:]) or 'without output'}"

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()
        self._output.close()
