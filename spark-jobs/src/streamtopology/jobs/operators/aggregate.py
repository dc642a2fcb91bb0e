"""aggregate: functions of columns, per group: sum, mean, min, max, count, and those of `accumulators`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar import expressions
from streamtopology.jobs.lazy import LazyModule
from streamtopology.jobs.operators.accumulators import ACCUMULATORS, Accumulator, ArgMax, TopOf
from streamtopology.jobs.operators.base import Rows, field_values
from streamtopology.jobs.operators.columns import NUMBERS, countable, numbers, of_ranks, ranks, values_of_state
from streamtopology.jobs.operators.decimals import mean_type, means, of_words, sum_type, words_of
from streamtopology.jobs.operators.extremes import has_extremes, keep_extremes
from streamtopology.jobs.operators.keyed_aggregate import KeyedAggregate
from streamtopology.jobs.operators.options import OptionError, one_of, require_column
from streamtopology.jobs.state import Field, KeyedState
from streamtopology.jobs.state.schema import Merge
from streamtopology.topology import nearest

if TYPE_CHECKING:
    from streamtopology.jobs.operators import kernels
else:
    kernels = LazyModule("streamtopology.jobs.operators.kernels")

# The fields that the state keeps for a function in addition to the count.
_KEPT: Mapping[str, Merge] = {"sum": "sum", "mean": "sum", "min": "min", "max": "max"}
FUNCTIONS = ("count", "sum", "mean", "min", "max", *ACCUMULATORS)
NANS = ("ignore", "keep")
# Functions by names that other systems and people have for them.
_OTHER_NAMES: Mapping[str, str] = {
    "avg": "mean", "average": "mean", "total": "sum", "minimum": "min", "maximum": "max",
    "std": "stddev", "stddev_samp": "stddev", "var": "variance", "var_samp": "variance", "first_value": "first",
    "last_value": "last", "any_value": "first", "list": "collect_list", "array_agg": "collect_list", "bool_and": "min",
    "bool_or": "max",
}  # fmt: skip
_CALL = re.compile(r"\s*(\w+)\s*\(\s*(.*?)\s*\)\s*", re.DOTALL)
_MOST = re.compile(r"(.*\S)\s*,\s*(\d+)", re.DOTALL)
MOST_OF_TOP = 1000
_DISTINCT = re.compile(r"distinct\s+", re.IGNORECASE)
_ROWS = "agg_rows"
_HIGH = "high"


@dataclass(frozen=True)
class Call:
    """`function(column)` under the name `name`; column "" is count(). It may be a SQL expression of columns, too."""

    name: str
    function: str
    column: str
    # Of arg_max and arg_min: how many are wanted, as a list; 0: one, alone.
    most: int = 0

    @property
    def kept(self) -> str:
        """What of the column is kept for an accumulator's function, by name."""
        return f"{self.function}_{self.most}" if self.most else ACCUMULATORS[self.function].name

    def accumulator(self, kind: pa.DataType) -> Accumulator:
        """It for a column of type `kind`."""
        made, prefix = ACCUMULATORS[self.function], _field(ACCUMULATORS[self.function].name, self.column)
        return TopOf(prefix, kind, self.most, made.sign) if self.most and issubclass(made, ArgMax) else made(prefix, kind)

    @property
    def is_computed(self) -> bool:
        return re.fullmatch(r"\w*", self.column) is None


