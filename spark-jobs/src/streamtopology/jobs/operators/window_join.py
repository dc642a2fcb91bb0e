"""window-join: tuples of two or more inputs with the same key, near each other in event time or whenever they come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar import expressions
from streamtopology.jobs.columnar.expressions import quoted
from streamtopology.jobs.operators.base import BatchInfo, Operator, Output, Rows
from streamtopology.jobs.operators.behind import UNBOUNDED, Behind
from streamtopology.jobs.operators.options import OptionError, expressions_of, key_schema, require_column, seconds_of
from streamtopology.jobs.operators.windows import (
    COUNTED_SECONDS,
    EVERYTHING_CLOSED,
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
_MET = "tuples met before"
_MILLISECOND = 1000


class WindowJoin(Operator):
    """Join of all inputs on the key: tuples in one tumbling window of `size`, or `within` a time of each other.

    Without `time`, all tuples of a key: each is kept for `ttl` after it came, in processing time, else for ever.

    `time`: the event-time column, or {input: column}. `within`: a distance, or of two inputs [from, to]: the second's time
    minus the first's. `where`: a SQL condition on the tuples, `select`: the SQL columns of the result, both naming columns as
    input.column; without `select`: the key, then input_column for all others. Every combination is emitted exactly once, in
    the batch its last tuple arrives in. `outer`: of two inputs `within` a time, those whose tuples are emitted with NULLs
    when the watermark excludes matches and there was none. `semi`, `anti`: of two inputs `within` a time, the one whose tuples
    alone are emitted: once, with their first match, or when they had none. Tuples are kept `allowedLateness` longer than the
    watermark alone would have it. With `within` a tuple is late at or below the watermark.
    """

    drops_late_rows = True
    forgets_by_itself = True

    def __init__(
        self,
        time: str | Mapping[str, str] | None = None,
        size: str | float | None = None,
        within: str | float | list[str | float] | None = None,
        outer: list[str] | None = None,
        semi: str | None = None,
        anti: str | None = None,
        select: list[str] | None = None,
        where: str | None = None,
        allowedLateness: str | float = 0,  # noqa: N803 - the option's name in the manifest
        **common: Any,
    ) -> None:
        super().__init__(**common)
        self.time = time
        if time is None:
            _refuse_without_time(size=size, within=within, outer=outer, semi=semi, anti=anti, allowedLateness=allowedLateness)
        elif self.ttl is not None:
            raise OptionError(
                "option 'ttl' is for a join without 'time'; with it, the watermark says what is kept", about="ttl"
            )
        elif (size is None) == (within is None):
            raise OptionError("window-join needs either size (tumbling windows) or within (a distance in time), not both")
        self.size = None if size is None else duration_micros(size, "size")
        self.within = None if within is None else _distances(within)
        given = [name for name, value in (("outer", outer), ("semi", semi), ("anti", anti)) if value]
        if len(given) > 1:
            raise OptionError(f"options {' and '.join(given)}: a join is one of these", about=given[1])
        if given and self.within is None:
            raise OptionError(f"option {given[0]!r} needs within: the distance says how long a tuple may still be met")
        # Whose tuples are emitted without a match, and whose alone are emitted at all.
        self._lonely = tuple(outer or ()) or ((anti,) if anti else ())
        self._single = semi or anti
        self._is_semi = bool(semi)
        self.lateness = duration_micros(allowedLateness, "allowedLateness", least=0)
        self.select = None if select is None else expressions_of(select, "select")
        self.where = where
        self._arrived: dict[str, list[pa.RecordBatch]] = {}

    @classmethod
    def leaves_out_late(cls, options: Mapping[str, Any]) -> bool:
        return options.get("time") is not None

    @classmethod
    def behind(cls, options: Mapping[str, Any], given: Behind, own: float) -> Behind:
        """A tuple waits for those that it may meet; where it may be alone, until the watermark says so."""
        if options.get("time") is None:
            return Behind(others=UNBOUNDED)
        wait = given.of(None) + seconds_of(options.get("allowedLateness", 0), "allowedLateness")
        if options.get("within") is None:
            return Behind(others=wait + seconds_of(options["size"], "size"))
        reach = max(map(abs, _distances(options["within"]))) / 1e6
        return Behind(others=wait + reach + (COUNTED_SECONDS if options.get("outer") or options.get("anti") else 0))

    def prepare(self, inputs: Mapping[str, pa.Schema], key: tuple[str, ...]) -> pa.Schema | None:
        if len(inputs) < 2:
            raise OptionError(
                f"window-join needs two inputs or more, found {', '.join(inputs)}; to join a stream with itself, name "
                "it twice under different aliases"
            )
        self._check_pair(inputs)
        _refuse_own_names(inputs)
        self._times = {} if self.time is None else {alias: self._time_column(inputs, alias) for alias in inputs}
        keys = key_schema(inputs, key, self.renamed_keys)
        own = {alias: self.renamed_keys.get(alias, key) for alias in inputs}
        self._kept = {alias: _kept_schema(schema, keys, own[alias]) for alias, schema in inputs.items()}
        self.state = RowStateSchema(self._kept, tuple(f"{_KEY}{i}" for i in range(len(key))), _AT)
        conditions = self._conditions(list(inputs), len(key))
        of_one = [f"{quoted(self._single)}.{quoted(name)}" for name in inputs[self._single].names] if self._single else None
        columns = "\n, ".join(self.select or of_one or _all_columns(inputs, key, self.renamed_keys))
        tables = ", ".join(f"{quoted(_table(alias))} AS {quoted(alias)}" for alias in inputs)
        self._join = f"SELECT {columns}\nFROM {tables}\nWHERE {conditions}"
        self._alone = {alias: _without_match(columns, alias, other, conditions) for alias, other in self._others(inputs)}
        queried = {_table(alias): schema for alias, schema in self._kept.items()}
        if self._single is not None:
            other = next(alias for alias in inputs if alias != self._single)
            self._join = _with_first_match(columns, self._single, other, conditions)
            queried[_MET] = self._kept[other]
        output = expressions.query_schema(queried, self._join)
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
        self._due: float | None = None

    @property
    def due(self) -> float | None:
        return self._due

    def process(self, rows: Rows, state: RowState) -> Output:
        if rows.keys is None:
            raise ValueError("window-join needs the rows' keys")
        if self.time is None:
            kept, times = rows, np.full(len(rows), self._now)
        else:
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
        new = {alias: pa.Table.from_batches(batches, self._kept[alias]) for alias, batches in self._arrived.items()}
        found: list[pa.Table] = self._with_first_matches(new, state) if self._is_semi else []
        for alias, tuples in new.items():
            if tuples.num_rows:
                if self._single is None:
                    tables = {_table(other): state.rows(other) for other in self._kept if other != alias}
                    found.append(expressions.query({**tables, _table(alias): tuples}, self._join))
                state.append(alias, tuples)
        found += self._without_matches(batch, state)
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
        """Forget tuples that no tuple in time can meet, or whose `ttl` is over."""
        if self.time is None:
            if self.ttl is not None:
                state.expire(self._now * 1e-6 - self.ttl)
            return
        until = watermark_micros(batch)
        if until is None:
            return
        if batch.final:
            state.expire(np.inf)
            return
        until -= self.lateness
        needed_from = until // self.size * self.size if self.size is not None else until - self._longest_wait
        state.expire((needed_from - 0.5) * 1e-6)  # half a microsecond earlier: seconds are rounded, no tuple lies between

    @property
    def _now(self) -> int:
        """The batch's processing time, microseconds since 1970."""
        return round((self.batch.now or 0) * 1e6)

    @property
    def _longest_wait(self) -> int:
        """How long (microseconds) after its time a tuple may be needed: to tell who had a match, until its partner is over."""
        low, high = self.within or (0, 0)
        return max(high, -low, high - low + 2 * _MILLISECOND if self._lonely or self._is_semi else 0)

    def _with_first_matches(self, new: Mapping[str, pa.Table], state: RowState) -> list[pa.Table]:
        """The tuples of `semi` that meet one of the other input for the first time."""
        one = self._single
        assert one is not None
        other = next(alias for alias in self._kept if alias != one)
        met = state.rows(other)
        asked = (
            (new[one], pa.concat_tables([met, new[other]]), met.slice(0, 0)),
            (state.rows(one), new[other], met),
        )
        return [
            expressions.query({_table(one): tuples, _table(other): others, _MET: before}, self._join)
            for tuples, others, before in asked
            if tuples.num_rows and others.num_rows
        ]

    def _without_matches(self, batch: BatchInfo, state: RowState) -> list[pa.Table]:
        """The tuples without a match that can have none from this batch on. Notes when the next are over."""
        found: list[pa.Table] = []
        until, before = watermark_micros(batch), closed_micros(batch, self.lateness)
        if until not in (None, EVERYTHING_CLOSED):
            until -= self.lateness
        for alias, other in self._others(self._kept):
            tuples = state.rows(alias)
            times = tuples.column(_AT).to_numpy()
            over = times <= self._over_until(alias, until)
            waiting = times[~over].min(initial=EVERYTHING_CLOSED)
            if waiting != EVERYTHING_CLOSED:
                due = float(waiting + self._wait(alias) + self.lateness) / 1e6
                self._due = due if self._due is None else min(self._due, due)
            over &= times > self._over_until(alias, before)
            if over.any():
                tables = {_table(alias): tuples.filter(pa.array(over)), _table(other): state.rows(other)}
                found.append(expressions.query(tables, self._alone[alias]))
        return found

    def _over_until(self, alias: str, watermark: int | None) -> float:
        """The latest time (microseconds) of a tuple that no tuple to come can match, counted in milliseconds as Spark does."""
        if watermark in (None, EVERYTHING_CLOSED):
            return -np.inf if watermark is None else np.inf
        return watermark // _MILLISECOND * _MILLISECOND - self._wait(alias)

    def _wait(self, alias: str) -> int:
        """Microseconds from a tuple's time until no tuple of the other input can match it, in whole milliseconds."""
        low, high = self.within or (0, 0)
        reach = max(high if alias == next(iter(self._kept)) else -low, 0)
        return (reach // _MILLISECOND + 1) * _MILLISECOND

    def _others(self, inputs: Mapping[str, object]) -> Iterator[tuple[str, str]]:
        """(alias, the other one's) for each input whose tuples are emitted without a match."""
        for alias in self._lonely:
            yield alias, next(other for other in inputs if other != alias)

    def _check_pair(self, inputs: Mapping[str, pa.Schema]) -> None:
        name = ("semi" if self._is_semi else "anti") if self._single else "outer"
        of_two = self._lonely or self._is_semi
        if len(inputs) > 2 and (of_two or (self.within is not None and self.within[0] != -self.within[1])):
            raise OptionError(f"option {name!r}, and 'within' of two distances, are for two inputs; found {', '.join(inputs)}")
        for alias in (self._single,) if self._single else self._lonely:
            if alias not in inputs:
                raise OptionError(f"option {name!r} names {alias!r}; allowed: {', '.join(inputs)}", about=name)

    def _time_column(self, inputs: Mapping[str, pa.Schema], alias: str) -> str:
        name = self.time.get(alias) if isinstance(self.time, Mapping) else self.time
        if name is None:
            raise OptionError(f"option 'time' is {self.time!r}; it has no column for input {alias!r}", about="time")
        check_time_column(name, require_column(inputs, name, alias).type)
        return name

    def _conditions(self, aliases: list[str], keys: int) -> str:
        first, *others = aliases
        conditions = [
            f"{quoted(first)}.{_KEY}{i} IS NOT DISTINCT FROM {quoted(other)}.{_KEY}{i}" for other in others for i in range(keys)
        ]
        if self.size is not None:
            conditions += [f"{_window(first, self.size)} = {_window(other, self.size)}" for other in others]
        elif self.within is not None:
            conditions += [
                f"{quoted(other)}.{_AT} - {quoted(one)}.{_AT} BETWEEN {self.within[0]} AND {self.within[1]}"
                for place, one in enumerate(aliases)
                for other in aliases[place + 1 :]
            ]
        if self.where is not None:
            conditions.append(f"({self.where}\n)")
        return " AND ".join(conditions)


def _refuse_without_time(**given: Any) -> None:
    for name, value in given.items():
        if value:
            raise OptionError(
                f"option {name!r} counts event time, and the option 'time' that names its column is missing", about=name
            )


def _distances(value: Any) -> tuple[int, int]:
    """(least, most) microseconds from the first input's time to the second's."""
    if not isinstance(value, list):
        most = duration_micros(value, "within", least=0)
        return -most, most
    if len(value) != 2:
        raise OptionError(f"option 'within' is {value!r}; allowed: a duration, or two: [-10s, 30s]", about="within")
    low, high = map(_signed, value)
    if low > high:
        raise OptionError(f"option 'within' is {value!r}; the second duration must not be the shorter one", about="within")
    return low, high


def _signed(value: Any) -> int:
    if isinstance(value, str) and value.strip().startswith("-"):
        return -duration_micros(value.strip()[1:], "within", least=0)
    if isinstance(value, int | float) and value < 0:
        return -duration_micros(-value, "within", least=0)
    return duration_micros(value, "within", least=0)


def _without_match(columns: str, alias: str, other: str, conditions: str) -> str:
    one, two = (f"{quoted(_table(name))} AS {quoted(name)}" for name in (alias, other))
    return f"SELECT {columns}\nFROM {one} LEFT JOIN {two}\nON {conditions}\nWHERE {quoted(other)}.{_AT} IS NULL"


def _with_first_match(columns: str, alias: str, other: str, conditions: str) -> str:
    """The tuples of `alias` that meet one of `other`, and none of those of it that they could have met before."""
    one, two, met = (
        f"{quoted(table)} AS {quoted(name)}" for table, name in ((_table(alias), alias), (_table(other), other), (_MET, other))
    )
    meeting = f"SELECT * FROM {one} SEMI JOIN {two}\nON {conditions}"
    return f"SELECT {columns}\nFROM ({meeting}) AS {quoted(alias)} ANTI JOIN {met}\nON {conditions}"


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
    columns = [
        f"coalesce({', '.join(f'{quoted(alias)}.{_KEY}{i}' for alias in inputs)}) AS {quoted(name)}"
        for i, name in enumerate(key)
    ]
    for alias, schema in inputs.items():
        shown = {name for name, own in zip(key, renamed.get(alias, key), strict=True) if name == own}
        others = [name for name in schema.names if name not in shown]
        columns += [f"{quoted(alias)}.{quoted(name)} AS {quoted(f'{alias}_{name}')}" for name in others]
    return columns


def _table(alias: str) -> str:
    return f"tuples of {alias}"
