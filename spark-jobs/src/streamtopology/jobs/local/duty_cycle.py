"""CPU limits without cgroups: processes are stopped when the budget of a period is used up, and continued in the next.

Coarser than the kernel's quota (a slot overshoots by up to one look, and pays for it in the next periods), but right on
average, and it needs no privileges over one's own processes.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

PERIOD_SECONDS = 0.1
LOOK_SECONDS = 0.005
SAVED_PERIODS = 5  # budget that a busy machine kept a slot from using may be used this much later, then it is lost
MEMBERS_SECONDS = 0.5  # how often the list of a slot's processes is read again


@dataclass
class _Budget:
    """One slot's processes and what they may still use; all times are CPU seconds."""

    cpu: float | None = None
    left: float = 0.0
    used: float = 0.0
    stopped: bool = False
    clocks: dict[int, float] = field(default_factory=dict)


def process_clock(pid: int) -> int:
    """The kernel's clock id of another process's CPU time: what clock_getcpuclockid(3) returns."""
    return (~pid << 3) | 2


def duty_cycle_works(clock_of: Callable[[int], int] = process_clock) -> bool:
    """True if this system shows the CPU time of a process other than the caller (some sandboxes do not)."""
    try:
        time.clock_gettime(clock_of(os.getppid()))
    except OSError:
        return False
    return Path("/proc/self/environ").exists()


class DutyCycle:
    """Limits groups of processes to `cpu` cores each, from a thread of ours; `members(slot)` lists a slot's process ids."""

    kind = "duty cycle"
    roots: tuple[Path, ...] = ()

    def __init__(self, members: Callable[[str], Iterable[int]]) -> None:
        self._members = members
        self._budgets: dict[str, _Budget] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="duty-cycle", daemon=True)
        self._thread.start()

    def add(self, slot: str) -> tuple[Path, ...]:
        with self._lock:
            self._budgets[slot] = _Budget()
        return ()

    def limit(self, slot: str, cpu: float | None) -> None:
        """Let the slot use `cpu` cores from now on (None: as many as it likes)."""
        with self._lock:
            budget = self._budgets[slot]
            self._refresh_members(slot, budget)
            _account(budget)  # what was used before the limit is no debt
            budget.cpu, budget.left = cpu, 0.0
            if cpu is None:
                _resume(budget)

    def cpu_seconds(self, slot: str) -> float:
        """Return the CPU seconds used by the slot's processes since it was added, as far as they were seen."""
        with self._lock:
            budget = self._budgets[slot]
            self._refresh_members(slot, budget)
            _account(budget)
            return budget.used

    def close(self) -> None:
        """Stop limiting; stopped processes continue."""
        self._closing.set()
        self._thread.join()
        for budget in self._budgets.values():
            _resume(budget)

    def _run(self) -> None:
        next_period = next_members = time.monotonic()
        while not self._closing.wait(LOOK_SECONDS):
            now = time.monotonic()
            with self._lock:
                for slot, budget in self._budgets.items():
                    if now >= next_members:
                        self._refresh_members(slot, budget)
                    if budget.cpu is not None:
                        _account(budget)
                        _enforce(budget, budget.cpu, periods=max(0, math.floor((now - next_period) / PERIOD_SECONDS) + 1))
            if now >= next_members:
                next_members = now + MEMBERS_SECONDS
            if now >= next_period:
                next_period += (math.floor((now - next_period) / PERIOD_SECONDS) + 1) * PERIOD_SECONDS

    def _refresh_members(self, slot: str, budget: _Budget) -> None:
        present = set(self._members(slot))
        for gone in budget.clocks.keys() - present:
            del budget.clocks[gone]
        for new in present - budget.clocks.keys():
            budget.clocks[new] = 0.0
            if budget.stopped:
                _signal(new, signal.SIGSTOP)


def _enforce(budget: _Budget, cpu: float, periods: int) -> None:
    """Grant the budget of the periods that began since the last look, then stop or continue."""
    quota = cpu * PERIOD_SECONDS
    if periods:
        budget.left = min(budget.left + quota * periods, quota * SAVED_PERIODS)
    if budget.left > 0:
        _resume(budget)
    else:
        _pause(budget)


def _account(budget: _Budget) -> None:
    """Charge what each process used since the last look, from its CPU clock (nanoseconds, all its threads)."""
    for pid, before in list(budget.clocks.items()):
        try:
            now = time.clock_gettime(process_clock(pid))
        except OSError:  # it has ended
            del budget.clocks[pid]
            continue
        budget.clocks[pid] = now
        budget.used += now - before
        budget.left -= now - before


def _pause(budget: _Budget) -> None:
    if not budget.stopped:
        budget.stopped = True
        for pid in budget.clocks:
            _signal(pid, signal.SIGSTOP)


def _resume(budget: _Budget) -> None:
    if budget.stopped:
        budget.stopped = False
        for pid in budget.clocks:
            _signal(pid, signal.SIGCONT)


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