def parse_calls(aggregates: Any) -> tuple[Call, ...]:
    """`{total: sum(amount), trips: count()}` as calls. Raises OptionError."""
    if not isinstance(aggregates, Mapping) or not aggregates:
        raise OptionError(
            f"option 'aggregates' is {aggregates!r}; allowed: names with calls, {{total: sum(amount)}}", about="aggregates"
        )
    calls = []
    for name, text in aggregates.items():
        match = _CALL.fullmatch(text) if isinstance(text, str) else None
        match = match if match is not None and _closes_what_it_opens(match[2]) else None
        if match is None or match[1] not in FUNCTIONS or (match[1] != "count" and match[2] in ("", "*")):
            raise OptionError(
                f"aggregate {name!r} is {text!r}; allowed: count(), or a column or SQL expression in {', '.join(FUNCTIONS)}, "
                f"as sum(amount){_likely(match)}",
                about=text if isinstance(text, str) else "aggregates",
            )
        function, column = match[1], "" if match[2] == "*" else match[2]
        if function == "count" and _DISTINCT.match(column):
            function, column = "count_distinct", _DISTINCT.sub("", column, count=1)
        counted = _MOST.fullmatch(column) if function in ("arg_max", "arg_min") else None
        if counted is not None and not 1 <= int(counted[2]) <= MOST_OF_TOP:
            raise OptionError(f"aggregate {name!r} is {text!r}; allowed: 1 to {MOST_OF_TOP:,} of them", about=text)
        calls.append(
            Call(str(name), function, column) if counted is None else Call(str(name), function, counted[1], int(counted[2]))
        )
    return tuple(calls)


def _closes_what_it_opens(text: str) -> bool:
    """True if each bracket that `text` closes is its own: `x) + sum(y` is no argument of one call."""
    depth = 0
    for letter in re.sub(r"'[^']*'", "", text):
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return False
    return True


def _likely(call: re.Match[str] | None) -> str:
    """The end of a sentence about a call that is not allowed: the one that is probably meant, or nothing."""
    if call is None:
        return "; compute with results in a map behind"
    if call[1] in FUNCTIONS:
        return ""
    function = _OTHER_NAMES.get(call[1].lower()) or nearest(call[1], FUNCTIONS)
    return "" if function is None else f"; did you mean {function}({call[2]})?"


