"""The rows that each sink takes: its types, known before the start, and its values, proved before a batch is committed.

A sink gets rows after their commit: what it cannot write then stops the topology for good. So a format declares the types that
it can write; rows of them are held against its rules in each batch, and the first of them go through its own encoder.
"""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.contract.errors import StreamTopologyError
from streamtopology.jobs.columnar.map_entries import lists_of

# Rows of the first batch of a schema that a sink's encoder is tried on.
FIRST_ROWS = 1000

_DAY = 86_400
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
# The years before and after 1 that Arrow's texts of dates and times go to.
MOST_YEARS = 32_000

PLAIN: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_null,
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    pa.types.is_duration,
)
LISTS: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)

# Raised by encoders for rows that they cannot write; parquet raises OSError for some.
_UNWRITABLE = (pa.ArrowException, LookupError, ValueError, TypeError, OverflowError, OSError)


class UnwritableValue(StreamTopologyError):
    """A value that a sink's format cannot hold: a tuple is at fault. Nothing of its batch is committed."""


@dataclass(frozen=True)
class Takes:
    """The rows that sinks of a format can write.

    refuse: the reason why a type cannot be written, None if it can, whatever it is made of. columns: sentences on the schema
    as a whole. encode: the sink's own encoder, in memory. check: raises UnwritableValue for values of a column that the format
    does not hold; `where` is for its message. prove: the same for the rows as a whole. schema: the columns that are written.
    is_checked: true for types of which each value must be one by Arrow's rules, such as texts in UTF-8.
    """

    refuse: Callable[[pa.DataType], str | None]
    encode: Callable[[pa.RecordBatch], object]
    columns: Callable[[pa.Schema], Iterator[str]] = lambda schema: iter(())
    check: Callable[[pa.Array, str], None] = lambda column, where: None
    prove: Callable[[pa.RecordBatch, str], None] = lambda rows, where: None
    schema: Callable[[pa.Schema], pa.Schema] = lambda schema: schema
    is_checked: Callable[[pa.DataType], bool] = lambda kind: True

    def refusals(self, schema: pa.Schema) -> list[str]:
        """A sentence for each reason why rows of `schema` cannot be written; the type of a column is named by its path."""
        written = self.schema(schema)
        found = [*self.columns(schema), *(text for field in written for text in self._refused(field.name, field.type))]
        if not found and (why := self._tried(schema)):
            found.append(f"cannot write rows of {', '.join(f'{field.name} {field.type}' for field in schema)}: {why}")
        return found

    def _refused(self, path: str, kind: pa.DataType) -> Iterator[str]:
        if (why := self.refuse(kind)) is not None:
            yield f"cannot write column {path!r} of type {kind}{why and f': {why}'}"
        else:
            for field in parts(kind):
                yield from self._refused(f"{path}.{field.name}" if field.name else path, field.type)

    def _tried(self, schema: pa.Schema) -> str | None:
        """The error of the encoder on a row of NULLs; None without any."""
        nullable = pa.schema([pa.field(field.name, field.type) for field in schema])
        try:
            rows = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in nullable], schema=nullable)
        except _UNWRITABLE:
            return None  # a type without NULL
        try:
            self.encode(rows)
        except _UNWRITABLE as error:
            return str(error)
        return None


