"""DKG as listings 3.1 and 3.2 and section 3.1 of its paper have it, tuple by tuple, over plain dictionaries.

Open in the text, and decided here as the planner's page says: equal items come by their order (heavy hitters by their hash,
then buckets), equal instances by their number; a bucket in which nothing was learnt goes nowhere (`NOWHERE`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Item = int

NOWHERE = -1


def scheduling(loads: Sequence[float], k: int) -> list[int]:
    """Section 3.1, LPTF: the largest to the instance with the lowest load, until none is left."""
    totals, owner = [0.0] * k, [NOWHERE] * len(loads)
    for item in sorted(range(len(loads)), key=lambda item: (-loads[item], item)):
        if loads[item] > 0:
            least = min(range(k), key=lambda instance: (totals[instance], instance))
            owner[item] = least
            totals[least] += loads[item]
    return owner


@dataclass
class Dkg:
    """theta in percent; `bucket` is the hash function of the paper, from items to 0..k * mu - 1.

    Items are counted one by one: SpaceSaving with a counter for each of them.
    """

    percent: int
    k: int
    mu: int
    bucket: Callable[[Item], int]
    v: Counter[int] = field(default_factory=Counter)
    counts: Counter[Item] = field(default_factory=Counter)

    def learn(self, t: Item) -> None:
        self.v[self.bucket(t)] += 1
        self.counts[t] += 1

    def query(self) -> dict[Item, int]:
        m = self.counts.total()
        return {item: f for item, f in sorted(self.counts.items()) if 100 * f >= self.percent * m}

    def build(self, heavy: Mapping[Item, float] | None = None) -> None:
        """`heavy`: the answer of another SpaceSaving, by item in ascending order."""
        heavy = self.query() if heavy is None else heavy
        left: dict[int, float] = {bucket: self.v[bucket] for bucket in range(self.k * self.mu)}
        for item, f in heavy.items():
            left[self.bucket(item)] -= f
        owner = scheduling([*heavy.values(), *left.values()], self.k)
        self.hh = dict(zip(heavy, owner, strict=False))
        self.si = owner[len(heavy) :]

    def instance(self, t: Item) -> int:
        return self.hh.get(t, self.si[self.bucket(t)])
