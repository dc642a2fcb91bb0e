"""mixed-routing's planners as its text has them, slowly: algorithms 1 to 5, MixedBF and Readj over dictionaries.

Costs and memory are whole numbers and every comparison is one of whole numbers, so nothing depends on rounding. Four things are
open in the text, and decided here as the planners' pages say:

- equal keys and equal instances come by their number, equal moves by their instances' numbers, then the keys';
- where no instance accepts a candidate (algorithm 1, line 7) it goes to the least loaded one;
- L_max = (1 + theta_max) x mean, or the heaviest key where that is heavier: no instance could take it otherwise;
- Readj moves an entry back where that overloads nobody, the heaviest first, and its best move lowers the squares most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

Key = int
# The instance of every key; a candidate (a member of C) has none.
At = dict[Key, int]

# Selection criteria (psi and eta of the algorithms).
Order = Callable[[Iterable[Key]], list[Key]]


@dataclass(frozen=True)
class Operator:
    """Keys 0..n-1 with computation cost, memory cost and hash destination, on k equal instances. theta in percent, beta 3/2."""

    cost: list[int]
    memory: list[int]
    home: list[int]
    at: list[int]
    k: int
    percent: int

    # ---- section 2 -----------------------------------------------------------------------------------------------

    def load(self, at: At, d: int) -> int:
        return sum(self.cost[key] for key, instance in at.items() if instance == d)

    def loads(self, at: At) -> list[int]:
        return [self.load(at, d) for d in range(self.k)]

    def exceeds(self, load: int) -> bool:
        """L > L_max."""
        return 100 * self.k * load > (100 + self.percent) * sum(self.cost) and load > max(self.cost)

    def entries(self, at: At) -> list[Key]:
        return [key for key, instance in at.items() if instance != self.home[key]]

    def migration(self, at: At) -> int:
        return sum(self.memory[key] for key, instance in at.items() if instance != self.at[key])

    def balanced(self, at: At) -> bool:
        return not any(self.exceeds(load) for load in self.loads(at))

    # ---- selection criteria ----------------------------------------------------------------------------------------

    def highest_cost_first(self, keys: Iterable[Key]) -> list[Key]:
        return sorted(keys, key=lambda key: (-self.cost[key], key))

    def largest_gamma_first(self, keys: Iterable[Key]) -> list[Key]:
        """gamma = c^1.5 / S, by its square: whole numbers over whole numbers."""
        common = 1
        for size in set(self.memory):
            common *= size**2
        return sorted(keys, key=lambda key: (-(self.cost[key] ** 3) * (common // self.memory[key] ** 2), key))

    def smallest_memory_first(self, keys: Iterable[Key]) -> list[Key]:
        return sorted(keys, key=lambda key: (self.memory[key], key))

    # ---- algorithm 1, and phase II -----------------------------------------------------------------------------------

    def preparing(self, at: At, eta: Order) -> set[Key]:
        """Phase II: disassociates keys from every overloaded instance."""
        candidates: set[Key] = set()
        for d in range(self.k):
            for key in eta([key for key, instance in at.items() if instance == d]):
                if not self.exceeds(self.load(at, d)):
                    break
                del at[key]
                candidates.add(key)
        return candidates

    def llfd(self, at: At, candidates: set[Key], eta: Order) -> None:
        while candidates:
            key = self.highest_cost_first(candidates)[0]
            ascending = sorted(range(self.k), key=lambda d: (self.load(at, d), d))
            accepting = (d for d in ascending if self.adjust(key, d, at, candidates, eta))
            d = next(accepting, ascending[0])
            at[key] = d
            candidates.remove(key)

    def adjust(self, key: Key, d: int, at: At, candidates: set[Key], eta: Order) -> bool:
        load = self.load(at, d) + self.cost[key]
        exchangeable: list[Key] = []
        for other in eta([other for other, instance in at.items() if instance == d]):
            if self.exceeds(load) and self.cost[other] < self.cost[key]:
                exchangeable.append(other)
                load -= self.cost[other]
        if self.exceeds(load):
            return False
        for other in exchangeable:
            del at[other]
            candidates.add(other)
        return True

    def three_phases(self, moved_back: Iterable[Key], eta: Order) -> At:
        at = dict(enumerate(self.at))
        for key in moved_back:
            at[key] = self.home[key]
        self.llfd(at, self.preparing(at, eta), eta)
        return at

    # ---- algorithms 2 to 5, and MixedBF ------------------------------------------------------------------------------

    def mintable(self) -> At:
        return self.three_phases(self.entries(dict(enumerate(self.at))), self.highest_cost_first)

    def minmig(self) -> At:
        return self.three_phases([], self.largest_gamma_first)

    def mixed(self, n_max: int) -> At:
        """Algorithm 4. When even a cleaned table is too large it ends with that (appendix B: it leaves N_max alone)."""
        table = self.smallest_memory_first(self.entries(dict(enumerate(self.at))))
        n = 0
        while True:
            at = self.three_phases(table[:n], self.largest_gamma_first)
            too_many = len(self.entries(at)) - n_max
            if too_many <= 0 or n >= len(table):
                return at
            n += too_many

    def mixed_bf(self, n_max: int) -> At | None:
        """The n whose result moves least of those that keep to both constraints of equation 3, the least n of equals."""
        table = self.smallest_memory_first(self.entries(dict(enumerate(self.at))))
        results = [self.three_phases(table[:n], self.largest_gamma_first) for n in range(len(table) + 1)]
        kept = [at for at in results if len(self.entries(at)) <= n_max and self.balanced(at)]
        return min(kept, key=self.migration, default=None)

    def simple(self) -> At:
        at: At = {}
        for key in self.highest_cost_first(range(len(self.cost))):
            at[key] = min(range(self.k), key=lambda d: (self.load(at, d), d))
        return at

    # ---- Readj, as sections 1, 5 and 6 describe it -------------------------------------------------------------------

    def readj(self, smallest: int) -> At:
        """Keys of at least `smallest` cost are moved and swapped, one best move after the other."""
        at = dict(enumerate(self.at))
        for key in self.highest_cost_first(self.entries(at)):
            if not self.exceeds(self.load(at, self.home[key]) + self.cost[key]):
                at[key] = self.home[key]
        candidates = [key for key in at if self.cost[key] >= smallest]
        while not self.balanced(at):
            best = min((at | change for change in self.moves_and_swaps(at, candidates)), key=self.squares, default=at)
            if self.squares(best) >= self.squares(at):
                break
            at = best
        return at

    def moves_and_swaps(self, at: At, candidates: list[Key]) -> Iterator[At]:
        for i in range(self.k):
            for j in range(self.k):
                for key in (key for key in candidates if at[key] == i and self.load(at, i) > self.load(at, j)):
                    yield {key: j}
                    yield from ({key: j, other: i} for other in candidates if at[other] == j)

    def squares(self, at: At) -> int:
        return sum(load**2 for load in self.loads(at))
