"""The sum of many histories: how much was played, how fast, and which faults came where."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from streamtopology.lab.faults.outcome import Outcome, Place


@dataclass
class Tally:
    """`seconds` is CPU time."""

    histories: int = 0
    batches: int = 0
    lives: int = 0
    steps: int = 0
    seconds: float = 0.0
    covered: Counter[Place] = field(default_factory=Counter[Place])

    def add(self, outcome: Outcome, seconds: float) -> None:
        self.histories += 1
        self.batches += outcome.batches
        self.lives += outcome.lives
        self.steps += outcome.steps
        self.seconds += seconds
        self.covered.update(outcome.covered)

    def line(self) -> str:
        a_second = max(self.seconds, 1e-9)
        return (
            f"{self.histories:,} histories, {self.batches:,} batches, {self.lives:,} lives of a driver, "
            f"{sum(self.covered.values()):,} faults; {self.histories / a_second:.1f} histories and "
            f"{self.batches / a_second:.0f} batches per second of CPU"
        )

    def coverage(self) -> Iterator[str]:
        """A line for each operation and situation, with the faults that came there."""
        by_place: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
        for place, count in self.covered.items():
            by_place[place.role, place.operation, place.situation][place.fault] += count
        yield f"{len(self.covered):,} pairs of a state and a fault:"
        for (role, operation, situation), faults in sorted(by_place.items()):
            yield f"  {role:9} {operation:34} {situation:12} " + ", ".join(f"{kind} {n}" for kind, n in sorted(faults.items()))
