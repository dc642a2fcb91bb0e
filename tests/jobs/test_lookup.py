"""A lookup's values are those of its file: of the declared types, or such that nothing in them changes."""

from __future__ import annotations

import datetime
import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamtopology.jobs.columnar.expressions import ExpressionError
from streamtopology.jobs.operators import load
from streamtopology.jobs.operators.lookup import Lookup
from streamtopology.jobs.operators.lookup_file import unchanged
from streamtopology.jobs.operators.options import OptionError


def looked_up(tmp_path: Path, data: str | bytes, name: str = "a.csv", **options: Any) -> dict[str, list[Any]]:
    """The columns that a lookup by `k` adds, all rows of the file in their order."""
    (tmp_path / name).write_bytes(data.encode() if isinstance(data, str) else data)
    lookup = Lookup.from_options({"file": name, "on": "k"} | options, tmp_path)
    keys = lookup.table.column("k").combine_chunks()
    return lookup.join(pa.record_batch([keys], names=["k"])).select(list(lookup.columns)).to_pydict()


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["02108", "07102"], ["02108", "07102"]),
        (["1E5", "2e3"], ["1E5", "2e3"]),
        (["1e+20", "2"], ["1e+20", "2"]),
        (["1.10", "1.1"], ["1.10", "1.1"]),
        (["+49", "33"], ["+49", "33"]),
        (["-0", "1"], ["-0", "1"]),
        (["12345678901234567890", "1"], ["12345678901234567890", "1"]),
        (["0.1234567890123456789", "1"], ["0.1234567890123456789", "1"]),
        (["NA", "1"], ["NA", "1"]),
        (["nan", "inf"], ["nan", "inf"]),
        (["true", "TRUE"], ["true", "TRUE"]),
        (["12:30:00", "01:00:00"], ["12:30:00", "01:00:00"]),
        (["2024-01-01 10:00:00", "2024-01-01T10:00:00Z"], ["2024-01-01 10:00:00", "2024-01-01T10:00:00Z"]),
        (["20240101", "-5"], [20240101, -5]),
        (["40.7", "-74.168"], [40.7, -74.168]),
        (["40", ""], [40, None]),
        (["40", "0.5"], [40.0, 0.5]),
        (["true", "false"], [True, False]),
        (["2024-01-01", ""], [datetime.date(2024, 1, 1), None]),
        (["", ""], [None, None]),
        (['"a ""b"""', r"C:\new"], ['a "b"', r"C:\new"]),
    ],
)
def test_undeclared_values_are_those_of_the_file(tmp_path: Path, cells: list[str], expected: list[Any]) -> None:
    assert looked_up(tmp_path, f"k,v\na,{cells[0]}\nb,{cells[1]}\n") == {"v": expected}


@given(st.lists(st.none() | st.integers().map(str) | st.floats().map(str) | st.text("0123456789.-+eE", max_size=6)))
@example(["00.5"])
@example(["1e-05", "0.00001"])
def test_undeclared_values_written_back_are_the_texts(texts: list[str | None]) -> None:
    values = unchanged(pa.chunked_array([pa.array(texts, pa.string())]))
    assert values.cast(pa.string()).to_pylist() == texts


def test_declared_columns_have_their_types(tmp_path: Path) -> None:
    data = 'name;k;lat;opened\n"Bos;ton";02108;40.10;2024-01-01\n;1;NA;NA\n'
    options = {"sep": ";", "nullValue": "NA"}
    found = looked_up(tmp_path, data, schema="k STRING, lat DOUBLE, opened DATE, name STRING", options=options)
    assert found == {"lat": [40.1, None], "opened": [datetime.date(2024, 1, 1), None], "name": ["Bos;ton", None]}
    latin = "k,v\na,M\xfcnchen\n".encode("latin-1")
    assert looked_up(tmp_path, latin, options={"encoding": "ISO-8859-1"}) == {"v": ["M\xfcnchen"]}
    found = looked_up(tmp_path, "x,1.50\n", schema="k STRING, v DECIMAL(5, 2)", options={"header": False})
    assert str(found["v"][0]) == "1.50"


