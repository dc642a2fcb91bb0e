"""A peer's run over time: how many rows it has counted, what CPU each worker has used, and a change in the middle of it.

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
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from streamtopology.lab.arena.limits import WorkerGroups

SAMPLE_SECONDS = 0.5


class Change(Protocol):
    """What happens once, `at` seconds after the run's begin."""

    @property
    def at(self) -> float: ...

    def make(self, groups: WorkerGroups) -> None: ...


@dataclass(frozen=True)
class Slowing:
    """`worker` has `cpu` cores from then on."""

    worker: int
    cpu: float
    at: float

    def make(self, groups: WorkerGroups) -> None:
        groups.limit(self.worker, self.cpu)


@dataclass(frozen=True)
class Moving:
    """The folder `link` has the files of `target` from then on, under the same names: all that are opened later are those."""

    link: str
    target: str
    at: float

    def make(self, groups: WorkerGroups) -> None:
        lead(Path(self.link), Path(self.target))


def change_of(asked: Mapping[str, Any]) -> Change:
    """The change of a request."""
    return Moving(**asked) if "link" in asked else Slowing(**asked)


def lead(link: Path, target: Path) -> None:
    """Have `link` lead to `target`, in one step."""
    draft = link.with_name(f".{link.name}")
    draft.unlink(missing_ok=True)
    draft.symlink_to(target)
    draft.replace(link)


class Timeline:
    """While entered, takes samples from the run's begin on, and makes the change.

    `groups`: the cgroups of its workers, unless the script names its own.
    """

    def __init__(self, change: Change, groups: WorkerGroups | None) -> None:
        self._change = change
        self._groups = groups
        self._began: float | None = None
        self._rows: list[tuple[float, int]] = []
        self._cpu: list[tuple[float, list[float]]] = []
        self._changed_at: float | None = None
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
        return {"rows_at": self._rows, "cpu_at": self._cpu, "changed_at": self._changed_at}

    def _sample(self) -> None:
        assert self._groups is not None, "a script whose workers have no limits of ours names its own"
        assert self._began is not None
        while not self._over.is_set():
            now = time.time() - self._began
            if self._changed_at is None and now >= self._change.at:
                self._change.make(self._groups)
                self._changed_at = now
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
