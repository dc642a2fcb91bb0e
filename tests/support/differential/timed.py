"""Windows and joins in event time, in SQL. Times are microseconds since 1970."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from support.differential.case import Spec
from support.differential.keyed import aggregates, keyed_columns
from support.differential.tables import Tables, listed, quoted, same

if TYPE_CHECKING:
    from support.differential.operators import Input


_MILLISECOND = 1000


def behind(operators: Sequence[Spec], inputs: Callable[[Spec], Iterable[str]]) -> dict[str, int]:
    """By operator, how much later than the watermark its rows may come: a join's wait for each other."""
    found: dict[str, int] = {}
    emitted: dict[str, int] = {}
    for spec in operators:
        name, options = spec["name"], spec.get("with", {})
        found[name] = emitted[name] = max(emitted.get(source, 0) for source in inputs(spec))
        if spec["run"] == "window-join":
            waits = (options.get("size", "0s"), options.get("within", "0s"), options.get("allowedLateness", "0s"))
            emitted[name] += sum(map(micros, waits)) + (_MILLISECOND if options.get("outer") or options.get("anti") else 0)
    return found


def add_marks(tables: Tables, name: str, behind: int) -> None:
    """The marks of an operator whose rows may come so much later."""
    earlier = f"closed - {behind} AS closed, closes - {behind} AS closes"
    tables.make(_marks(name), f"SELECT _batch, {earlier}, {behind} AS behind FROM marks")


def windows(tables: Tables, name: str, spec: Spec, inputs: Sequence[Input]) -> str:
    """A window's results in the batch that closes it, and again in each batch that brings it late rows in time."""
    key, options = spec["grouping"]["key"], spec["with"]
    size, slide = micros(options["size"]), micros(options.get("slide", options["size"]))
    lateness = micros(options.get("allowedLateness", "0s"))
    rows, members = f"{name} rows", _members(name)
    tables.make(rows, _timed_rows(tables, spec, inputs))
    start = f"{_floor('r._time', slide)} - n * {slide}"
    tables.make(
        members,
        f"SELECT r.*, {start} AS _start FROM {quoted(rows)} r, range({-(-size // slide)}) s(n), {quoted(_marks(name))} m "
        f"WHERE m._batch = r._batch AND {start} > r._time - {size} AND {start} + {size} + {lateness} > m.closed",
    )
    emitted = (
        f"SELECT DISTINCT m._batch, {listed(key, '_w')}, _w._start FROM {quoted(members)} _w JOIN {quoted(_marks(name))} m "
        f"ON _w._batch <= m._batch AND _w._start + {size} <= m.closes "
        f"AND (_w._start + {size} > m.closed OR _w._batch = m._batch)"
    )
    moment = "make_timestamp" if tables.types(inputs[0].table)[options["time"]] == "TIMESTAMP" else "make_timestamptz"
    bounds = f"{moment}(t._start) AS window_start, {moment}(t._start + {size}) AS window_end"
    columns = ", ".join(f"{sql} AS {quoted(result)}" for result, sql in aggregates(tables, rows, options["aggregates"]))
    return (
        f"SELECT t._batch, {listed(key, 't')}, {bounds}, {columns} FROM ({emitted}) t JOIN {quoted(members)} r "
        f"ON r._batch <= t._batch AND r._start = t._start AND {same(key, 'r', 't')} "
        f"GROUP BY t._batch, {listed(key, 't')}, t._start"
    )


def join(tables: Tables, name: str, spec: Spec, inputs: Sequence[Input]) -> str:
    """Rows in time with equal keys and near event times, in the batch of the last of them; rows of one input as asked."""
    options = spec["with"]
    lateness = micros(options.get("allowedLateness", "0s"))
    for item in inputs:
        time = options["time"] if isinstance(options["time"], str) else options["time"][item.alias]
        last = f"_time + {lateness}"
        if "size" in options:
            last += f" - _time + {_floor('_time', micros(options['size']))} + {micros(options['size'])}"
        tables.make(
            f"{name} {item.alias}",
            f"SELECT * FROM (SELECT i.*, i.rowid AS _row, {tables.event_time(item.table, time)} AS _time, m.closed AS _closed "
            f"FROM {quoted(item.table)} i JOIN {quoted(_marks(name))} m ON m._batch = i._batch) WHERE {last} > _closed",
        )
    taken = [f"SELECT '{item.alias}' AS _input, _row FROM {quoted(f'{name} {item.alias}')}" for item in inputs]
    tables.make(_members(name), " UNION ALL ".join(taken))
    batch = f"greatest({', '.join(quoted(item.alias) + '._batch' for item in inputs)})"
    joined = ", ".join(f"{quoted(f'{name} {item.alias}')} AS {quoted(item.alias)}" for item in inputs)
    conditions = [*_meeting(inputs, options), *(f"({options[where]})" for where in ("where",) if where in options)]
    rows = ", ".join(f"{quoted(item.alias)}._row AS {quoted(item.alias)}" for item in inputs)
    tables.make(f"{name} pairs", f"SELECT {batch} AS _batch, {rows} FROM {joined} WHERE {' AND '.join(conditions)}")
    emitted = [_first_match(name, options["semi"])] if "semi" in options else []
    if not emitted and "anti" not in options:
        emitted.append(f"SELECT * FROM {quoted(f'{name} pairs')}")
    for alias in (*options.get("outer", ()), *([options["anti"]] if "anti" in options else ())):
        emitted.append(_without_match(name, alias, micros(options["within"]), lateness))
    single = options.get("semi") or options.get("anti")
    shown = [item for item in inputs if single in (None, item.alias)]
    every = [f"{quoted(column)}" for column in tables.types(shown[0].table)] if single else _all_columns(tables, spec, inputs)
    columns = ", ".join(options.get("select") or every)
    taken = [(quoted(f"{name} {item.alias}"), quoted(item.alias)) for item in shown]
    found = " ".join(f"LEFT JOIN {table} AS {alias} ON {alias}._row = e.{alias}" for table, alias in taken)
    return f"SELECT e._batch, {columns} FROM ({' UNION ALL BY NAME '.join(emitted)}) e {found}"


