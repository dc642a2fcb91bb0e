"""A small table whose columns are added to the tuples that match."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.jobs.operators.lookup_file import number_texts, read_lookup
from streamtopology.jobs.operators.options import OptionError, require_column
from streamtopology.topology import did_you_mean

_ALLOWED = ("columns", "file", "key", "on", "options", "schema")

# The name as which Kubernetes' tools send a bare `on`.
_KUBERNETES_ON = "true"


@dataclass(frozen=True)
class Lookup:
    """`{file: airports.csv, on: dest, key: faa, columns: [name, lat]}`.

    The tuple's column `on` is looked up in the file's column `key` (default: the same name); `columns` (default: all
    others) are added, NULL where nothing matches. `schema` declares columns of the file by Spark DDL, `options` are those of
    a source of its format.
    """

    table: pa.Table
    on: str
    key: str
    columns: tuple[str, ...]
    file: str

    @staticmethod
    def from_options(options: Mapping[str, Any], base_dir: Path) -> Lookup:
        """Read the file, which is relative to `base_dir`. Raises OptionError."""
        if not isinstance(options, Mapping):
            raise OptionError(
                f"option 'lookup' is {options!r}; allowed: {{file: airports.csv, on: dest, key: faa}}", about="lookup"
            )
        if "on" not in options and _KUBERNETES_ON in options:
            options = {"on" if name == _KUBERNETES_ON else name: value for name, value in options.items()}
        unknown = sorted(set(options) - set(_ALLOWED))
        missing = sorted({"file", "on"} - set(options))
        if unknown or missing:
            what = f"unknown option lookup.{unknown[0]}" if unknown else f"option lookup.{missing[0]} is missing"
            raise OptionError(f"{what}; allowed: {', '.join(_ALLOWED)}", about="lookup")
        file, on = str(options["file"]), str(options["on"])
        table = read_lookup(base_dir / file, options.get("schema"), options.get("options"))
        key = str(options.get("key", on))
        columns = _chosen(options.get("columns")) or tuple(name for name in table.column_names if name != key)
        for name in (key, *columns):
            if name not in table.column_names:
                raise OptionError(
                    f"lookup file {file} has no column {name!r}; it has {', '.join(table.column_names)}"
                    f"{did_you_mean(name, table.column_names)}",
                    about=name,
                )
        keys = table.column(key)
        if pa.types.is_nested(keys.type):
            raise OptionError(
                f"column {key!r} of lookup file {file} is {keys.type}, and a key is a text, a number or a time: name another "
                "in lookup.key",
                about="lookup",
            )
        if keys.null_count or len(_comparable(keys.combine_chunks(), keys.type).unique()) < len(keys):
            zeros = " (0.0 and -0.0 are one key)" if pa.types.is_floating(keys.type) else ""
            raise OptionError(
                f"column {key!r} of lookup file {file} has a value twice or none{zeros}; it must identify each row", "lookup"
            )
        return Lookup(table, on, key, columns, file)

    def output_schema(self, schema: pa.Schema, alias: str) -> pa.Schema:
        on = require_column({alias: schema}, self.on, alias)
        both = sorted(set(schema.names) & set(self.columns))
        if both:
            raise OptionError(
                f"lookup file {self.file} and input {alias!r} both have {both[0]!r}; choose others with lookup.columns",
                about="lookup",
            )
        if _family(on.type) != _family(self.table.schema.field(self.key).type):
            raise OptionError(
                f"lookup compares column {self.on!r}, {on.type}, with {self.key!r} of {self.file}, "
                f"{self.table.schema.field(self.key).type}; cast it in a map, or declare {self.key!r} in lookup.schema",
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
        return f"; texts of lookup file {self.file} are {', '.join(texts)}: declare numbers in lookup.schema"

    def join(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`batch` with the columns of the matching row."""
        keys, wanted = self.table.column(self.key).combine_chunks(), batch.column(batch.schema.get_field_index(self.on))
        keys, wanted = _comparable(keys, wanted.type), _comparable(wanted, keys.type)
        places = pc.call_function("index_in", [wanted], pc.SetLookupOptions(value_set=keys))
        added = [self.table.column(name).combine_chunks().take(places) for name in self.columns]
        schema = pa.schema([*batch.schema, *(pa.field(name, a.type) for name, a in zip(self.columns, added, strict=True))])
        return pa.RecordBatch.from_arrays([*batch.columns, *added], schema=schema)


def _chosen(columns: Any) -> tuple[str, ...]:
    """The names of `lookup.columns`; none stands for all columns."""
    names = [] if columns is None else columns
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise OptionError(f"option lookup.columns is {columns!r}; allowed: a list of names such as [name, lat]", "lookup")
    if twice := [name for name in names if names.count(name) > 1]:
        raise OptionError(f"option lookup.columns names {twice[0]!r} twice; name it once", about="lookup")
    return tuple(names)


def _comparable(values: pa.Array, other: pa.DataType) -> pa.Array:
    """The values such that a tuple's and a file's are equal as in SQL: integers of any width, one zero."""
    if pa.types.is_integer(values.type):
        return values.cast(pa.decimal128(20) if pa.uint64() in (values.type, other) else pa.int64())
    if pa.types.is_floating(values.type):
        return pc.call_function("add", [values, pa.scalar(0.0, values.type)])
    return values


def _family(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind):
        return "integer"
    return "text" if pa.types.is_string(kind) or pa.types.is_large_string(kind) else str(kind)