def test_json_texts_that_look_like_times_stay_texts(tmp_path: Path) -> None:
    data = '{"k":"a","v":"2024-01-01","l":["2024-01-01 10:00:00"],"n":1.5}\n'
    assert looked_up(tmp_path, data, "a.json") == {"v": ["2024-01-01"], "l": [["2024-01-01 10:00:00"]], "n": [1.5]}
    found = looked_up(tmp_path, data, "a.json", schema="k STRING, v DATE, n DECIMAL(3, 1)")
    assert found["v"] == [datetime.date(2024, 1, 1)]


def test_parquet_columns_are_held_against_their_declaration(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": ["a"], "v": pa.array([1], pa.int32())}), tmp_path / "a.parquet")
    lookup = Lookup.from_options({"file": "a.parquet", "on": "k", "schema": "k STRING, v BIGINT"}, tmp_path)
    assert lookup.table.schema.field("v").type == pa.int64()
    with pytest.raises(OptionError, match="column 'v' holds int32 but is declared string"):
        Lookup.from_options({"file": "a.parquet", "on": "k", "schema": "k STRING, v STRING"}, tmp_path)


@pytest.mark.parametrize(
    ("data", "options", "complaint"),
    [
        ("k,v\na,x\n", {"schema": "k STRING, v INT"}, r"file .*a\.csv: row 1: column 'v' is declared int32 but holds 'x'"),
        ("k,v\na,x\n", {"schema": "k STRING, w INT"}, "column 'w' is declared int32 but the file has no such column"),
        ("k,v\na,x\n", {"schema": "v STRING"}, "has no column 'k'"),
        ("k,v\na,x\n", {"schema": "k STRNG"}, "unknown type 'STRNG'"),
        ("k,v\na,x\n", {"schema": {"k": "STRING"}}, "allowed: Spark DDL such as"),
        ("k,v\na,x\n", {"options": {"sep": "||"}}, "option sep is '||', 2 characters"),
        ("k,v\na,x\n", {"options": {"seperator": ";"}}, "unknown option lookup.options.seperator; a csv file has header, sep"),
        ("k,v\na,x\n", {"options": {"nullValue": 0.1}}, "lookup.options.nullValue is 0.1; allowed: a text, in quotes"),
        ("k,v\na,x\n", {"options": [1]}, "allowed: a mapping"),
        ("k,v\na,x\n", {"options": {"encoding": "latin-17"}}, "unknown encoding"),
        ("k,v\na,x\n", {"options": {"header": False}}, "name its columns in lookup.schema"),
        ("", {}, "has no row with the names of its columns"),
        (b"k,v\na,M\xfcnchen\n", {}, "line 2 is no text in UTF-8"),
        ('k,v\na,"x\n', {}, "row 1: a quoted value has no end"),
        ('k,"v\na,x\n', {}, "the first line is no row: 'k,\"v'; write it in one line"),
        ("k,v\na,1\nb,0x10\n", {"schema": "k STRING, v INT"}, "row 2: column 'v' is declared int32 but holds '0x10'"),
        ("k,v,v\na,1,2\n", {}, "has several columns 'v'; write it with a name for each, or declare others in lookup.schema"),
        ("k,v,v\na,1,2\n", {"schema": "k STRING, v INT"}, "has several columns 'v'"),
        ("k,v\na,x\n", {"options": {"nullValue": "\ud800"}}, "option nullValue has '\\ud800', half a character"),
        ("k,v\na,x\n", {"options": {"encoding": "punycode"}}, "unknown encoding 'punycode'"),
        (
            gzip.compress(b"k,v\na,x\n", mtime=0),
            {},
            "a.csv: its name says no compression, its content .gz; end its name in .gz",
        ),
    ],
)
def test_lookup_that_cannot_be_read_is_refused(
    tmp_path: Path, data: str | bytes, options: dict[str, Any], complaint: str
) -> None:
    (tmp_path / "a.csv").write_bytes(data.encode() if isinstance(data, str) else data)
    with pytest.raises(OptionError) as refused:
        Lookup.from_options({"file": "a.csv", "on": "k"} | options, tmp_path)
    assert complaint.replace(r"a\.csv", "a.csv").rpartition(".*")[2] in str(refused.value)


def test_sum_of_texts_names_the_declaration(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,lat,n\na,40.10,1\nb,40.1,2\n")
    operator = load("enrich", tmp_path)(lookup={"file": "a.csv", "on": "k"}, add={"x": "lat + n"})
    operator.base_dir = tmp_path
    with pytest.raises(ExpressionError, match=r"texts of lookup file a\.csv are lat: declare numbers in lookup\.schema"):
        operator.prepare({"in": pa.schema([("k", pa.string())])}, ())


def test_parquet_text_that_is_none_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": ["a"], "v": [["zzzz"]]}), tmp_path / "a.parquet", compression="none")
    path = tmp_path / "a.parquet"
    path.write_bytes(path.read_bytes().replace(b"zzzz", b"zz\xff\xfe"))
    with pytest.raises(OptionError, match=r"lookup file .*a\.parquet: column 'v' is .* but holds bytes that are no UTF-8"):
        Lookup.from_options({"file": "a.parquet", "on": "k"}, tmp_path)


def json_lookup(tmp_path: Path, text: str | bytes, **options: Any) -> list[Any]:
    return looked_up(tmp_path, text, "a.json", **options)["v"]


def test_undeclared_json_is_read_in_its_encoding(tmp_path: Path) -> None:
    text = '{"k":"a","v":"M\xfcnchen"}\n'
    assert json_lookup(tmp_path, text.encode("latin-1"), options={"encoding": "ISO-8859-1"}) == ["M\xfcnchen"]
    assert json_lookup(tmp_path, text.encode("utf-16-le"), options={"encoding": "UTF-16LE"}) == ["M\xfcnchen"]
    with pytest.raises(OptionError, match=r"line 1 is no text in UTF-8.*set options\.encoding"):
        json_lookup(tmp_path, text.encode("latin-1"))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["1", "9223372036854775807"], [1, 2**63 - 1]),
        (["1.5", "9007199254740992"], [1.5, 2.0**53]),
        (["0.5", "0.12345678901234567"], [0.5, 0.12345678901234567]),
        (["100000000000000000000", "1"], [1e20, 1.0]),
        (['"12345678901234567890"', "null"], ["12345678901234567890", None]),
    ],
)
def test_undeclared_json_numbers_are_those_of_the_file(tmp_path: Path, values: list[str], expected: list[Any]) -> None:
    lines = [f'{{"k":{place},"v":{value}}}' for place, value in enumerate(values)]
    assert json_lookup(tmp_path, "\n".join(lines)) == expected
    assert json_lookup(tmp_path, "\n".join(line.replace(",", ",\n") for line in lines)) == expected


