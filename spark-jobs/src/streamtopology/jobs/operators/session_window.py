"""session-window: sum, mean, min, max, count per group and session, which ends with a pause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar.event_times import event_micros
from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.lazy import LazyModule
from streamtopology.jobs.operators.aggregate import NANS, parse_calls
from streamtopology.jobs.operators.base import BatchInfo, Output, Rows
from streamtopology.jobs.operators.behind import UNBOUNDED, Behind
from streamtopology.jobs.operators.groups import Groups
from streamtopology.jobs.operators.options import MissingOption, OptionError, one_of, require_column
from streamtopology.jobs.operators.timed_aggregate import CLOSES, TimedAggregate
from streamtopology.jobs.operators.windows import (
    COUNTED_SECONDS,
    LONGEST_DAYS,
    closed_micros,
    duration_micros,
    in_whole_milliseconds,
    watermark_micros,
)
from streamtopology.jobs.state import KeyedState
from streamtopology.jobs.state.index import KeyIndex

if TYPE_CHECKING:
    from streamtopology.jobs.operators import kernels
else:
    kernels = LazyModule("streamtopology.jobs.operators.kernels")

_LONGEST_MICROS = LONGEST_DAYS * 86_400_000_000


class SessionWindow(TimedAggregate):
    """Groups by key, columns `groupBy` and session, which closes as the watermark reaches its end.

    A tuple alone is a session from its `time` until a `gap` later, or until its value of `gapColumn` later. Sessions of a
    group that overlap or touch are one. A tuple is late if its session alone would be closed.

    The state has a row for each session, by its start. A batch's tuples are added as sessions of their own, whose start may be
    that of one that is there; at its end, and where parts of a key meet, sessions are joined, in the order of their starts.
    """

    bounds = ("session_start", "session_end")

    def __init__(
        self,
        aggregates: Mapping[str, str],
        time: str,
        gap: str | float | None = None,
        gapColumn: str | None = None,  # noqa: N803 - the option's name in the manifest
        groupBy: list[str] | None = None,  # noqa: N803 - the option's name in the manifest
        emit: str = "closed",
        nan: str = "ignore",
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.calls = parse_calls(aggregates)
        self.groups = Groups(groupBy)
        self.nan = one_of(nan, NANS, "nan")
        self.time = time
        if emit != "closed":
            raise OptionError(
                f"option 'emit' is {emit!r}; allowed: closed. A session that grows may get another start, and no reader could "
                "tell which of its former rows it replaces",
                about="emit",
            )
        if gap is None and gapColumn is None:
            raise MissingOption("option 'gap' is missing; allowed: gap, or gapColumn", "gap")
        if gap is not None and gapColumn is not None:
            raise OptionError("option 'gap' is for all tuples, and 'gapColumn' for each its own; leave one out", about="gap")
        self.gap = None if gap is None else duration_micros(gap, "gap")
        self.gap_column = gapColumn or ""

    @classmethod
    def behind(cls, options: Mapping[str, Any], given: Behind, own: float) -> Behind:
        """A session may be as long as it likes: only its end is near."""
        return Behind({cls.bounds[1]: own + COUNTED_SECONDS}, UNBOUNDED)

    def prepare(self, inputs: Mapping[str, pa.Schema], key: tuple[str, ...]) -> pa.Schema | None:
        if self.gap is None:
            for alias in inputs:
                _check_gap(self.gap_column, require_column(inputs, self.gap_column, alias).type)
        group = self.groups.schema(inputs, key, self.renamed_keys)
        return self.prepare_groups(inputs, group, has_bounds=True, means="the end of a session")

    def process(self, rows: Rows, state: KeyedState) -> Output:
        places, starts, ends = self._on_time(rows)
        kept = self.leave_out_late(rows, places)
        if not len(kept):
            return None
        session, firsts, closes = _sessions(self._group_keys(kept), starts, ends)
        slots = self.groups.slots(kept.take(firsts), state, self.as_bounds(starts[firsts]))
        held = state.column(CLOSES)
        held[slots] = np.maximum(held[slots], closes)
        self.groups.mark(slots)
        if np.any(starts[1:] < starts[:-1]):  # first, last and lists have their values in the order of times
            order = np.argsort(starts, kind="stable")
            kept, session = kept.take(order), session[order]
        self.aggregates.fold(kept, slots[session], state)
        return None

    def _on_time(self, rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """int64[m]: the places of the tuples that are not late, and the bounds of the session that each is alone."""
        times, valid = event_micros(rows.column(self.time))
        ends = times + (_gaps(rows.column(self.gap_column)) if self.gap is None else self.gap)
        closed = in_whole_milliseconds(closed_micros(self.batch, 0))
        on_time = ends > times if closed is None else (ends > times) & (ends > closed)
        places = np.flatnonzero(on_time if valid is None else on_time & valid)
        return places, times[places], ends[places]

    def _group_keys(self, rows: Rows) -> KeyColumns:
        if rows.keys is None:
            raise ValueError("the groups of tuples need their keys")
        if not self.groups.columns:
            return rows.keys
        further = [rows.column(name) for name in self.groups.columns]
        return _keys([*rows.keys.decode(), *further])

    def finish(self, batch: BatchInfo, state: KeyedState) -> Output:
        self._join(state)
        until, live = in_whole_milliseconds(watermark_micros(batch)), state.live()
        closes = state.column(CLOSES)[live]
        is_over = np.zeros(len(live), np.bool_) if until is None else closes <= until
        self.note_due(closes[~is_over])
        over = live[is_over]
        if not len(over):
            return None
        emitted = self.shown(state, over)
        state.delete(over)
        return emitted

    def _join(self, state: KeyedState) -> None:
        """Make one session of those that overlap or touch; only where this batch added some."""
        added = self.groups.marked()
        if not len(added):
            return
        held = _of_same_hashes(state, added)
        *group, starts = state.keys(held)
        starts, ends = starts.view(pa.int64()).to_numpy(), state.column(CLOSES)[held]
        keys = _keys(group)
        session, firsts, _ = _sessions(keys, starts, ends)
        first = firsts[session]
        others = np.flatnonzero(first != np.arange(len(held)))
        if not len(others):
            return
        others = others[np.argsort(starts[others], kind="stable")]
        into, parts = held[first[others]], held[others]
        fields = [(field.name, state.read(field.name, parts)) for field in state.schema.fields]
        state.touch(into)
        self.combine(
            state, into, pa.RecordBatch.from_arrays([array for _, array in fields], names=[name for name, _ in fields])
        )
        state.delete(parts)


def _check_gap(name: str, kind: pa.DataType) -> None:
    """Raise OptionError for a column that has no gaps."""
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_duration(kind)):
        raise OptionError(
            f"column {name!r} is {kind}; allowed: a number of seconds, or a duration; a map can make it", about="gapColumn"
        )


def _gaps(column: pa.Array) -> np.ndarray:
    """int64[n]: microseconds; 0 for those that are no gap: NULL, NaN, 0 and less, or more than the longest duration."""
    if pa.types.is_duration(column.type):
        micros = column.cast(pa.duration("us"), safe=False).view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        return np.where((micros > 0) & (micros <= _LONGEST_MICROS), micros, 0)
    seconds = column.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy(zero_copy_only=False)
    inside = (seconds > 0) & (seconds <= _LONGEST_MICROS / 1e6)  # False for NaN
    return np.rint(np.where(inside, seconds, 0) * 1e6).astype(np.int64)


def _keys(columns: Sequence[pa.Array]) -> KeyColumns:
    return KeyColumns.from_arrays(columns, [str(place) for place in range(len(columns))], len(columns[0]))


def _sessions(groups: KeyColumns, starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(int64[n] the number of the session that each of these belongs to, int64[m] the one that begins it, int64[m] its end)."""
    numbers, _, _ = KeyIndex(groups.types).upsert(groups, 2)
    return kernels.sessions(numbers, starts, ends, np.lexsort((starts, numbers)))


def _of_same_hashes(state: KeyedState, slots: np.ndarray) -> np.ndarray:
    """int64[]: the slots of all sessions of the keys that have these, and maybe of others."""
    mask = np.uint64((1 << (8 * len(slots)).bit_length()) - 1)
    asked = np.zeros(int(mask) + 1, np.bool_)
    asked[(state.hashes(slots) & mask).astype(np.int64)] = True
    live = state.live()
    return live[asked[(state.hashes(live) & mask).astype(np.int64)]]
