"""POSG's instance machine (Rivetti et al., section III-B, figure 2): when an instance sends its sketches."""

from __future__ import annotations

from enum import Enum

import numpy as np
import numpy.typing as npt

from streamtopology.routing.load.sketches.cost_sketch import CostSketch

Hashes = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]


class InstanceState(Enum):
    START = "start"
    STABILIZING = "stabilizing"


class PosgInstance:
    """The pair F and W of an instance, sent once it is stable.

    Every `window` (N) tuples: from START a snapshot S = W / F is taken (A in figure 2). While STABILIZING, the relative
    error eta between S and the present W / F is compared with `tolerance` (mu): above it S is replaced (B), else the pair
    is sent and reset, and it is START again (C).
    """

    def __init__(self, rows: int, columns: int, window: int, tolerance: float) -> None:
        self.window = window
        self.tolerance = tolerance
        self.state = InstanceState.START
        self._sketch = CostSketch.empty(rows, columns)
        self._snapshot = self._sketch.cell_costs()
        self._in_window = 0

    @property
    def until_check(self) -> int:
        """The number of tuples until the next check for a change of state, at least 1."""
        return self.window - self._in_window

    def execute(self, hashes: Hashes, seconds: Floats) -> list[CostSketch]:
        """Add executed tuples (key hashes uint64[n], seconds float64[n]). Returns the pairs sent meanwhile, oldest first.

        Mostly there are none, at most one in two windows.
        """
        sent: list[CostSketch] = []
        start = 0
        while start < len(hashes):
            end = min(start + self.until_check, len(hashes))
            self._sketch.update(hashes[start:end], seconds[start:end])
            self._in_window += end - start
            start = end
            if self._in_window == self.window:
                self._in_window = 0
                sent += self._window_done()
        return sent

    def _window_done(self) -> list[CostSketch]:
        now = self._sketch.cell_costs()
        if self.state is InstanceState.STABILIZING and self._relative_error(now) <= self.tolerance:
            stable, self._sketch = self._sketch, CostSketch.empty(*now.shape)
            self.state = InstanceState.START
            return [stable]
        self._snapshot = now
        self.state = InstanceState.STABILIZING
        return []

    def _relative_error(self, now: Floats) -> float:
        """eta of equation 1: sum |S - W / F| over sum S."""
        total = float(self._snapshot.sum())
        return float(np.abs(self._snapshot - now).sum()) / total if total else 0.0
