"""Consistent Grouping's rate control: workers report busy or idle; sources pair the two and move a virtual worker each time.

Section IV-B, and VI-A for the thresholds. A worker knows only its own utilisation and reports one bit of it; a
source keeps the reporting workers in two first-come-first-served queues and moves a virtual worker only when it can
pair a busy with an idle one, so their number never changes. `Pairing` is that source, live, with state; the planner
plays the same protocol ahead on measured loads until there is no pair left: between two batches a whole exchange of
signals costs nothing.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopology.routing.planners.balance import balanced_seconds, finish_seconds, imbalance
from streamtopology.routing.planners.plan import Plan, PlanError, PlanInput
from streamtopology.routing.table.table import RoutingTable

Floats = npt.NDArray[np.float64]
Owners = npt.NDArray[np.int32]

# A worker below this utilisation asks for more.
IDLE = 0.75

# A worker above this utilisation asks for less.
BUSY = 0.85

# A utilisation is at a threshold if it differs by no more than this; then it is beyond it (section V-A.2).
ROUNDING = 1e-9

# The utilisation that all workers would have if load were divided perfectly, as in the paper's simulations.
#
# A micro-batch lasts as long as its slowest instance, so that utilisation as such has no meaning in it: an instance that is
# done when a perfect division would be is taken to be this well used.
WELL_USED = 0.8


class Signal(enum.IntEnum):
    """A worker's report about itself, sent with every acknowledgement, so that its absence is noticed, too."""

    IDLE = -1
    FINE = 0
    BUSY = 1


def signals(utilisation: Floats) -> list[Signal]:
    """Return each worker's signal, from its own utilisation (float64[k], load over capacity) alone."""
    return [Signal(int(used > BUSY - ROUNDING) - int(used < IDLE + ROUNDING)) for used in utilisation.tolist()]


@dataclass(frozen=True)
class Move:
    """Virtual worker `virtual` goes from one worker to another."""

    virtual: int
    giver: int
    taker: int


class Pairing:
    """One source's view: which worker has which virtual workers, who is busy and who is idle, first come, first served.

    `owner` int32[virtual workers] is the start. Who hears the same signals in the same order makes the same moves: sources
    that take the signals of a time slot in an agreed order become alike, whenever each of them hears. `least`: virtual workers
    that a busy worker keeps. A source that hears workers only when they acknowledge its messages needs 1: without messages a
    worker could never ask for more. (Each fits: their capacity is at most that of the slowest worker, section V-A.)
    """

    def __init__(self, owner: Owners, least: int = 0) -> None:
        self._owner: Owners = np.array(owner, np.int32)
        self._least = least
        self._idle: deque[int] = deque()
        self._busy: deque[int] = deque()
        self._overloaded: dict[int, int] = {}
        self._words = 0

    @property
    def owner(self) -> Owners:
        """int32[virtual workers]: the worker of each, as this source sees it."""
        return self._owner.copy()

    def hear(self, worker: int, signal: Signal) -> None:
        """A worker's newest word takes the place of the one before; who says the same again keeps its place in the queue."""
        for queue, kind in ((self._idle, Signal.IDLE), (self._busy, Signal.BUSY)):
            if kind == signal and worker not in queue:
                queue.append(worker)
            elif kind != signal and worker in queue:
                queue.remove(worker)
        self._words += 1
        self._overloaded.setdefault(worker, 0)
        if signal is Signal.BUSY:
            self._overloaded[worker] = self._words

    def pair(self) -> list[Move]:
        """Moves a virtual worker for every pair of a busy and an idle worker; both have then been served.

        Where workers are busy and none is idle, the others are probed (section V-A.2), each with one virtual worker at most:
        first those that were never overloaded, then those that were least recently.
        """
        moves: list[Move] = []
        probed = sorted(set(self._overloaded) - set(self._busy) - set(self._idle), key=lambda one: (self._overloaded[one], one))
        takers = self._idle or deque(probed)
        while self._busy and takers:
            giver = self._busy.popleft()
            held = np.flatnonzero(self._owner == giver)
            if len(held) <= self._least:
                continue
            move = Move(int(held[0]), giver, takers.popleft())
            self._owner[move.virtual] = move.taker
            moves.append(move)
        return moves


def consistent(given: PlanInput) -> Plan:
    """The table after as many rounds of signals and pairing as bring the end of the batch closer.

    The buckets of the table are the virtual workers, each with the same load; the table has no entries. Nothing else of
    the demand is asked for, and no state moves: on a split edge each instance hands over what it has gathered.
    """
    if len(given.current.entry_hashes):
        raise PlanError("current: a table of virtual workers has no entries; this one is of another grouping")
    if not len(given.bucket_loads):
        raise PlanError("bucket_loads: consistent grouping moves virtual workers, and needs the load of each")
    position = {instance: j for j, instance in enumerate(given.instances)}
    before = np.array([position.get(instance, -1) for instance in given.current.buckets.tolist()], np.int32)
    start = _adopted(before, len(given.instances))
    total = float(given.bucket_loads.sum() + given.key_loads.sum())
    after = _played(start, total, given)
    seconds = _seconds(after, total, given)
    imbalance_after = imbalance(_loads(after, total, given), given.capacities, given.fixed_seconds)
    moved = after != before
    return Plan(
        table=RoutingTable(np.empty(0, np.uint64), np.empty(0, np.int32), np.array(given.instances, np.int32)[after]),
        moved_keys_estimate=float(given.bucket_keys[moved].sum() if len(given.bucket_keys) else np.count_nonzero(moved)),
        moved_bytes=float(given.bucket_state[moved].sum()),
        predicted_seconds_before=float(_seconds(before, total, given).max()),
        predicted_seconds_after=float(seconds.max()),
        imbalance_before=imbalance(_loads(before, total, given), given.capacities, given.fixed_seconds),
        imbalance_after=imbalance_after,
        theta_reached=imbalance_after <= given.tolerance,
        algorithm="consistent",
    )


def _played(start: Owners, total: float, given: PlanInput) -> Owners:
    """The owners after the round that ends earliest; rounds end when no pair is left or workers only trade places."""
    best_possible = balanced_seconds(total, given.capacities, given.fixed_seconds)
    if best_possible <= 0:
        return start
    pairing = Pairing(start)
    best, best_end, since = start, float(_seconds(start, total, given).max()), 0
    while since < len(given.instances):
        used = WELL_USED * _seconds(pairing.owner, total, given) / best_possible
        for worker, signal in enumerate(signals(used)):
            pairing.hear(worker, signal)
        if not pairing.pair():
            break
        end = float(_seconds(pairing.owner, total, given).max())
        since += 1
        if end < best_end:
            best, best_end, since = pairing.owner, end, 0
    return best


def _seconds(owner: Owners, total: float, given: PlanInput) -> Floats:
    return finish_seconds(_loads(owner, total, given), given.capacities, given.fixed_seconds)


def _loads(owner: Owners, total: float, given: PlanInput) -> Floats:
    """float64[k]: what each instance gets of `total`, by how many virtual workers it has; those of no one count nowhere."""
    held = np.bincount(owner[owner >= 0], minlength=len(given.instances))
    return held.astype(np.float64) * (total / len(owner))


def _adopted(owner: Owners, k: int) -> Owners:
    """Virtual workers of instances that are not active (-1) go to those with the fewest, one by one."""
    adopted = owner.copy()
    held = np.bincount(owner[owner >= 0], minlength=k)
    for virtual in np.flatnonzero(owner < 0).tolist():
        adopted[virtual] = np.argmin(held)
        held[adopted[virtual]] += 1
    return adopted
