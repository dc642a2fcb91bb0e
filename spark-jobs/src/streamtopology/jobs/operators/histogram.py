"""A histogram of fixed shape whose counts can be added in any order: the state behind `quantiles`.

Its bins follow DDSketch (Masson, Rim, Lee, VLDB 2019, section 2): logarithmic, so that a bin's middle is within a
relative accuracy of all values in it. A small range of integers gets one bin a value instead and is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from streamtopology.jobs.lazy import LazyModule

if TYPE_CHECKING:
    from streamtopology.jobs.operators import kernels
else:
    kernels = LazyModule("streamtopology.jobs.operators.kernels")


MAX_EXACT_BINS = 4096


@dataclass(frozen=True)
class ExactHistogram:
    """One bin for each integer from `low` to `high`."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"from {self.low} to {self.high}"

    @property
    def bins(self) -> int:
        return self.high - self.low + 1

    def bin_of(self, values: np.ndarray) -> np.ndarray:
        """int64[n] bins of int64[n] values; what lies outside counts as `low` or `high`."""
        return np.clip(values, self.low, self.high) - self.low

    @cached_property
    def middles(self) -> np.ndarray:
        """int64[bins]: the value of each bin."""
        return np.arange(self.low, self.high + 1, dtype=np.int64)


@dataclass(frozen=True)
class LogHistogram:
    """Bins within relative `accuracy` for magnitudes from `resolution` up; what is smaller is 0.

    Bin i > 0 of a sign holds the magnitudes in (resolution * gamma^(i-1), resolution * gamma^i] with
    gamma = (1 + accuracy) / (1 - accuracy); bins go from the most negative over zero to the largest.
    """

    low: float
    high: float
    accuracy: float
    resolution: float

    def __str__(self) -> str:
        return f"from {self.low} to {self.high} with accuracy {self.accuracy} and resolution {self.resolution}"

    @cached_property
    def bounds(self) -> np.ndarray:
        """float64[]: step i has bounds[i - 1] < magnitude <= bounds[i], from 1; the first holds the resolution, too."""
        log_gamma = math.log((1 + self.accuracy) / (1 - self.accuracy))
        steps = math.ceil(math.log(max(abs(self.low), abs(self.high)) / self.resolution) / log_gamma) + 1
        return self.resolution * np.exp(log_gamma * np.arange(steps + 1))

    def _steps(self, magnitude: float) -> int:
        if magnitude < self.resolution:
            return 0
        return max(int(np.searchsorted(self.bounds, magnitude)), 1)

    @cached_property
    def _negative(self) -> int:
        return self._steps(-self.low)

    @cached_property
    def _positive(self) -> int:
        return self._steps(self.high)

    @property
    def bins(self) -> int:
        return self._negative + 1 + self._positive

    def bin_of(self, values: np.ndarray) -> np.ndarray:
        """int64[n] bins of float64[n] values (no NaN); what lies outside counts as `low` or `high`."""
        return self._negative + kernels.log_steps(values.astype(np.float64, copy=False), self.low, self.high, self.bounds)

    @cached_property
    def middles(self) -> np.ndarray:
        """float64[bins]: the value that stands for each bin, within `accuracy` of all in it."""
        gamma = (1 + self.accuracy) / (1 - self.accuracy)
        magnitudes = self.bounds * 2 / (gamma + 1)
        return np.concatenate([-magnitudes[self._negative : 0 : -1], [0.0], magnitudes[1 : self._positive + 1]])


Histogram = ExactHistogram | LogHistogram
