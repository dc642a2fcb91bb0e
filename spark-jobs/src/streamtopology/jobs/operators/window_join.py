"""window-join: tuples of two or more inputs with the same key that are near each other in event time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar import expressions
from streamtopology.jobs.columnar.expressions import quoted
from streamtopology.jobs.operators.base import BatchInfo, Operator, Output, Rows
from streamtopology.jobs.operators.options import OptionError, expressions_of, key_schema, require_column
from streamtopology.jobs.operators.windows import (
    Windows,
    check_time_column,
    closed_micros,
    duration_micros,
    on_time,
    watermark_micros,
)
from streamtopology.jobs.state import RowState, RowStateSchema
from streamtopology.jobs.state.schema import MEANS

_AT, _WINDOW, _KEY = "_join_at", "_join_window", "_join_key_"
_OWN = "_join_"


class WindowJoin(Operator):
    """Inner join of all inputs on the key: tuples in one tumbling window of `size`, or `within` a time of each other.

    `time`: the event-time column, or {input: column}. `where`: a SQL condition on the tuples, `select`: the SQL columns
    of the result, both naming columns as input.column; without `select`: the key, then input_column for all others.
    Every combination is emitted exactly once, in the batch its last tuple arrives in. Tuples are kept `allowedLateness`
    longer than the watermark alone would have it. With `within` a tuple is late at or below the watermark.
    """

    drops_late_rows = True

    def __init__(
        self,
        time: str | Mapping[str, str],
        size: str | float | None = None,
        within: str | float | None = None,
        select: list[str] | None = None,
        where: str | None = None,
        allowedLateness: str | float = 0,  # noqa: N803 - the option's name in the manifest
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.time = time
        if (size is None) == (within is None):
            raise OptionError("window-join needs either size (tumbling windows) or within (a distance in time), not both")
        self.size = None if size is None else duration_micros(size, "size")
        self.within = None if within is None else duration_micros(within, "within", least=0)
        self.lateness = duration_micros(allowedLateness, "allowedLateness", least=0)
        self.select = None if select is None else expressions_of(select, "select")
        self.where = where
        self._arrived: dict[str, list[pa.RecordBatch]] = {}

    def prepare(self, inputs: Mapping[str, pa.Schema], key: tuple[str, ...]) -> pa.Schema | None:
        if len(inputs) < 2:
            raise OptionError(
                f"window-join needs two inputs or more, found {', '.join(inputs)}; to join a stream with itself, name "
                "it twice under different aliases"
            )
        _refuse_own_names(inputs)
        self._times = {alias: self._time_column(inputs, alias) for alias in inputs}
        keys = key_schema(inputs, key, self.renamed_keys)
        own = {alias: self.renamed_keys.get(alias, key) for alias in inputs}
        self._kept = {alias: _kept_schema(schema, keys, own[alias]) for alias, schema in inputs.items()}
        self.state = RowStateSchema(self._kept, tuple(f"{_KEY}{i}" for i in range(len(key))), _AT)
        self._join = self._sql(list(inputs), self.select or _all_columns(inputs, key, self.renamed_keys), len(key))
        output = expressions.query_schema({_table(alias): schema for alias, schema in self._kept.items()}, self._join)
        if any(name.startswith(_OWN) for name in output.names) or len(set(output.names)) < len(output.names):
            names = ", ".join(output.names)
            raise OptionError(
                f"option 'select' must give each column a name of its own, without *; it gives {names}", about="select"
            )
        self.output = output
        return output

    def begin(self, batch: BatchInfo) -> None:
        super().begin(batch)
        self._arrived = {alias: [] for alias in self._kept}

    def process(self, rows: Rows, state: RowState) -> Output:
        if rows.keys is None:
            raise ValueError("window-join needs the rows' keys")
        places, times = on_time(rows.column(self._times[rows.input]), self._first_open())
        kept = self.leave_out_late(rows, places)
        assert kept.keys is not None
        windows = times if self.size is None else times // self.size
        schema = self._kept[rows.input]
        columns = [*kept.batch.columns, *kept.keys.decode(), pa.array(times), pa.array(windows)]
        columns = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
        self._arrived[rows.input].append(pa.RecordBatch.from_arrays(columns, schema=schema))
        return None

    def finish(self, batch: BatchInfo, state: RowState) -> Output:
        """Each input's new tuples meet what is kept of the others, the new tuples of the inputs before it included."""
        found = []
        for alias, batches in self._arrived.items():
            new = pa.Table.from_batches(batches, self._kept[alias])
            if new.num_rows:
                tables = {_table(other): state.rows(other) for other in self._kept if other != alias}
                found.append(expressions.query({**tables, _table(alias): new}, self._join))
                state.append(alias, new)
        self._expire(batch, state)
        joined = pa.concat_tables(found) if found else None
        return joined if joined is not None and joined.num_rows else None

    def _first_open(self) -> int | None:
        """The earliest event time (microseconds) whose matches are all kept or still to come; None: all are."""
        closed = closed_micros(self.batch, self.lateness)
        if closed is None or self.size is None:
            return None if closed is None else closed + 1
        return Windows(self.size, self.size).first_open(closed)

    def _expire(self, batch: BatchInfo, state: RowState) -> None:
        """Forget tuples that no tuple in time can meet."""
        until = watermark_micros(batch)
        if until is None:
            return
        if batch.final:
            state.expire(np.inf)
            return
        until -= self.lateness
        needed_from = until // self.size * self.size if self.size is not None else until - (self.within or 0)
        state.expire((needed_from - 0.5) * 1e-6)  # half a microsecond earlier: seconds are rounded, no tuple lies between

    def _time_column(self, inputs: Mapping[str, pa.Schema], alias: str) -> str:
        name = self.time.get(alias) if isinstance(self.time, Mapping) else self.time
        if name is None:
            raise OptionError(f"option 'time' is {self.time!r}; it has no column for input {alias!r}", about="time")
        check_time_column(name, require_column(inputs, name, alias).type)
        return name

    def _sql(self, aliases: list[str], select: Sequence[str], keys: int) -> str:
        first, *others = aliases
        conditions = [
            f"{quoted(first)}.{_KEY}{i} IS NOT DISTINCT FROM {quoted(other)}.{_KEY}{i}" for other in others for i in range(keys)
        ]
        if self.size is not None:
            conditions += [f"{_window(first, self.size)} = {_window(other, self.size)}" for other in others]
        else:
            conditions += [
                f"abs({quoted(one)}.{_AT} - {quoted(other)}.{_AT}) <= {self.within}"
                for place, one in enumerate(aliases)
                for other in aliases[place + 1 :]
            ]
        if self.where is not None:
            conditions.append(f"({self.where}\n)")
        tables = ", ".join(f"{quoted(_table(alias))} AS {quoted(alias)}" for alias in aliases)
        columns = "\n, ".join(select)
        return f"SELECT {columns}\nFROM {tables}\nWHERE {' AND '.join(conditions)}"


