"""quantiles: how a column is distributed, per key, in state of fixed size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streamtopology.jobs.lazy import LazyModule
from streamtopology.jobs.operators.base import Rows
from streamtopology.jobs.operators.columns import numbers, require_number
from streamtopology.jobs.operators.histogram import MAX_EXACT_BINS, ExactHistogram, Histogram, LogHistogram
from streamtopology.jobs.operators.keyed_aggregate import KeyedAggregate
from streamtopology.jobs.operators.options import OptionError
from streamtopology.jobs.state import Field, KeyedState

if TYPE_CHECKING:
    from streamtopology.jobs.operators import kernels
else:
    kernels = LazyModule("streamtopology.jobs.operators.kernels")

DEFAULT_ACCURACY = 0.02
_EXACT_IN_A_DOUBLE = 2**53


class Quantiles(KeyedAggregate):
    """Emits `count` and one column per quantile (0.5 -> `q50`, 0.999 -> `q99_9`).

    A quantile q is the element of rank ceil(q * count), SQL's percentile_disc. Integers from `min` to `max` of at most
    4,096 values are exact unless `accuracy` is given; else the answer is within relative `accuracy` of that element.
    The state is a histogram: the same whatever the order of the tuples and however they were split.
    """

    def __init__(
        self,
        column: str,
        min: float,
        max: float,
        quantiles: Sequence[float] = (0.5, 0.9, 0.99),
        accuracy: float | None = None,
        resolution: float | None = None,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.column = column
        self.range = (_number(min, "min"), _number(max, "max"))
        if self.range[0] >= self.range[1]:
            raise OptionError(f"option 'min' is {min}, 'max' is {max}; allowed: min smaller than max", about="min")
        listed = quantiles if isinstance(quantiles, list | tuple) else []
        self.quantiles = [_quantile(q) for q in listed]
        if not listed or len(set(self.quantiles)) < len(listed):
            raise OptionError(
                f"option 'quantiles' is {quantiles!r}; allowed: a list of different numbers, at least one", about="quantiles"
            )
        if accuracy is not None and not 0.0005 <= _number(accuracy, "accuracy") <= 0.5:
            raise OptionError(f"option 'accuracy' is {accuracy!r}; allowed: from 0.0005 to 0.5", about="accuracy")
        self.accuracy = accuracy
        self.resolution = resolution
        if resolution is not None and not 0 < _number(resolution, "resolution") < np.abs(self.range).max():
            raise OptionError(
                f"option 'resolution' is {resolution!r}; allowed: above 0 and below the largest magnitude", about="resolution"
            )

    def fields_for(self, inputs: Mapping[str, pa.Schema]) -> tuple[Field, ...]:
        kinds = {require_number(inputs, self.column, alias) for alias in inputs}
        self.histogram = self._histogram(all(pa.types.is_integer(kind) for kind in kinds))
        self._numerators = np.array([q.numerator for q in self.quantiles], np.int64)
        self._denominators = np.array([q.denominator for q in self.quantiles], np.int64)
        means = f"{self.column} {self.histogram}"  # other bounds may have as many bins
        return (Field("histogram", np.dtype(np.int64), shape=(self.histogram.bins,), merge="sum", means=means),)

    def result_schema(self) -> pa.Schema:
        kind = pa.int64() if isinstance(self.histogram, ExactHistogram) else pa.float64()
        return pa.schema([("count", pa.int64()), *((_column_name(q), kind) for q in self.quantiles)])

    def fold(self, rows: Rows, slots: np.ndarray, state: KeyedState) -> None:
        values, valid = numbers(rows.column(self.column))
        bins = self.histogram.bin_of(values)
        if valid is not None:
            bins = np.where(valid, bins, -1)
        kernels.count_bins(state.column("histogram"), slots, bins)

    def results(self, slots: np.ndarray, state: KeyedState) -> list[pa.Array]:
        counts, found = kernels.quantile_bins(state.column("histogram"), slots, self._numerators, self._denominators)
        empty = found < 0
        values = self.histogram.middles[np.where(empty, 0, found)]
        columns = [pa.array(values[:, i], mask=empty[:, i]) for i in range(len(self.quantiles))]
        return [pa.array(counts), *columns]

    def _histogram(self, integers: bool) -> Histogram:
        low, high = self.range
        whole = integers and low == int(low) and high == int(high)
        exact = whole and max(abs(low), abs(high)) <= _EXACT_IN_A_DOUBLE
        if exact and self.accuracy is None and self.resolution is None and high - low < MAX_EXACT_BINS:
            return ExactHistogram(int(low), int(high))
        return LogHistogram(low, high, self.accuracy or DEFAULT_ACCURACY, self.resolution or self._resolution(integers))

    def _resolution(self, integers: bool) -> float:
        """The smallest magnitude that is distinguished from 0."""
        low, high = self.range
        if low > 0 or high < 0:
            return min(abs(low), abs(high))
        largest = max(abs(low), abs(high))
        return 1.0 if integers and largest > 1 else largest * 1e-6


def _number(value: Any, option: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise OptionError(f"option {option!r} is {value!r}; allowed: a number", about=option)
    return float(value)


def _quantile(value: Any) -> Fraction:
    """Exact, so that 0.55 of 20 elements is the 11th and not, by a rounding error, the 12th."""
    if not 0 <= _number(value, "quantiles") <= 1:
        raise OptionError(f"option 'quantiles' has {value!r}; allowed: from 0 to 1", about="quantiles")
    return Fraction(str(value)).limit_denominator(1_000_000)


def _column_name(q: Fraction) -> str:
    return "q" + f"{float(q * 100):.10g}".replace(".", "_")
