"""A peer's run over time: how many rows it has counted, what CPU each worker has used, and one worker that is slowed down.

The script prints `{"began": true}` once rows flow, and `{"rows": N, "at": SECONDS}` again and again: the rows so far, and when
that was by the machine's clock (`time.time`). A script whose workers have cgroups of their own names them before:
`{"cgroups": NAME, "slots": [...]}`.
"""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from streamtopology.lab.arena.limits import WorkerGroups

SAMPLE_SECONDS = 0.5


@dataclass(frozen=True)
class Slowing:
    """`worker` has `cpu` cores from `at` on, in seconds after the run's begin."""

    worker: int
    cpu: float
    at: float


class Timeline:
    """While entered, takes samples from the run's begin on, and slows the worker down.

    `groups`: the cgroups of its workers, unless the script names its own.
    """

    def __init__(self, slowing: Slowing, groups: WorkerGroups | None) -> None:
        self._slowing = slowing
        self._groups = groups
        self._began: float | None = None
        self._rows: list[tuple[float, int]] = []
        self._cpu: list[tuple[float, list[float]]] = []
        self._slowed_at: float | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="timeline", daemon=True)

    def __enter__(self) -> Timeline:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        if self._began is not None:
            self._thread.join()

    def heard(self, found: Mapping[str, Any]) -> None:
        """Take note of a line of the script."""
        if "cgroups" in found:
            self._groups = WorkerGroups(found["cgroups"], found["slots"])
        if "began" in found:
            self._began = time.time()
            self._thread.start()
        if "rows" in found and self._began is not None:
            self._rows.append((found["at"] - self._began, found["rows"]))

    def found(self) -> dict[str, Any]:
        """The samples, as the row keeps them: seconds after the begin, and what was so far."""
        return {"rows_at": self._rows, "cpu_at": self._cpu, "slowed_at": self._slowed_at}

    def _sample(self) -> None:
        assert self._groups is not None, "a script whose workers have no limits of ours names its own"
        assert self._began is not None
        while not self._over.is_set():
            now = time.time() - self._began
            if self._slowed_at is None and now >= self._slowing.at:
                self._groups.limit(self._slowing.worker, self._slowing.cpu)
                self._slowed_at = now
            try:
                self._cpu.append((now, self._groups.cpu_seconds()))
            except FileNotFoundError:  # the script has ended, and its cgroups with it
                return
            self._over.wait(SAMPLE_SECONDS)


def so_far(samples: Sequence[tuple[float, float]], at: float) -> float:
    """What was counted up to `at`, by a straight line between samples; the last ones hold beyond."""
    times = [sample[0] for sample in samples]
    after = bisect.bisect_left(times, at)
    if after == 0:
        return samples[0][1]
    if after == len(samples):
        return samples[-1][1]
    (t0, n0), (t1, n1) = samples[after - 1], samples[after]
    return n0 + (n1 - n0) * (at - t0) / (t1 - t0)


def rate(samples: Sequence[tuple[float, float]], begin: float, end: float) -> float:
    """Of what is counted, per second between `begin` and `end`."""
    return (so_far(samples, end) - so_far(samples, begin)) / (end - begin)