@pytest.mark.parametrize(
    "value", ["9223372036854775809", "9" * 5000, "[1.5, 9223372036854775807]", '{"w":{"x":[12345678901234567890]}}']
)
def test_whole_number_that_double_does_not_hold_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(
        OptionError, match=r"line 3: column 'v' has the number [0-9]{19,40}, which DOUBLE does not hold; declare"
    ):
        json_lookup(tmp_path, f'{{"k":1}}\n\n{{"k":2,"v":{value}}}\n')


def test_declared_json_numbers_have_all_their_digits(tmp_path: Path) -> None:
    found = json_lookup(tmp_path, '{"k":1,"v":12345678901234567890}', schema="k INT, v DECIMAL(38, 0)")
    assert [str(value) for value in found] == ["12345678901234567890"]


def test_undeclared_json_line_may_be_longer_than_a_block_of_arrow(tmp_path: Path) -> None:
    (text,) = json_lookup(tmp_path, '{"k":1,"v":"' + "x" * (3 << 20) + '"}\n')
    assert len(text) == 3 << 20


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("null\n", "each line is one object"),
        ("[1]", "each line is one object"),
        ("\n", "has no rows"),
        (
            '{"k":1}\n{"k":2,"v":' + "[" * 100_000 + "]" * 100_000 + "}\n",
            "line 2: its arrays and objects are nested too deeply",
        ),
        ('{"k":1}\n{"k":' + "[" * 100_000, "nested too deeply"),
        ('{"k":1,"k":2}', "was specified twice"),
    ],
)
def test_json_that_arrow_cannot_read_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        json_lookup(tmp_path, text)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"columns": [1]}, r"option lookup\.columns is \[1\]; allowed: a list of names"),
        ({"columns": 5}, r"option lookup\.columns is 5; allowed: a list of names"),
        ({"columns": "v"}, r"option lookup\.columns is 'v'; allowed: a list of names"),
        ({"columns": {"v": "w"}}, "allowed: a list of names"),
        ({"columns": ["v", "v"]}, r"option lookup\.columns names 'v' twice"),
        ({"columns": ["w"]}, "has no column 'w'"),
        ({"key": "l"}, r"column 'l' of lookup file a\.json is list<item: int64>, and a key is a text"),
        ({"key": "s"}, r"column 's' of lookup file a\.json is struct<x: int64>, and a key is a text"),
    ],
)
def test_options_of_a_lookup_that_cannot_be_are_refused(tmp_path: Path, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        json_lookup(tmp_path, '{"k":1,"v":2,"l":[1],"s":{"x":1}}', **options)


def test_parquet_file_with_a_name_twice_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_arrays([pa.array(["a"])] * 3, ["k", "v", "v"]), tmp_path / "a.parquet")
    for schema in ({}, {"schema": "k STRING"}):
        with pytest.raises(OptionError, match=r"has several columns 'v'"):
            Lookup.from_options({"file": "a.parquet", "on": "k"} | schema, tmp_path)