def _first_match(name: str, alias: str) -> str:
    return f"SELECT min(_batch) AS _batch, {quoted(alias)} FROM {quoted(f'{name} pairs')} GROUP BY {quoted(alias)}"


def _without_match(name: str, alias: str, within: int, lateness: int) -> str:
    """Rows that met none, in the first batch whose watermark lets none be met, in whole milliseconds."""
    over = f"(m.closes - {lateness}) // {_MILLISECOND} * {_MILLISECOND} - {within + _MILLISECOND}"
    return (
        f"SELECT min(m._batch) AS _batch, r._row AS {quoted(alias)} FROM {quoted(f'{name} {alias}')} r "
        f"JOIN {quoted(_marks(name))} m ON m._batch >= r._batch AND r._time <= {over} "
        f"WHERE r._row NOT IN (SELECT {quoted(alias)} FROM {quoted(f'{name} pairs')}) GROUP BY r._row"
    )


def late_rows(name: str, inputs: Sequence[Input]) -> str:
    """The rows of all inputs that are in no open window, with the columns of all inputs."""
    return " UNION ALL BY NAME ".join(
        f"SELECT * EXCLUDE _row FROM (SELECT *, rowid AS _row FROM {quoted(item.table)}) i WHERE NOT EXISTS "
        f"(SELECT * FROM {quoted(_members(name))} m WHERE m._input = '{item.alias}' AND m._row = i._row)"
        for item in inputs
    )


def left_open(tables: Tables, name: str, number: int, watermark: int) -> list[tuple[str | None, ...]]:
    """The windows that `watermark`, after batch `number`, had passed, and that a later batch emitted first."""
    if _members(name) not in tables.names() or "window_end" not in tables.types(name):
        return []
    return tables.texts(
        f"SELECT DISTINCT _w.window_start, _w.window_end FROM {quoted(name)} _w, {quoted(_marks(name))} now "
        f"WHERE now._batch = {number} AND _w._batch > {number} "
        f"AND epoch_us(_w.window_end) + now.behind <= {watermark} AND epoch_us(_w.window_end) > now.closes "
        f"AND EXISTS (SELECT * FROM {quoted(_members(name))} m "
        f"WHERE m._batch <= {number} AND m._start = epoch_us(_w.window_start))"
    )


def micros(duration: str) -> int:
    """The microseconds of `12s`."""
    return int(duration.removesuffix("s")) * 1_000_000


def _marks(name: str) -> str:
    return f"{name} marks"


def _members(name: str) -> str:
    """The table of the rows that are in windows: `_input`, `_row`."""
    return f"{name} members"


def _floor(time: str, size: int) -> str:
    """SQL: the last multiple of `size` that is not after `time`."""
    return f"({time} - (({time} % {size}) + {size}) % {size})"


def _timed_rows(tables: Tables, spec: Spec, inputs: Sequence[Input]) -> str:
    """The rows of all inputs with a number of their own, `_row`, and their event time, `_time`."""
    parts = []
    for item in inputs:
        time = tables.event_time(item.table, spec["with"]["time"])
        own = f"_batch, '{item.alias}' AS _input, rowid AS _row, {time} AS _time"
        parts.append(f"SELECT {own}, {keyed_columns(spec, item)} FROM {quoted(item.table)}")
    return " UNION ALL ".join(parts)


def _meeting(inputs: Sequence[Input], options: Spec) -> list[str]:
    """SQL: the keys of all inputs are equal, and every two of them are near in time."""
    conditions = []
    for place, one in enumerate(inputs):
        for other in inputs[place + 1 :]:
            a, b = quoted(one.alias), quoted(other.alias)
            keys = zip(one.key, other.key, strict=True)
            conditions += [f"{a}.{quoted(mine)} IS NOT DISTINCT FROM {b}.{quoted(theirs)}" for mine, theirs in keys]
            if "size" in options:
                first, second = (_floor(f"{alias}._time", micros(options["size"])) for alias in (a, b))
                conditions.append(f"{first} = {second}")
            else:
                conditions.append(f"abs({a}._time - {b}._time) <= {micros(options['within'])}")
    return conditions


def _all_columns(tables: Tables, spec: Spec, inputs: Sequence[Input]) -> list[str]:
    """The key, then all other columns as input_column."""
    key = spec["grouping"]["key"]
    columns = [
        f"coalesce({', '.join(f'{quoted(item.alias)}.{quoted(item.key[place])}' for item in inputs)}) AS {quoted(name)}"
        for place, name in enumerate(key)
    ]
    for item in inputs:
        others = [column for column in tables.types(item.table) if column not in key]
        columns += [f"{quoted(item.alias)}.{quoted(column)} AS {quoted(f'{item.alias}_{column}')}" for column in others]
    return columns
