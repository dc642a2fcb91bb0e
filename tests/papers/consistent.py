"""Consistent Grouping as sections IV and V of its paper have it, message by message and signal by signal.

Whole numbers and fractions only, so that nothing depends on rounding. Open in the text, and decided here as the planner's page
says:

- the average load of algorithm 1 counts the message at hand; without room after `salts` salts the emptiest takes it;
- a source takes the signals of a slot in the order of the workers; one that says the same again keeps its place in its queue;
- the busy worker's first virtual worker moves; each worker is probed (V-A.2) with one virtual worker at most;
- a micro-batch's utilisation is 0.8 times its end over that of a perfect division, and its table that of the round of
  signals and pairs which ends earliest, until there is no pair or as many rounds as workers have not ended earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

# H(j + salt): (key, salt from 1) -> a virtual worker.
Hash = Callable[[int, int], int]

# Workers that get a virtual worker where some are busy and none is idle, in their order.
Probed = Callable[["Source"], list[int]]

BUSY, IDLE, WELL_USED = Fraction(85, 100), Fraction(75, 100), Fraction(80, 100)


@dataclass
class PoRC:
    """Algorithm 1 over n virtual workers."""

    h: Hash
    n: int
    epsilon: Fraction
    salts: int

    def __post_init__(self) -> None:
        self.load = [0] * self.n
        self.m = 0

    def get_worker(self, j: int) -> int:
        self.m += 1
        salt = 1
        chosen = self.h(j, salt)
        while self.load[chosen] >= (1 + self.epsilon) * self.m / self.n:
            if salt == self.salts:
                chosen = self.load.index(min(self.load))
                break
            salt += 1
            chosen = self.h(j, salt)
        self.load[chosen] += 1
        return chosen


def signal(utilisation: Fraction) -> str:
    """Section V-A.2 (busy from the one threshold on, idle up to the other), with the thresholds of VI-A."""
    return "busy" if utilisation >= BUSY else "idle" if utilisation <= IDLE else "fine"


def least_recently_overloaded(source: Source) -> list[int]:
    """V-A.2: workers that have not reported becoming overloaded, then those that did least recently."""
    others = [worker for worker in source.heard if worker not in source.busy and worker not in source.idle]
    never = sorted(worker for worker in others if worker not in source.overloaded)
    return never + sorted((worker for worker in others if worker in source.overloaded), key=source.overloaded.__getitem__)


@dataclass
class Source:
    """IV-B, pairing: `owner` of each virtual worker, and the two queues. A busy worker keeps its `least` virtual workers."""

    owner: list[int]
    least: int = 0
    probed: Probed = least_recently_overloaded
    busy: list[int] = field(default_factory=list[int])
    idle: list[int] = field(default_factory=list[int])
    heard: set[int] = field(default_factory=set[int])
    overloaded: dict[int, int] = field(default_factory=dict[int, int])
    words: int = 0

    def hear(self, worker: int, word: str) -> None:
        self.words += 1
        self.heard.add(worker)
        if word == "busy":
            self.overloaded[worker] = self.words
        for queue, meant in ((self.busy, "busy"), (self.idle, "idle")):
            if word == meant and worker not in queue:
                queue.append(worker)
            if word != meant and worker in queue:
                queue.remove(worker)

    def pair(self) -> bool:
        """True if a virtual worker was moved."""
        takers = self.idle or self.probed(self)
        moved = False
        while self.busy and takers:
            giver = self.busy.pop(0)
            if self.owner.count(giver) > self.least:
                self.owner[self.owner.index(giver)] = takers.pop(0)
                moved = True
        return moved


def ends(owner: Sequence[int], capacities: Sequence[Fraction]) -> list[Fraction]:
    """The end of each worker's share of a batch in which each virtual worker has a load of 1."""
    return [owner.count(worker) / capacity for worker, capacity in enumerate(capacities)]


def between_batches(
    owner: Sequence[int], capacities: Sequence[Fraction], probed: Probed = least_recently_overloaded
) -> list[int]:
    """The owners of the round of signals and pairs after which the batch ends earliest."""
    source = Source(list(owner), probed=probed)
    perfect = len(owner) / sum(capacities, Fraction(0))
    best, since = list(owner), 0
    while since < len(capacities):
        for worker, end in enumerate(ends(source.owner, capacities)):
            source.hear(worker, signal(WELL_USED * end / perfect))
        if not source.pair():
            break
        since += 1
        if max(ends(source.owner, capacities)) < max(ends(best, capacities)):
            best, since = list(source.owner), 0
    return best