def test_option_on_is_known_as_kubernetes_sends_it(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k,v\n1,2\n")
    assert Lookup.from_options({"file": "a.csv", "true": "k"}, tmp_path).on == ("k",)
    with pytest.raises(OptionError, match=r"option lookup\.on is missing"):
        Lookup.from_options({"file": "a.csv"}, tmp_path)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array(["x", "y"], pa.string_view()), ["x", "y"]),
        (pa.array([b"x", None], pa.binary_view()), [b"x", None]),
        (pa.array([{"a": "x"}, None], pa.struct([("a", pa.string_view())])), [{"a": "x"}, None]),
        (pa.array([["x"], []], pa.list_view(pa.string())), [["x"], []]),
        (pa.array(["x", "y"]).dictionary_encode(), ["x", "y"]),
    ],
)
def test_parquet_values_of_another_layout_are_looked_up(tmp_path: Path, values: pa.Array, expected: list[Any]) -> None:
    for key in (pa.array(["1", "2"], pa.string_view()), pa.array(["1", "2"]).dictionary_encode()):
        pq.write_table(pa.table({"k": key, "v": values}), tmp_path / "a.parquet")
        lookup = Lookup.from_options({"file": "a.parquet", "on": "k"}, tmp_path)
        batch = pa.record_batch([pa.array(["2", "3", "1"])], names=["k"])
        assert lookup.join(batch).column("v").to_pylist() == [expected[1], None, expected[0]]
        assert lookup.output_schema(batch.schema, "s") == lookup.join(batch).schema


def test_both_zeros_are_one_key_of_a_lookup(tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": [0.0, -0.0], "v": [1, 2]}), tmp_path / "a.parquet")
    with pytest.raises(OptionError, match=r"has a value twice or none \(0.0 and -0.0 are one key\)"):
        Lookup.from_options({"file": "a.parquet", "on": "k"}, tmp_path)
