"""A json source reads back what the json sink writes, whatever the types; and what Spark writes."""

from __future__ import annotations

import tempfile
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.streams import rows_of, spec

from streamtopology.jobs.connectors.sinks.folder import write_json_lines
from streamtopology.jobs.connectors.sources.descriptors import Descriptor
from streamtopology.jobs.connectors.sources.schema.conform import SchemaMismatchError
from streamtopology.jobs.connectors.sources.schema.ddl import ddl_to_arrow

_INTEGERS = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}
_NAIVE = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
_LEAVES: dict[str, st.SearchStrategy[Any]] = {
    "BOOLEAN": st.booleans(),
    "FLOAT": st.floats(width=32),
    "DOUBLE": st.floats(),
    "STRING": st.text(max_size=4),
    "BINARY": st.binary(max_size=5),
    "DATE": st.dates(),
    "TIMESTAMP": _NAIVE.map(lambda moment: moment.replace(tzinfo=UTC)),
    "TIMESTAMP_NTZ": _NAIVE,
    "DECIMAL(38, 6)": st.decimals(-(10**31), 10**31, places=6, allow_nan=False),
    **{name: st.integers(-(2**bits), 2**bits - 1) for name, bits in _INTEGERS.items()},
}
_KEYS = ("STRING", "BIGINT", "DATE", "BOOLEAN", "DECIMAL(38, 6)", "TIMESTAMP", "BINARY")

_Typed = tuple[str, st.SearchStrategy[Any]]


def _listed(item: _Typed) -> _Typed:
    return f"ARRAY<{item[0]}>", st.lists(st.none() | item[1], max_size=3)


def _mapped(item: _Typed, key: str) -> _Typed:
    values = st.dictionaries(_LEAVES[key], st.none() | item[1], max_size=3)
    return f"MAP<{key}, {item[0]}>", values.map(lambda pairs: list(pairs.items()))


def _structured(one: _Typed, other: _Typed) -> _Typed:
    values = st.fixed_dictionaries({'a "b"': st.none() | one[1], "c": st.none() | other[1]})
    return f'STRUCT<`a "b"`: {one[0]}, c: {other[0]}>', values


_TYPES: st.SearchStrategy[_Typed] = st.recursive(
    st.sampled_from(list(_LEAVES.items())),
    lambda inner: (
        st.builds(_listed, inner) | st.builds(_mapped, inner, st.sampled_from(_KEYS)) | st.builds(_structured, inner, inner)
    ),
    max_leaves=3,
)


@st.composite
def _tables(draw: st.DrawFn) -> pa.Table:
    kinds = draw(st.lists(_TYPES, min_size=1, max_size=3))
    schema = ddl_to_arrow(", ".join(f"c{number} {ddl}" for number, (ddl, _) in enumerate(kinds)))
    count = draw(st.integers(1, 4))
    columns = [
        pa.array(draw(st.lists(st.none() | values, min_size=count, max_size=count)), field.type)
        for field, (_, values) in zip(schema, kinds, strict=True)
    ]
    return pa.table(columns, schema=schema).slice(draw(st.integers(0, count - 1)))


def _one(ddl: str, *values: Any) -> pa.Table:
    schema = ddl_to_arrow(f"v {ddl}")
    return pa.table([pa.array(values, schema.field(0).type)], schema=schema)


def _read(text: str | bytes, schema: pa.Schema | str, **options: str) -> pa.Table:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.json"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return _read_file(path, schema, **options)


def _read_file(path: Path, schema: pa.Schema | str, **options: str) -> pa.Table:
    ddl = schema if isinstance(schema, str) else ", ".join(f"`{field.name}` {_ddl(field.type)}" for field in schema)
    source = spec(path.parent, "json", ddl, **options)
    rows = rows_of([Descriptor("s", "json", str(path), 0, 0, path.stat().st_size, 1)], source)
    return pa.Table.from_pylist(rows, schema=ddl_to_arrow(ddl))


def _ddl(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"ARRAY<{_ddl(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{_ddl(kind.key_type)}, {_ddl(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'`{kind.field(i).name}`: {_ddl(kind.field(i).type)}' for i in range(kind.num_fields))}>"
    return next(ddl for ddl in _LEAVES if ddl_to_arrow(f"v {ddl}").field(0).type == kind)


@settings(max_examples=300, deadline=None)
@given(table=_tables())
@example(table=_one("DOUBLE", float("nan"), float("inf"), float("-inf"), None, -0.0, 1e300))
@example(table=_one("ARRAY<FLOAT>", [float("nan"), 1.5]))
@example(table=_one("BINARY", b"", b"\0", None, b"\0\xff", b"abc"))
@example(table=_one("MAP<STRING, MAP<BIGINT, BINARY>>", [("a", [(1, b"\xff")])], [], None))
@example(table=_one("DATE", date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1) - timedelta(1)))
@example(table=_one("DECIMAL(38, 6)", Decimal("12345678901234567890123456789012.123456")))
@example(table=_one("STRING", '"\\\n\x00\U0001f600', "", "NaN", "2024-01-01"))
def test_source_reads_what_the_sink_wrote(table: pa.Table) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.json"
        write_json_lines(table, path)
        # As text, for NaN is not itself.
        assert str(_read_file(path, table.schema).to_pylist()) == str(table.to_pylist())


