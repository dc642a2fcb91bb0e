"""The seconds of merging a part of a key, as the instances measured it: a bounded estimate for each operator."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Collection, Iterable

import numpy as np
import numpy.typing as npt

from streamtopology.routing.load.load_report import LoadReport

# Of merging one part of a key into its state at home, as long as it is not measured; for a stateless operator 0.
PART_SECONDS = 20e-6

# Batches that an estimate is the median of: it follows a change after five of them.
KEPT = 9

# Batches from which on only measurements count; each that is missing counts as `PART_SECONDS`.
ENOUGH = 5

# A part that takes less or more is taken for one that takes as much as this.
LEAST_SECONDS, MOST_SECONDS = 1e-7, 1.0


class PartSeconds:
    """Estimates by operator, for a slot of speed 1.

    A batch that merges parts gives one value: seconds over parts, of all instances together. The estimate is the median of the
    newest `KEPT` values, filled up to `ENOUGH` with the prior `PART_SECONDS`. So two batches that are off change little,
    whatever they measured, and three that agree are believed.
    """

    def __init__(self) -> None:
        self._measured: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=KEPT))

    def measure(self, reports: Iterable[LoadReport], speeds: npt.NDArray[np.float64] | None) -> None:
        """Take note of the reports of one batch. `speeds`: relative, by slot; None as long as they are not known."""
        parts: defaultdict[str, int] = defaultdict(int)
        seconds: defaultdict[str, float] = defaultdict(float)
        for report in reports:
            if report.parts_merged > 0 and math.isfinite(report.merge_seconds) and report.merge_seconds > 0:
                parts[report.operator] += report.parts_merged
                seconds[report.operator] += report.merge_seconds * _speed(speeds, report.slot)
        for operator, count in parts.items():
            self._measured[operator].append(min(max(seconds[operator] / count, LEAST_SECONDS), MOST_SECONDS))

    def keep(self, operators: Collection[str]) -> None:
        """Forget all other operators."""
        for gone in self._measured.keys() - set(operators):
            del self._measured[gone]

    def estimates(self) -> dict[str, float]:
        """Seconds of a part, by operator that has merged any."""
        return {operator: _estimate(measured) for operator, measured in self._measured.items()}


def _estimate(measured: Collection[float]) -> float:
    prior = [PART_SECONDS] * max(ENOUGH - len(measured), 0)
    return float(np.median([*measured, *prior]))


def _speed(speeds: npt.NDArray[np.float64] | None, slot: int) -> float:
    """The speed of the slot; 1 where it is not known."""
    if speeds is None or not 0 <= slot < len(speeds):
        return 1.0
    speed = float(speeds[slot])
    return speed if math.isfinite(speed) and speed > 0 else 1.0
