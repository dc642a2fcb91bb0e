"""How far rows between operators are behind the watermark: what operators on operators wait for.

One watermark serves a topology. An operator that joins, or emits what is over, has rows of earlier times than it: an operator
that follows counts with a watermark that is so much earlier.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

UNBOUNDED = math.inf


@dataclass(frozen=True)
class Behind:
    """The event times in rows of a batch are after the watermark of the batch before, less this many seconds.

    columns: of some columns; others: of all others. Infinite: no bound is known.

    >>> windows = Behind({"window_end": 0.0, "window_start": 60.0}, UNBOUNDED)
    >>> windows.of("window_start"), windows.of("amount")
    (60.0, inf)
    """

    columns: Mapping[str, float] = field(default_factory=dict[str, float])
    others: float = 0.0

    def of(self, column: str | None) -> float:
        """Of a column; None: of any."""
        if column is None:
            return max([self.others, *self.columns.values()])
        return self.columns.get(column, self.others)

    def renamed(self, columns: Mapping[str, str]) -> Behind:
        """Of rows whose columns are such ones under other names, by the new name, and whatever is computed of them."""
        return Behind({new: self.of(old) for new, old in columns.items()}, self.of(None))

    @staticmethod
    def of_all(given: Iterable[Behind]) -> Behind:
        """Of rows of several inputs."""
        inputs = tuple(given)
        names = {name for one in inputs for name in one.columns}
        return Behind({name: max(one.of(name) for one in inputs) for name in names}, max(one.others for one in inputs))