class Aggregates:
    """The fields, folding and results of a set of calls, for keys of any kind.

    NULL values are left out: sum, mean, min and max of nothing are NULL, count(column) counts the rest. So are NaN values,
    unless `nan` is keep: then NaN is a value as in Spark, larger than all others. A mean of integers has a sum of 128 bits;
    where `sum` shows the sum, it has to fit into 64. Decimals have Spark's types, and are exact.
    """

    def __init__(self, calls: tuple[Call, ...], inputs: Mapping[str, pa.Schema], nan: str = "ignore") -> None:
        self.calls = calls
        self._keeps_nan = nan == "keep"
        self._types = {call.column: _common_type(call, inputs) for call in calls if call.column}
        self._computed = {call.column: _as(call.column) for call in calls if call.is_computed}
        self._kinds: dict[str, list[Merge]] = {
            column: sorted({_KEPT[call.function] for call in calls if call.column == column and call.function in _KEPT})
            for column in self._types
        }
        self._accumulators: dict[str, dict[str, Accumulator]] = {column: {} for column in self._types}
        for call in calls:
            if call.function in ACCUMULATORS:
                self._accumulators[call.column][call.kept] = call.accumulator(self._types[call.column])
        called = {(call.function, call.column) for call in calls}
        self._wide = {
            column
            for column, kind in self._types.items()
            if (_is_decimal(kind) and "sum" in self._kinds[column])
            or (("mean", column) in called and ("sum", column) not in called and not pa.types.is_floating(kind))
        }

    @property
    def fields(self) -> tuple[Field, ...]:
        """One count per column, and what the calls need of it."""
        needed: dict[str, Field] = {}
        for call in self.calls:
            counter = _count_field(call.column)
            needed[counter] = Field(counter, np.dtype(np.int64), merge="sum")
            kind = _KEPT.get(call.function)
            if kind is not None:
                field = _field(kind, call.column)
                needed[field] = self._kept(field, kind, self._types[call.column])
        for accumulators in self._accumulators.values():
            needed |= {field.name: field for accumulator in accumulators.values() for field in accumulator.fields}
        for column in sorted(self._wide):  # `added`: a `sum`, called before, had 64 bits
            field, means = _field(_HIGH, column), _meaning(self._types[column]) if _is_decimal(self._types[column]) else ""
            needed[field] = Field(field, np.dtype(np.int64), merge="sum", added=True, means=means)
        return tuple(needed.values())

    def _kept(self, field: str, kind: Merge, type_: pa.DataType) -> Field:
        if kind != "sum" and has_extremes(type_):
            return Field.of(field, type_)
        if self._is_ranked(kind, type_):
            dtype = np.dtype(np.int64)
            return Field(field, dtype, initial=_initial(kind, dtype), merge=kind, means="ranks of numbers and NaN")
        dtype = _dtype(type_)
        return Field(field, dtype, initial=_initial(kind, dtype), merge=kind, means=_meaning(type_))

    def _is_ranked(self, kind: str, type_: pa.DataType) -> bool:
        """True where the state has the ranks of floats, among which NaN has one, too."""
        return self._keeps_nan and kind != "sum" and pa.types.is_floating(type_)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(call.name, self._result_type(call)) for call in self.calls])

    def fold(self, rows: Rows, slots: np.ndarray, state: KeyedState) -> None:
        """Add tuple i to slot slots[i]. Raises OverflowError when a sum of integers leaves 64 bits."""
        computed = expressions.project(rows.batch, list(self._computed.values())) if self._computed else rows.batch
        if any(not call.column for call in self.calls):
            kernels.count_at(state.column(_ROWS), slots)
        for column, type_ in self._types.items():
            kinds, given = self._kinds[column], (computed if column in self._computed else rows.batch).column(column)
            if isinstance(given, pa.DictionaryArray):
                given = given.dictionary_decode()
            if kinds and not has_extremes(type_):
                values, counts = numbers(given, self._keeps_nan)
                values = values if counts is None else values[counts]
            else:
                counts = countable(given, self._keeps_nan)
                values = given if counts is None else given.filter(pa.array(counts))
            at = slots if counts is None else slots[counts]
            for accumulator in self._accumulators[column].values():
                kept = given if counts is None else given.filter(pa.array(counts))
                kept = kept if kept.type.equals(type_) else kept.cast(type_)  # times of one instant have the reader's zone
                accumulator.fold(state, at, kept, state.column(_count_field(column)))
            kernels.count_at(state.column(_count_field(column)), at)
            for kind in kinds:
                self._add(state, kind, column, at, values)

    def _add(self, state: KeyedState, kind: Merge, column: str, slots: np.ndarray, values: np.ndarray | pa.Array) -> None:
        """Fold values that count into their slots."""
        if not isinstance(values, np.ndarray):
            if kind == "sum":
                self._add_decimals(state, column, slots, values)
            else:
                keep_extremes(state, _field(kind, column), slots, values, kind)
            return
        self._combine_into(state, kind, column, slots, ranks(values) if self._is_ranked(kind, self._types[column]) else values)

    def _add_decimals(self, state: KeyedState, column: str, slots: np.ndarray, values: pa.Array) -> None:
        high, low = words_of(values)
        self._combine_into(state, "sum", column, slots, low)
        kernels.combine_into(state.column(_field(_HIGH, column)), slots, high, "sum")
        if sum_type(values.type).precision - values.type.precision < 10:  # else it takes as many tuples as no stream has
            changed = np.unique(slots)
            self._sums(state, column, changed, np.zeros(len(changed), np.bool_))

    def combine(self, state: KeyedState, slots: np.ndarray, partial: pa.RecordBatch) -> None:
        """Fold row i of `partial`, a column per field, into slot slots[i]. Raises OverflowError as `fold`."""
        done: set[str] = set()
        for column, accumulators in self._accumulators.items():
            counter = _count_field(column)
            for accumulator in accumulators.values():
                accumulator.combine(state, slots, partial, partial.column(counter).to_numpy(), state.column(counter))
                done |= {field.name for field in accumulator.fields}
        low = {_field("sum", column): column for column in self._wide}
        extremes: dict[str, Literal["min", "max"]] = {
            _field(kind, column): kind for column, kinds in self._kinds.items() for kind in kinds if kind != "sum"
        }
        for field in self.fields:
            if field.name in done:
                continue
            if field.merge is None:
                values = partial.column(field.name)
                keep_extremes(
                    state, field.name, slots[values.is_valid().to_numpy(False)], values.drop_null(), extremes[field.name]
                )
            elif field.name in low:
                self._combine_into(state, "sum", low[field.name], slots, field_values(partial, field))
            else:
                kernels.combine_into(state.column(field.name), slots, field_values(partial, field), field.merge)

    def upgrade(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Leave out the high words of state that a `mean` wrote before a `sum` of its column was asked for, if all are 0."""
        fields = {field.name for field in self.fields}
        high = [name for name in rows.schema.names if name.startswith(_field(_HIGH, "")) and name not in fields]
        return rows.drop_columns([name for name in high if not np.any(rows.column(name).to_numpy())])

    def _combine_into(self, state: KeyedState, kind: str, column: str, slots: np.ndarray, values: np.ndarray) -> None:
        target = state.column(_field(kind, column))
        if kind == "sum" and column in self._wide:
            kernels.sum_wide_at(target, state.column(_field(_HIGH, column)), slots, values)
        else:
            kernels.combine_into(target, slots, values, kind)

    def results(self, slots: np.ndarray, state: KeyedState) -> list[pa.Array]:
        return [self._result(call, slots, state) for call in self.calls]

    def _result(self, call: Call, slots: np.ndarray, state: KeyedState) -> pa.Array:
        counted = state.column(_count_field(call.column))[slots]
        if call.function == "count":
            return pa.array(counted)
        if call.function in ACCUMULATORS:
            return self._accumulator(call).results(call.function, state, slots, counted)
        nothing, type_, kind = counted == 0, self._types[call.column], self._result_type(call)
        field = _field(_KEPT[call.function], call.column)
        if _is_decimal(type_) and call.function in ("sum", "mean"):
            sums = self._sums(state, call.column, slots, nothing)
            return sums if call.function == "sum" else means(sums, np.where(nothing, 1, counted), kind)
        if has_extremes(type_):
            return state.read(field, slots)
        values = state.column(field)[slots]
        if call.function == "mean":
            if call.column in self._wide:
                values = _rounded(state.column(_field(_HIGH, call.column))[slots], values)
            return pa.array(values / np.where(nothing, 1, counted), pa.float64(), mask=nothing)
        values = np.where(nothing, 0, values)
        if self._is_ranked(call.function, type_):
            values = of_ranks(values)
        with values_of_state(f"{call.function}({call.column})", kind):
            return _as_type(pa.array(values, mask=nothing), kind)

    def _sums(self, state: KeyedState, column: str, slots: np.ndarray, nothing: np.ndarray) -> pa.Array:
        """The sums of decimals; NULL where bool[n] `nothing`."""
        high, low = (state.column(_field(kind, column))[slots] for kind in (_HIGH, "sum"))
        return of_words(high, low, nothing, sum_type(self._types[column]))

    def _result_type(self, call: Call) -> pa.DataType:
        if call.function == "count":
            return pa.int64()
        if call.function in ACCUMULATORS:
            return self._accumulator(call).result_type(call.function)
        kind = self._types[call.column]
        if call.function in ("min", "max"):
            return kind
        if _is_decimal(kind):
            return sum_type(kind) if call.function == "sum" else mean_type(kind)
        return pa.float64() if call.function == "mean" else pa.from_numpy_dtype(_dtype(kind))

    def _accumulator(self, call: Call) -> Accumulator:
        return self._accumulators[call.column][call.kept]


class Aggregate(KeyedAggregate):
    """`aggregates`: result column -> call, e.g. `{total: sum(amount), trips: count(), last: max(at)}`."""

    def __init__(self, aggregates: Mapping[str, str], nan: str = "ignore", **common: Any) -> None:
        super().__init__(**common)
        self.calls = parse_calls(aggregates)
        self.nan = one_of(nan, NANS, "nan")

    def fields_for(self, inputs: Mapping[str, pa.Schema]) -> tuple[Field, ...]:
        self.aggregates = Aggregates(self.calls, inputs, self.nan)
        return self.aggregates.fields

    def result_schema(self) -> pa.Schema:
        return self.aggregates.schema

    def fold(self, rows: Rows, slots: np.ndarray, state: KeyedState) -> None:
        self.aggregates.fold(rows, slots, state)

    def combine(self, state: KeyedState, slots: np.ndarray, partial: pa.RecordBatch) -> None:
        self.aggregates.combine(state, slots, partial)
        self.groups.mark(slots)

    def upgrade(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return self.aggregates.upgrade(rows)

    def results(self, slots: np.ndarray, state: KeyedState) -> list[pa.Array]:
        return self.aggregates.results(slots, state)


def _rounded(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """high * 2**64 + low (int64 each) as float64, rounded once: what the first addition loses is added to the rest, exactly."""
    large, upper, lower = high * 2.0**64, (low >> 32) * 2.0**32, low & 0xFFFF_FFFF
    total = large + upper
    return total + ((upper - (total - large)) + lower)


def _field(kind: str, column: str) -> str:
    return f"agg_{kind}_{column}"


def narrow_sums(fields: Iterable[Field]) -> dict[str, str]:
    """Field -> column of the sums of integers that have to fit into 64 bits; of a count, field -> field."""
    sums = {one.name: one for one in fields if one.merge == "sum" and one.dtype == np.int64 and not one.shape}
    columns = {name: name.removeprefix(_field("sum", "")) for name in sums}
    words = {_field(kind, column) for column in columns.values() for kind in (_HIGH, "sum") if _field(_HIGH, column) in sums}
    return {name: column for name, column in columns.items() if name not in words}


def _count_field(column: str) -> str:
    return f"agg_count_{column}" if column else _ROWS


_is_decimal = pa.types.is_decimal128


def _dtype(kind: pa.DataType) -> np.dtype:
    return np.dtype(np.float64 if pa.types.is_floating(kind) else np.int64)


def _meaning(kind: pa.DataType) -> str:
    """Name what the numbers in the state of a column stand for: a zone changes how a time is shown, not the time."""
    if pa.types.is_timestamp(kind):
        return str(pa.timestamp(kind.unit))
    if _is_decimal(kind):
        return f"decimals with {kind.scale} digits behind the point"
    return str(kind) if pa.types.is_temporal(kind) else "numbers"


def _initial(kind: str, dtype: np.dtype) -> float:
    if kind == "sum":
        return 0
    low, high = (-np.inf, np.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return high if kind == "min" else low


def _as_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_temporal(kind):
        storage = pa.int32() if kind.bit_width == 32 else pa.int64()
        return values.cast(storage).view(kind)
    return values.cast(kind)


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if isinstance(kind, pa.DictionaryType) else kind


def _type_of(call: Call, inputs: Mapping[str, pa.Schema], alias: str) -> pa.DataType:
    if not call.is_computed:
        return require_column(inputs, call.column, alias).type
    if re.search(r"\bunnest\b", call.column, re.IGNORECASE):
        raise OptionError(
            f"aggregate {call.function}({call.column}) makes several tuples of one; do it in a map before", call.column
        )
    return expressions.output_schema(inputs[alias], [_as(call.column)]).field(0).type


def _as(expression: str) -> str:
    """The expression as a column of its own name."""
    return f"({expression}\n) AS {expressions.quoted(expression)}"


def _common_type(call: Call, inputs: Mapping[str, pa.Schema]) -> pa.DataType:
    """The type of a column or expression, the same in every input."""
    kinds = [_plain(_type_of(call, inputs, alias)) for alias in inputs]
    if any(kind != kinds[0] for kind in kinds):
        found = ", ".join(map(str, kinds))
        raise OptionError(f"column {call.column!r} is {found} in different inputs; cast it in a map", about=call.column)
    kind = kinds[0]
    if call.function in ACCUMULATORS:
        if ACCUMULATORS[call.function].takes(kind):
            return kind
        allowed = ACCUMULATORS[call.function].allowed
        raise OptionError(f"{call.function}({call.column}) of {kind}; allowed: {allowed}; a map can cast it", about=call.column)
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or _is_decimal(kind)
    ordered = pa.types.is_boolean(kind) or has_extremes(kind) or (pa.types.is_temporal(kind) and not pa.types.is_interval(kind))
    if number or call.function == "count" or (ordered and call.function in ("min", "max")):
        return kind
    allowed = (
        NUMBERS + ", or a decimal" + (", a text, bytes, a boolean, a time or a date" if call.function in ("min", "max") else "")
    )
    raise OptionError(f"{call.function}({call.column}) of {kind}; allowed: {allowed}; a map can cast it", about=call.column)
