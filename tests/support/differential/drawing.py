"""Common parts of all draws of a case: its seed, its event times, and bits of SQL over any column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import pyarrow as pa

from support.differential.case import Source
from support.differential.tables import quoted
from support.differential.values import (
    ANY_DOUBLE,
    BIGINT,
    DATE,
    DOUBLE,
    NOON,
    ODD_FLOATS,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    Column,
    Kind,
)

_TIMES = (TIMESTAMP, TIMESTAMP, TIMESTAMP_NTZ, BIGINT, DOUBLE, DATE)
# Epoch seconds around which the event times of a case lie: 2027, 1970, 1526, 2096, 8941.
_ERAS = (NOON, NOON, NOON, 0, -14_000_000_000, 4_000_000_000, 220_000_000_000)
# Epoch seconds up to which a watermark, which is a float, is exact to the microsecond.
_EXACT_SECONDS = 1 << 32
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Stream:
    """The rows of a source or operator: its columns, and its event time `time` if windows over it can close."""

    name: str
    columns: tuple[Column, ...]
    time: str = ""

    def of(self, fits: Callable[[Kind], bool]) -> list[Column]:
        return [column for column in self.columns if fits(column.kind)]

    @staticmethod
    def from_source(source: Source) -> Stream:
        return Stream(source.name, source.columns, source.time)


class Drawing:
    """`unit`: seconds of the distances between event times. `files`: tables for lookups, by name."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.era = self.random.choice(_ERAS)
        self.time = self.random.choice(_TIMES)
        self.unit = 86_400 if self.time is DATE else 1
        self.files: dict[str, pa.Table] = {}

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def some(self, items: Sequence[_Item]) -> _Item:
        return self.random.choice(items)

    def seconds(self, units: int) -> str:
        """A duration in the manifest."""
        return f"{units * self.unit}s"

    def event_time(self, step: int) -> Any:
        """An event time near those of the step, or none, or an odd one; in the storage of the time's type."""
        near = self.era + (10 * step + self.random.randint(-25, 20)) * self.unit
        match self.random.random():
            case chance if chance < 0.04:
                return None
            case chance if chance < 0.06:
                near = min(self.era + 3_000_000 * self.unit, 253_402_000_000)
            case chance if chance < 0.10 and self.time is DOUBLE:
                return self.some((*ODD_FLOATS, 1e300))
            case chance if chance < 0.10 and self.time is BIGINT:
                return self.some((10**18, -(10**18), near * 1_000_000))
            case _:
                pass
        if self.time is DOUBLE:
            return near + self.some((0.0, 0.0, 0.5, 0.125))  # sums are exact in any order
        if self.time is BIGINT:
            return near
        return near // 86_400 if self.time is DATE else near * 1_000_000 + self._fraction()

    def _fraction(self) -> int:
        """Microseconds of a second; none where a watermark is not exact to the microsecond."""
        return self.some((0, 0, 0, 1, -1, 500_000)) if abs(self.era) < _EXACT_SECONDS else 0

    def expression(self, column: Column) -> tuple[str, Kind]:
        """SQL over a column, and its type."""
        name = quoted(column.name)
        match column.kind.family:
            case "integer":
                return f"CAST({name} AS BIGINT) % 5", BIGINT
            case "float":
                return f"CAST({name} AS DOUBLE) / 2", DOUBLE if column.kind.adds_up else ANY_DOUBLE
            case "text":
                return self.some(((f"upper({name}) || 'é'", STRING), (f"length({name})", BIGINT)))
            case "time":
                # Of the date: a time as text ends in +00 by DuckDB's cast, which the reference is, and not by ours.
                return f"CAST(CAST({name} AS DATE) AS VARCHAR)", STRING
            case _:
                return f"CASE WHEN {name} IS NULL THEN 'none' END", STRING

    def condition(self, columns: Sequence[Column]) -> str:
        """A SQL condition over one of the columns."""
        column = self.some(columns)
        name = quoted(column.name)
        match column.kind.family:
            case "integer":
                return f"{name} > 0"
            case "float":
                return self.some((f"NOT isnan({name})", f"{name} < 10"))
            case "text":
                return f"{name} <> ''"
            case _:
                return f"{name} IS NOT NULL"
