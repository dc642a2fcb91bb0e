"""The choice of a key, an event time and columns to aggregate, from a sample alone."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.scaffold.column_names import is_id, is_time
from streamtopology.jobs.scaffold.event_time import EventTime, event_time, is_epoch

MOST_MEASURES = 3
# Distinct values, as a share of the rows, from which a column counts as an id of rows.
_UNIQUE = 0.9
_KEYS_PER_INSTANCE = 4
_LONG_TEXT = 64
_CALENDAR = re.compile(r"^(year|month|day|hour|minute|second|weekday|week|quarter|dow)(_of_\w+)?$", re.I)


class Fitness(Enum):
    """The fitness of a column as a key, best first; the value is the sentence about it."""

    GOOD = "many values that repeat"
    NUMBER = "many values that repeat, but rather a measure than a name"
    RARE = "values hardly repeat"
    FEW = "fewer values than would keep all executors busy"
    UNIQUE = "unique: (nearly) every row has its own"
    CONSTANT = "one value only"
    EMPTY = "mostly NULL"
    FLOAT = "floating point"
    TIME = "a time"
    LONG = "long text"

    @property
    def usable(self) -> bool:
        return self in (Fitness.GOOD, Fitness.NUMBER, Fitness.RARE, Fitness.FEW)


@dataclass(frozen=True)
class Candidate:
    """A column as a key. heaviest: the share of the rows that its most frequent value has.

    fullest: the share of the fullest instance if a hash of the key decides. skew: the heaviest key compared with the mean, with
    what chance alone explains taken off.
    """

    column: str
    fitness: Fitness
    keys: int = 0
    heaviest: float = 0.0
    fullest: float = 0.0
    skew: float = 0.0


@dataclass(frozen=True)
class ManifestChoice:
    key: Candidate | None
    candidates: tuple[Candidate, ...]
    time: EventTime | None
    measures: tuple[str, ...]


def choose(table: pa.Table, instances: int, key: str | None = None) -> ManifestChoice:
    """The choice for the rows of `table`, of which `instances` share the work; `key` is one that the user wants."""
    time = event_time(table)
    candidates = tuple(candidate(table, name, instances) for name in table.column_names)
    chosen = best(candidates) if key is None else next(one for one in candidates if one.column == key)
    taken = {chosen.column if chosen else "", time.column if time else ""}
    numbers = [one for one in candidates if one.column not in taken and _is_measure(table, one)]
    floats_first = sorted(numbers, key=lambda one: one.fitness is not Fitness.FLOAT)
    return ManifestChoice(chosen, candidates, time, tuple(one.column for one in floats_first[:MOST_MEASURES]))


def best(candidates: Iterable[Candidate]) -> Candidate | None:
    """The usable candidate of the best fitness, of these the most skewed."""
    order = list(Fitness)
    usable = [one for one in candidates if one.fitness.usable]
    return min(usable, key=lambda one: (order.index(one.fitness), -one.skew), default=None)


def candidate(table: pa.Table, name: str, instances: int) -> Candidate:
    """The column `name` of `table` as a key of which `instances` instances share the values."""
    column = table.column(name).combine_chunks()
    without_count = _unfit_type(column)
    if without_count is not None:
        return Candidate(name, without_count)
    present = column.drop_null()
    if len(present) <= len(column) / 2:
        return Candidate(name, Fitness.EMPTY)
    hashes = KeyColumns.from_arrays([present], [name], len(present)).hashes
    _, counts = np.unique(hashes, return_counts=True)
    fullest = np.bincount((hashes % np.uint64(instances)).astype(np.int64), minlength=instances).max() / len(present)
    mean = len(present) / len(counts)
    skew = counts.max() / (mean + 5 * np.sqrt(mean))
    fitness = _fitness(name, present, len(counts), instances)
    return Candidate(name, fitness, len(counts), float(counts.max() / len(present)), float(fullest), float(skew))


def _unfit_type(column: pa.Array) -> Fitness | None:
    if pa.types.is_floating(column.type):
        return Fitness.FLOAT
    return Fitness.TIME if pa.types.is_temporal(column.type) else None


def _fitness(name: str, present: pa.Array, keys: int, instances: int) -> Fitness:
    is_text = pa.types.is_string(present.type)
    if keys == 1:
        return Fitness.CONSTANT
    if keys >= _UNIQUE * len(present):
        return Fitness.UNIQUE
    if is_text and pc.mean(pc.binary_length(present)).as_py() > _LONG_TEXT:
        return Fitness.LONG
    if keys < _KEYS_PER_INSTANCE * instances:
        return Fitness.FEW
    if keys > len(present) / 2:
        return Fitness.RARE
    return Fitness.GOOD if is_text or is_id(name) else Fitness.NUMBER


def _is_measure(table: pa.Table, one: Candidate) -> bool:
    type_ = table.schema.field(one.column).type
    if is_id(one.column) or is_epoch(table.column(one.column)):
        return False
    if one.fitness is Fitness.FLOAT:
        return table.column(one.column).null_count < table.num_rows
    unfit = (Fitness.CONSTANT, Fitness.UNIQUE, Fitness.EMPTY)
    named = _CALENDAR.match(one.column) or is_time(one.column)
    return pa.types.is_integer(type_) and one.fitness not in unfit and not named and _sums_fit(table.column(one.column))


def _sums_fit(column: pa.ChunkedArray) -> bool:
    """True if 10**9 such values add up within 64 bits: an overflow stops a run."""
    bounds = pc.min_max(column).as_py()
    return max(abs(bounds["min"] or 0), abs(bounds["max"] or 0)) < 2**63 / 1e9