class Proof:
    """Proves of one operator's rows that each of its sinks can write them. `sinks`: what each takes, by its name for people."""

    def __init__(self, sinks: Mapping[str, Takes]) -> None:
        self._sinks = dict(sinks)
        self._tried = set[tuple[str, pa.Schema]]()

    def check(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Raise UnwritableValue, naming sink, column and finding, if some of `batches` cannot be written."""
        for rows in batches:
            if rows.num_rows:
                for name, takes in self._sinks.items():
                    self._check(name, takes, rows)

    def _check(self, name: str, takes: Takes, rows: pa.RecordBatch) -> None:
        wanted = takes.schema(rows.schema)
        for field, column in zip(rows.schema, rows.columns, strict=True):
            where = f"{name} cannot write column {field.name!r}"
            if field in wanted and takes.is_checked(field.type):
                check_column(column, field, where, takes.check)
        takes.prove(rows, name)
        if (name, rows.schema) not in self._tried:
            try:
                takes.encode(rows.slice(0, FIRST_ROWS))
            except _UNWRITABLE as error:
                raise UnwritableValue(f"{name} cannot write these rows: {error}; correct what the operator emits") from error
            self._tried.add((name, rows.schema))


def check_column(column: pa.Array, field: pa.Field, where: str, check: Callable[[pa.Array, str], None]) -> None:
    """Raise UnwritableValue for NULLs and values that the type of `field` does not have, and for those that `check` refuses."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise UnwritableValue(f"{where}: {error}; the operator must emit values of the type {field.type}") from error
    _check_below(column, field, where, check)


def _check_below(column: pa.Array, field: pa.Field, where: str, check: Callable[[pa.Array, str], None]) -> None:
    if not field.nullable and column.null_count:
        raise UnwritableValue(f"{where}: it holds NULL, and the operator's `output` declares it as not nullable")
    check(column, where)
    for child, values in zip(parts(field.type), _children(column), strict=False):
        _check_below(values, child, f"{where}, in its {child.name!r}" if child.name else where, check)


def parts(kind: pa.DataType) -> list[pa.Field]:
    """The types that a type is made of."""
    if pa.types.is_dictionary(kind):
        return [pa.field("", kind.value_type)]
    if isinstance(kind, pa.BaseExtensionType):
        return [pa.field("", kind.storage_type)]
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.field(place) for place in range(kind.num_fields)] if pa.types.is_nested(kind) else []


def _children(column: pa.Array) -> list[pa.Array]:
    """The values of `parts` that the rows of `column` have; NULL structs and lists have none."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return [column.dictionary]
    if isinstance(column, pa.ExtensionArray):
        return [column.storage]
    if pa.types.is_map(kind):
        return [lists_of(column, part).flatten() for part in (column.keys, column.items)]
    if pa.types.is_struct(kind):
        return _present(column)
    if any(is_list(kind) for is_list in LISTS):
        return [column.flatten()]
    return []


def _present(column: pa.StructArray) -> list[pa.Array]:
    """The fields of the structs that are not NULL."""
    try:
        return list(column.drop_null().flatten())
    except pa.ArrowNotImplementedError:  # of views Arrow takes slices only
        offsets, absent = pa.array(range(len(column) + 1), pa.int32()), column.is_null()
        fields = map(column.field, range(column.type.num_fields))
        return [pa.ListArray.from_arrays(offsets, values, mask=absent).flatten() for values in fields]


def check_times(column: pa.Array, where: str) -> None:
    """Raise UnwritableValue for dates and times that no text spells: those more than `MOST_YEARS` years from the year 1."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        check_range(column, MOST_YEARS * 365 * _DAY * _UNITS[kind.unit], where)
    elif pa.types.is_date32(kind):
        check_range(column, MOST_YEARS * 365, where)
    elif pa.types.is_date64(kind):
        check_range(column, MOST_YEARS * 365 * _DAY * 1000, where)


def check_range(column: pa.Array, most: int, where: str) -> None:
    """Raise UnwritableValue for a time whose number in its unit is beyond `most`."""
    if most >= 2**63 or not len(column):
        return
    whole = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
    found = pc.min_max(column.view(whole)).as_py()
    for value in (found["min"], found["max"]):
        if value is not None and abs(value) > most:
            raise UnwritableValue(
                f"{where}: {value} as {column.type} is out of its range (at most {most}); correct it in the operator or set it "
                "to NULL"
            )


def names_twice(names: Sequence[str]) -> list[str]:
    """The names that are there more than once."""
    return [name for name, count in Counter(names).items() if count > 1]


def twice_in_structs(kind: pa.DataType) -> str | None:
    """A clause for a struct with two fields of one name; None for other types."""
    twice = names_twice([field.name for field in kind]) if pa.types.is_struct(kind) else []
    return f"it has two fields {twice[0]!r}" if twice else None
