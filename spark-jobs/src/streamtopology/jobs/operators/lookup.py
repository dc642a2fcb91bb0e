"""A small table whose columns are added to the tuples that match."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamtopology.jobs.connectors.sources.descriptors import SourceSpec
from streamtopology.jobs.connectors.sources.schema.spark_types import spark_type
from streamtopology.jobs.connectors.sources.whole_table import newest
from streamtopology.jobs.operators.key_join import KeyJoin, meeting_type
from streamtopology.jobs.operators.lookup_file import number_texts, read_lookup
from streamtopology.jobs.operators.lookup_table import TABLE_OPTIONS, LookupTable, chosen
from streamtopology.jobs.operators.options import OptionError, require_column
from streamtopology.topology import did_you_mean

_ALLOWED = tuple(sorted(("columns", "file", "join", "key", "on", "options", "schema", *TABLE_OPTIONS)))

# The name as which Kubernetes' tools send a bare `on`.
_KUBERNETES_ON = "true"


@dataclass(frozen=True)
class Lookup:
    """`{file: airports.csv, on: dest, key: faa, columns: [name, lat]}`.

    The tuple's columns `on` are looked up in the table's columns `key` (default: the same names); `columns` (default: all
    others) are added. `schema` declares columns of the table by Spark DDL, `options` are those of a source of its format.
    `join`: `left` and `inner` are a join of SQL, in which a key may be there twice. Without it each key is there once, and a
    tuple without a match has NULLs.

    place: the table as people know it. again: where the table comes from if the driver reads it again; without rows then.
    """

    table: pa.Table
    on: tuple[str, ...]
    key: tuple[str, ...]
    columns: tuple[str, ...]
    place: str
    join_type: str = ""
    again: LookupTable | None = None
    types: tuple[pa.DataType, ...] = ()

    @staticmethod
    def from_options(options: Mapping[str, Any], base_dir: Path) -> Lookup:
        """Read the file, which is relative to `base_dir`, unless that is for the driver to do. Raises OptionError."""
        if not isinstance(options, Mapping):
            raise OptionError(
                f"option 'lookup' is {options!r}; allowed: {{file: airports.csv, on: dest, key: faa}}", about="lookup"
            )
        if "on" not in options and _KUBERNETES_ON in options:
            options = {"on" if name == _KUBERNETES_ON else name: value for name, value in options.items()}
        unknown = sorted(set(options) - set(_ALLOWED))
        missing = sorted({"file" if "format" not in options else "on", "on"} - set(options))
        if unknown or missing:
            what = f"unknown option lookup.{unknown[0]}" if unknown else f"option lookup.{missing[0]} is missing"
            raise OptionError(f"{what}; allowed: {', '.join(_ALLOWED)}", about="lookup")
        again = LookupTable.from_options(options, base_dir)
        if again is None:
            place = f"lookup file {options['file']}"
            table = read_lookup(base_dir / str(options["file"]), options.get("schema"), options.get("options"))
        else:
            place, table = again.place, again.declared.empty_table()
        on = _names(options["on"], "on")
        key = _names(options.get("key", options["on"]), "key")
        if len(on) != len(key):
            raise OptionError(f"lookup.on names {len(on)} columns and lookup.key {len(key)}; name as many", about="lookup")
        columns = _chosen(options.get("columns")) or tuple(name for name in table.column_names if name not in key)
        for name in (*key, *columns):
            if name not in table.column_names:
                raise OptionError(
                    f"{place} has no column {name!r}; it has {', '.join(table.column_names)}"
                    f"{did_you_mean(name, table.column_names)}",
                    about=name,
                )
        nested = [table.schema.field(name) for name in key if pa.types.is_nested(table.schema.field(name).type)]
        if nested:
            raise OptionError(
                f"column {nested[0].name!r} of {place} is {nested[0].type}, and a key is a text, a number or a time: name "
                "another in lookup.key",
                about="lookup",
            )
        join = chosen(options, "join", ("left", "inner")) if "join" in options else ""
        types = tuple(table.schema.field(name).type for name in key)
        return Lookup(table, on, key, columns, place, join, again, types).checked()

    def checked(self) -> Lookup:
        """Raises OptionError if the table has rows that are no good."""
        if not self.join_type and not self._index.is_unique(self.table.num_rows):
            floats = any(pa.types.is_floating(kind) for kind in self.types)
            zeros = " (0.0 and -0.0 are one key)" if floats else ""
            raise OptionError(
                f"column {', '.join(map(repr, self.key))} of {self.place} has a value twice or none{zeros}; it must "
                "identify each row, or set lookup.join to left or inner, which give a tuple for each row that matches",
                "lookup",
            )
        return self

    def over(self, table: pa.Table) -> Lookup:
        """The same in another version of the table. Raises OptionError."""
        return replace(self, table=table).checked()

    def newest(self, known: str | None = None) -> tuple[str, bytes] | None:
        """The version of the table as it is now, and its rows as a file of Arrow; None if its version is the `known` one.

        Raises SourceError and OptionError.
        """
        found = None if self.again is None else newest(SourceSpec.of(self.again.source), known)
        if found is None:
            return None
        version, table = found
        self.over(table)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        return version, sink.getvalue().to_pybytes()

    def on_types(self, schema: pa.Schema, alias: str) -> Lookup:
        """The same for tuples of this schema, those of the input `alias`: keys are compared in a type that holds both."""
        types = list[pa.DataType]()
        for on, key in zip(self.on, self.key, strict=True):
            one, other = require_column({alias: schema}, on, alias).type, self.table.schema.field(key).type
            kind = None if pa.types.is_nested(one) else meeting_type(one, other)
            if kind is None:
                raise OptionError(
                    f"lookup compares column {on!r}, {spark_type(one) or one}, with {key!r} of {self.place}, "
                    f"{spark_type(other) or other}; cast it in a map, or declare {key!r} in lookup.schema",
                    about="lookup",
                )
            types.append(kind)
        return self if tuple(types) == self.types else replace(self, types=tuple(types))

    def output_schema(self, schema: pa.Schema, alias: str) -> pa.Schema:
        both = sorted(set(schema.names) & set(self.columns))
        if both:
            raise OptionError(
                f"{self.place} and input {alias!r} both have {both[0]!r}; choose others with lookup.columns",
                about="lookup",
            )
        added = [pa.field(name, self.table.schema.field(name).type) for name in self.columns]
        return pa.schema([*schema, *added])

    @property
    def hint(self) -> str:
        """A clause on the columns that are texts, and might be declared as numbers; "" if there are none."""
        texts = [name for name in number_texts(self.table) if name in self.columns]
        if not texts:
            return ""
        return f"; texts of {self.place} are {', '.join(texts)}: declare numbers in lookup.schema"

    def join(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`batch` with the columns of the rows that match."""
        on = [batch.column(batch.schema.get_field_index(name)) for name in self.on]
        tuples, rows = self._index.pairs(on, keeps_all=self.join_type != "inner")
        missing = rows < 0
        places = pa.array(rows, mask=missing) if missing.any() else pa.array(rows)
        added = [values.take(places) for values in self._added]
        if tuples is not None:
            batch = batch.take(pa.array(tuples))
        schema = pa.schema([*batch.schema, *(pa.field(name, a.type) for name, a in zip(self.columns, added, strict=True))])
        return pa.RecordBatch.from_arrays([*batch.columns, *added], schema=schema)

    @cached_property
    def _index(self) -> KeyJoin:
        return KeyJoin.of([_whole(self.table, name) for name in self.key], self.types)

    @cached_property
    def _added(self) -> list[pa.Array]:
        return [_whole(self.table, name) for name in self.columns]


def _whole(table: pa.Table, name: str) -> pa.Array:
    return table.column(name).combine_chunks()


def _names(given: Any, option: str) -> tuple[str, ...]:
    """The columns that `on` or `key` names, at least one."""
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, list | tuple) else ()
    if not names or not all(isinstance(name, str) for name in names) or len({*names}) < len(names):
        raise OptionError(f"option lookup.{option} is {given!r}; allowed: a column, or a list of columns", about="lookup")
    return names


def _chosen(columns: Any) -> tuple[str, ...]:
    """The names of `lookup.columns`; none stands for all columns."""
    names = [] if columns is None else columns
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise OptionError(f"option lookup.columns is {columns!r}; allowed: a list of names such as [name, lat]", "lookup")
    if twice := [name for name in names if names.count(name) > 1]:
        raise OptionError(f"option lookup.columns names {twice[0]!r} twice; name it once", about="lookup")
    return tuple(names)