def _window(alias: str, size: int) -> str:
    """The window of a tuple, of the event time: the number kept with it is that of the size when it came."""
    at = f"{quoted(alias)}.{_AT}"
    return f"({at} - ({at} % {size} + {size}) % {size})"


def _refuse_own_names(inputs: Mapping[str, pa.Schema]) -> None:
    """Raise OptionError for a column that has the name of one that is kept with the tuples."""
    for alias, schema in inputs.items():
        if name := next((name for name in schema.names if name.lower().startswith(_OWN)), None):
            sentence = f"input {alias!r} has the column {name!r}, and names of window-join's own columns begin with {_OWN}"
            raise OptionError(f"{sentence}; give it another name in a select before", about=name)


def _kept_schema(schema: pa.Schema, keys: pa.Schema, own_names: Sequence[str]) -> pa.Schema:
    """The input's columns, its canonical key, event time and window in microseconds; with the event time, what the key is."""
    own = [pa.field(f"{_KEY}{i}", field.type) for i, field in enumerate(keys)]
    at = pa.field(_AT, pa.int64(), metadata={MEANS: f"the time of rows by {', '.join(own_names)}"})
    return pa.schema([*schema, *own, at, pa.field(_WINDOW, pa.int64())])


def _all_columns(inputs: Mapping[str, pa.Schema], key: tuple[str, ...], renamed: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The key, then all other columns of each input, also one that is called as a key column and is none there."""
    first = next(iter(inputs))
    columns = [f"{quoted(first)}.{_KEY}{i} AS {quoted(name)}" for i, name in enumerate(key)]
    for alias, schema in inputs.items():
        shown = {name for name, own in zip(key, renamed.get(alias, key), strict=True) if name == own}
        others = [name for name in schema.names if name not in shown]
        columns += [f"{quoted(alias)}.{quoted(name)} AS {quoted(f'{alias}_{name}')}" for name in others]
    return columns


def _table(alias: str) -> str:
    return f"tuples of {alias}"