# A row written by Spark 4.3, `df.write.json`.
SPARK_LINE = (
    '{"d":"2024-01-01","t":"2024-01-01T10:00:00.500Z","n":"2024-01-01T10:00:00.000","x":"NaN","y":"-Infinity","z":1.0E20,'
    '"de":1.50,"b":true,"bi":"AAH/","m":{"k":1},"m2":{"1":"a"},"ad":["2024-01-01"],"st":{"b":"AA=="},"nu":{}}\n'
)


def test_source_reads_what_spark_writes() -> None:
    ddl = (
        "d DATE, t TIMESTAMP, n TIMESTAMP_NTZ, x DOUBLE, y DOUBLE, z DOUBLE, de DECIMAL(10, 2), b BOOLEAN, bi BINARY, "
        "m MAP<STRING, INT>, m2 MAP<INT, STRING>, ad ARRAY<DATE>, st STRUCT<b: BINARY>, nu STRUCT<x: INT>, i INT"
    )
    (row,) = _read(SPARK_LINE, ddl).to_pylist()
    at = datetime(2024, 1, 1, 10)
    assert str(row.pop("x")) == "nan"
    assert row == {
        "d": date(2024, 1, 1), "t": at.replace(microsecond=500_000, tzinfo=UTC), "n": at, "y": float("-inf"), "z": 1e20,
        "de": Decimal("1.50"), "b": True, "bi": b"\0\1\xff", "m": [("k", 1)], "m2": [(1, "a")], "ad": [date(2024, 1, 1)],
        "st": {"b": b"\0"}, "nu": {"x": None}, "i": None,
    }  # fmt: skip


@pytest.mark.parametrize("text", ["", "\n\r\n", "\ufeff"])
def test_json_files_without_rows_have_no_rows(text: str) -> None:
    assert _read(text, "a INT, m MAP<STRING, INT>").num_rows == 0


@pytest.mark.parametrize("ddl", ["a DOUBLE", "a DOUBLE, m MAP<STRING, INT>"])
def test_lines_are_rows_by_either_parser(ddl: str) -> None:
    """Windows line ends, a byte order mark, empty lines, no end of the last line; Spark reads these rows, too."""
    assert _read('\ufeff{"a":1}\r\n\r\n  {"a": 2.5}  \n{"b":1}\n{"a":-0}', ddl).column("a").to_pylist() == [1, 2.5, None, 0]
    latin = '{"a": 1, "\xe9": 2}\n'.encode("latin-1")
    assert _read(latin, ddl.replace("a DOUBLE", "`\xe9` DOUBLE"), encoding="ISO-8859-1").column(0).to_pylist() == [2]


@pytest.mark.parametrize(
    ("text", "ddl", "complaint"),
    [
        ('{"v":"2024-01-01"}\n{"v":19723}\n', "v DATE", r"line 2: column \'v\' .*date32.*the number 19723 does not fit"),
        ('{"v":"2024-01-01"}\n\n{"v":"1.1.2024"}\n', "v DATE", r"line 3: column 'v' .*the string \"1.1.2024\""),
        ('{"v":"AAE"}\n', "v BINARY", r"line 1: column 'v' .*'AAE' is no base64"),
        ('{"v":"AA=A"}\n', "v BINARY", "is no base64"),
        ('{"v":"AA\xe9="}\n', "v BINARY", "is no base64"),
        ('{"v":1.5}\n', "v BIGINT", "the number 1.5"),
        ('{"v":true}\n', "v BIGINT", "boolean true does not fit: found boolean"),
        ('{"v":"1"}\n', "v DOUBLE", "found string"),
        ('{"v":300}\n', "v TINYINT", "the number 300"),
        ('{"v":5}\n', "v STRING", "found number"),
        ('{"v":1.239}\n', "v DECIMAL(5, 2)", "the number"),
        ('{"v":[1]}\n', "v MAP<STRING, INT>", "found array"),
        ('{"v":{"x":1}}\n', "v MAP<INT, INT>", "line 1: column 'v'"),
        ('{"v":1}\n[{"v":1}]\n', "v INT", "line 2: JSON parse error: each line is one object"),
        ('{"v":1},{"v":2}\n', "v INT", "line 1: JSON parse error"),
        ('{"v":1}\n{"v":\n', "v MAP<STRING, INT>", "line 2: JSON parse error"),
        (b'{"v":"\xe9"}\n', "v STRING", "line 1 is no text in UTF-8.*options.encoding"),
    ],
)
def test_json_that_does_not_fit_is_named_by_its_line(text: str | bytes, ddl: str, complaint: str) -> None:
    with pytest.raises(SchemaMismatchError, match=complaint):
        _read(text, ddl)
