"""Csv files are read by options of Spark's names as the guide says, and what is no csv is refused by its line or row.

Expected values of `SPARK` are those of a batch read by Spark 4.3 (`spark.read.schema("a STRING, b STRING").csv`).
"""

from __future__ import annotations

import gzip
import re
import tempfile
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.streams import rows_of, spec

from streamtopology.jobs.connectors.sources.descriptors import Descriptor
from streamtopology.jobs.connectors.sources.schema.conform import SchemaMismatchError
from streamtopology.jobs.connectors.sources.text import text_stream
from streamtopology.jobs.connectors.sources.validation import check
from streamtopology.topology import Source

TWO_TEXTS = "a STRING, b STRING"


def rows(tmp_path: Path, data: str | bytes, schema: str = TWO_TEXTS, name: str = "a.csv", **options: str) -> list[tuple]:
    path = tmp_path / "in" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    source = spec(path.parent, "csv", schema, **options)
    return [tuple(row.values()) for row in rows_of([Descriptor("s", "csv", str(path), 0, 0, path.stat().st_size, 1)], source)]


SPARK = [
    (r'"say \"hi\"",1', {"escape": "\\"}, [('say "hi"', "1")]),
    (r"a\b,1", {}, [(r"a\b", "1")]),
    (r'"a\b",1', {}, [(r"a\b", "1")]),
    (r'"a\\b",1', {"escape": "\\"}, [(r"a\b", "1")]),
    (r"a\\b,1", {}, [(r"a\\b", "1")]),
    (r"a\"b,1", {"escape": '"'}, [(r"a\"b", "1")]),
    ('a"b,1', {}, [('a"b', "1")]),
    (r"a\,b", {}, [("a\\", "b")]),
    (' "x",1', {}, [(' "x"', "1")]),
    ("\n a,b\n\n", {}, [(" a", "b")]),
    ("#c,1\na,2\n", {}, [("#c", "1"), ("a", "2")]),
    ("a,b\r\nc,d\r\n", {}, [("a", "b"), ("c", "d")]),
    ("a,b\rc,d\r", {}, [("a", "b"), ("c", "d")]),
    (r'"C:\dir\",1', {"escape": '"'}, [("C:\\dir\\", "1")]),
    ('"a^"b^^",1', {"escape": "^"}, [('a"b^', "1")]),
    ('"NA",y\nx,y', {"nullValue": "NA"}, [(None, "y"), ("x", "y")]),
    ('x,""\n,y', {}, [("x", None), (None, "y")]),
    ('"a",b', {"quote": ""}, [('"a"', "b")]),
    ("'a,b',c", {"quote": "'"}, [("a,b", "c")]),
    ("a\tb", {"sep": "\\t"}, [("a", "b")]),
    ("a\tb", {"delimiter": "\t"}, [("a", "b")]),
    (b"\xe9,1", {"encoding": "ISO-8859-1"}, [("\xe9", "1")]),
    (b"\xe9,1", {"charset": "iso-8859-1"}, [("\xe9", "1")]),
    ("\ufeff\xe9,1".encode("utf-16-le"), {"encoding": "UTF-16LE"}, [("\xe9", "1")]),
    ('"two\nlines",1\nx,2', {"multiLine": "true"}, [("two\nlines", "1"), ("x", "2")]),
    ("k,v", {"header": "true"}, []),
    ("", {"header": "true"}, []),
    ("\ufeffa,b\n1,2", {"header": "true"}, [("1", "2")]),
]
# By the table of the page on text formats.
UNLIKE_SPARK = [
    ("NA,\nx,y", {"nullValue": "NA"}, [(None, None), ("x", "y")]),
    ('"say ""hi""",1', {}, [('say "hi"', "1")]),
    (r'"C:\\new",1', {}, [(r"C:\\new", "1")]),
    (r"a\\b,1", {"escape": "\\"}, [(r"a\b", "1")]),
    ('"x" ,1', {}, [("x ", "1")]),
    ('"x"y"z,1', {}, [('xy"z', "1")]),
]


@pytest.mark.parametrize(("data", "options", "expected"), [*SPARK, *UNLIKE_SPARK])
def test_texts_are_those_of_the_table_in_the_guide(
    tmp_path: Path, data: str | bytes, options: dict[str, str], expected: list[tuple]
) -> None:
    if data == "k,v":
        assert rows(tmp_path, data, "k STRING, v STRING", **options) == []
        return
    assert rows(tmp_path, data, **options) == expected


def test_quoted_numbers_that_are_missing_are_null(tmp_path: Path) -> None:
    data = '"NA",""\n"x","5"\n,NA\n'
    assert rows(tmp_path, data, "a STRING, b INT", nullValue="NA") == [(None, None), ("x", 5), (None, None)]


def test_quoted_empty_value_of_the_only_column_is_a_row(tmp_path: Path) -> None:
    assert rows(tmp_path, '1\n""\n\n"2"\n', "a INT") == [(1,), (None,), (2,)]
    assert rows(tmp_path, '2024-01-01T00:00:00\n""\n', "a TIMESTAMP_NTZ")[1:] == [(None,)]
    assert rows(tmp_path, 'x\n""\n\n', "a STRING") == [("x",), (None,)]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
@pytest.mark.parametrize(
    ("data", "header"), [(b"", "false"), (b"", "true"), (b"a,b", "true"), (b"\n\r\n", "false"), (b"a,b\n", "true")]
)
def test_files_without_rows_have_no_rows(tmp_path: Path, name: str, data: bytes, header: str) -> None:
    packed = gzip.compress(data) if name.endswith("gz") else data
    assert rows(tmp_path, packed, "a INT, b STRING", name, header=header) == []
    if not data:
        assert rows(tmp_path, b"", "a INT, b STRING", name, header=header) == []


@pytest.mark.parametrize(
    ("data", "options", "complaint"),
    [
        ('x,y\n"open,1\n', {}, r"a\.csv: CSV parse error: Row #2: Expected 2 columns, got 1: \"open,1"),
        ('x,y\nz,"open\n1,2\n', {}, r"a\.csv: row 2: a quoted value has no end"),
        ('x,y\n\n"a\\"b",1\n', {}, r"a\.csv: line 3: a backslash stands before a quote; set options\.escape to '\\\\'.*'\"'"),
        ('x,y\n"a\\b",1\n', {"escape": "\\"}, r"a\.csv: line 2: options\.escape is .* stands before another character"),
        ("a,b\n" + "x" * 5_000_000 + ",1", {}, r"a\.csv: a row has more than 2 MiB"),
        (
            b"x,y\nM\xfcnchen,1\n",
            {},
            r"a\.csv: line 2 is no text in UTF-8: ISO-8859-1 reads it as 'M\xfcnchen,1'; set options",
        ),
        (b"a,b\nM\xfcnchen,1\n", {"header": "true"}, r"a\.csv: line 2 is no text in UTF-8"),
        (b"\xff,b\n1,1\n", {"header": "true"}, r"a\.csv: line 1 is no text in UTF-8"),
    ],
)
def test_text_that_is_no_csv_is_named_by_its_line(
    tmp_path: Path, data: str | bytes, options: dict[str, str], complaint: str
) -> None:
    with pytest.raises(SchemaMismatchError, match=complaint):
        rows(tmp_path, data, **options)


@pytest.mark.parametrize(
    ("options", "schema", "place", "sentence"),
    [
        ({"sep": "||"}, TWO_TEXTS, "options.sep", "option sep is '||', 2 characters; a separator is one character"),
        ({"sep": "\xa7"}, TWO_TEXTS, "options.sep", "is '\xa7'; a separator is one character of ASCII"),
        ({"sep": ""}, TWO_TEXTS, "options.sep", "is no character between values"),
        ({"quote": ","}, TWO_TEXTS, "options.quote", "is the separator ',', too"),
        ({"escape": "ab"}, TWO_TEXTS, "options.escape", "2 characters"),
        ({"escape": ","}, TWO_TEXTS, "options.escape", "is the separator ',', too"),
        ({"comment": "#"}, TWO_TEXTS, "options.comment", "has no option 'comment'"),
        ({"emptyValue": "E"}, TWO_TEXTS, "options.emptyValue", "has no option 'emptyValue'"),
        ({"mode": "PERMISSIVE"}, TWO_TEXTS, "options.mode", "allowed: FAILFAST"),
        ({"encoding": "latin-17"}, TWO_TEXTS, "options.encoding", "unknown encoding 'latin-17'; known are UTF-8"),
        ({"charset": "hex"}, TWO_TEXTS, "options.charset", "unknown encoding 'hex'"),
        ({"multiLine": "maybe"}, TWO_TEXTS, "options.multiLine", "must be true or false"),
        ({"lineSep": "|"}, TWO_TEXTS, "options.lineSep", "has no option 'lineSep'"),
        ({}, "a STRING, b ARRAY<INT>", "schema", "column 'b': csv has no ARRAY, MAP or STRUCT; declare it STRING"),
        ({"pathGlobFilter": "*.txt"}, TWO_TEXTS, "options.encoding", "line 1 is no text in UTF-8"),
    ],
)
def test_validate_refuses_csv_that_cannot_be_read(
    tmp_path: Path, options: dict[str, str], schema: str, place: str, sentence: str
) -> None:
    (tmp_path / "a.csv").write_text("x,1\n")
    (tmp_path / "latin.txt").write_bytes(b"M\xfcnchen,1\n")
    found = check(Source("s", "csv", schema, {"path": str(tmp_path), "pathGlobFilter": "*.csv"} | options)).findings
    assert [finding.path for finding in found] == [place]
    assert sentence in found[0].message


_CELLS = st.text(st.sampled_from('ab,"\\\n\r ;#'), max_size=6)

_ONE_KIND_OF_END = _CELLS.map(lambda text: text.replace("\r", ""))


@settings(max_examples=100, deadline=None)
@given(
    table=st.lists(st.tuples(st.none() | _ONE_KIND_OF_END, st.none() | st.integers(-9, 9)), min_size=1, max_size=4),
    is_escaped=st.booleans(),
)
def test_values_are_those_that_duckdb_reads(table: list[tuple[str | None, int | None]], is_escaped: bool) -> None:
    """DuckDB finds out how lines end: here in one way."""
    escape = "\\" if is_escaped else '"'

    def written(cell: str | int | None) -> str:
        if cell is None or cell == "":
            return ""
        return '"' + str(cell).replace(escape, escape * 2).replace('"', escape + '"' if is_escaped else '"') + '"'

    data = "".join(",".join(map(written, row)) + "\n" for row in table)
    with tempfile.TemporaryDirectory() as folder:
        found = rows(Path(folder), data, "a STRING, b BIGINT", escape=escape)
        given = "auto_detect=false, header=false, delim=',', quote='\"', new_line='\\n', escape=?"
        sql = f"FROM read_csv(?, {given}, columns={{a: 'VARCHAR', b: 'BIGINT'}})"
        assert found == duckdb.execute(sql, [f"{folder}/in/a.csv", escape]).fetchall()


def test_large_files_are_read_whole_whatever_they_quote(tmp_path: Path) -> None:
    """More than a block of Arrow's reader, with ends of lines in values."""
    data = "".join(f'"row\n{number} \\"{"x" * 100}\\"",{number}\n' for number in range(100_000))
    found = rows(tmp_path, data, "a STRING, b BIGINT", escape="\\")
    assert [row[1] for row in found] == list(range(100_000))
    assert all(re.fullmatch(r'row\n\d+ "x{100}"', row[0]) for row in found[::1000])


# As Spark 4.3 reads them, from csv and from JSON.
TIMES = [
    ("DATE", "dateFormat", "dd/MM/yyyy", "31/12/2024", "2024-12-31"),
    ("DATE", "dateFormat", "d.M.yyyy", "1.2.2024", "2024-02-01"),
    ("DATE", "dateFormat", "yyyyMMdd", "20240131", "2024-01-31"),
    ("TIMESTAMP", "timestampFormat", "dd/MM/yyyy HH:mm", "31/12/2024 10:05", "2024-12-31 10:05:00+00:00"),
    ("TIMESTAMP", "timestampFormat", "yyyyMMddHHmmss", "20240131100500", "2024-01-31 10:05:00+00:00"),
    ("TIMESTAMP", "timestampFormat", "yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "2024-01-31T10:05:00.250+02:00",
     "2024-01-31 08:05:00.250000+00:00"),
    ("TIMESTAMP_NTZ", "timestampNTZFormat", "d.M.yyyy H:m", "1.2.2024 3:4", "2024-02-01 03:04:00"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "option", "pattern", "text", "expected"), TIMES)
def test_times_are_read_by_patterns_as_spark_reads_them(
    tmp_path: Path, kind: str, option: str, pattern: str, text: str, expected: str
) -> None:
    found = rows(tmp_path, f"{text};x\n;y\n", f"a {kind}, b STRING", sep=";", **{option: pattern})
    assert [(str(time), name) for time, name in found] == [(expected, "x"), ("None", "y")]
    path = tmp_path / "json/a.json"
    path.parent.mkdir()
    path.write_text(f'{{"a":"{text}","l":["{text}"]}}\n')
    for ddl in (f"a {kind}, l ARRAY<{kind}>", f"a {kind}, l ARRAY<{kind}>, m MAP<STRING, INT>"):
        source = spec(path.parent, "json", ddl, **{option: pattern})
        (row,) = rows_of([Descriptor("s", "json", str(path), 0, 0, 9, 1)], source)
        assert (str(row["a"]), str(row["l"][0])) == (expected, expected)


@pytest.mark.parametrize("text", ["1/2/2024", "31.12.2024", "2024-12-31", "31/12/2024 10:00"])
def test_time_of_another_pattern_is_named(tmp_path: Path, text: str) -> None:
    with pytest.raises(SchemaMismatchError, match=f"column 'a' is declared date32.*{text!r} is not of the form 'dd/MM"):
        rows(tmp_path, f"{text},x\n", "a DATE, b STRING", dateFormat="dd/MM/yyyy")


@pytest.mark.parametrize("pattern", ["dd-MMM-yyyy", "MM/dd/yy", "dd/MM", "yyyy-MM-dd HH:mm", "yyyy-MM-dd yyyy", "EEE"])
def test_validate_refuses_patterns_that_are_not_known(tmp_path: Path, pattern: str) -> None:
    options = {"path": str(tmp_path), "dateFormat": pattern}
    (found,) = check(Source("s", "csv", "a DATE", options)).findings[:1]
    assert found.path == "options.dateFormat"
    assert "known are yyyy, MM" in found.message
    assert "strptime in select" in found.message


@pytest.mark.parametrize(
    ("kind", "texts", "expected"),
    [
        ("BOOLEAN", ["true", "TRUE", "1", "false"], [True, True, True, False]),
        ("INT", ["5", "005", "-5"], [5, 5, -5]),
        ("DOUBLE", ["1.5", "1.0E20", "-Infinity", "Inf"], [1.5, 1e20, float("-inf"), float("inf")]),
        ("DECIMAL(5, 2)", ["1.50", "15e-1", " 15e-1 "], [Decimal("1.50")] * 3),
        (
            "DECIMAL(30, 5)",
            ["0e-44", "12345e-4", "1.20000000000000000000000000"],
            [Decimal(0), Decimal("1.2345"), Decimal("1.2")],
        ),
        ("STRING", ["0x10", "1e-30"], ["0x10", "1e-30"]),
        ("BINARY", ["AAEC"], [b"AAEC"]),
    ],
)
def test_csv_values_are_those_of_the_table_in_the_guide(
    tmp_path: Path, kind: str, texts: list[str], expected: list[object]
) -> None:
    found = rows(tmp_path, "".join(f"{text},x\n" for text in texts), f"a {kind}, b STRING")
    assert [value for value, _ in found] == expected


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("BOOLEAN", "yes"),
        ("INT", "+5"),
        ("INT", "5.0"),
        ("INT", "0x10"),
        ("TINYINT", "0XFF"),
        ("BIGINT", "0xFFFFFFFFFFFFFFFF"),
        ("DECIMAL(30, 5)", "1e-44"),
        ("DECIMAL(30, 5)", "92425775e-74"),
        ("DECIMAL(30, 5)", "0.000000000000000000000000000000000000000000001"),
        ("DECIMAL(30, 5)", "9" * 256),
        ("DOUBLE", "1d"),
        ("DECIMAL(5, 2)", "1.234"),
        ("DATE", "2024-1-31"),
    ],
)
def test_csv_value_that_is_not_of_its_type_is_refused(tmp_path: Path, kind: str, text: str) -> None:
    with pytest.raises(SchemaMismatchError, match=rf"a\.csv: row 2: column 'a' is declared .*{re.escape(text[:50])}"):
        rows(tmp_path, f",y\n{text},x\n", f"a {kind}, b STRING")


@pytest.mark.parametrize("quote", ['"', ""])
def test_value_of_a_block_is_read(tmp_path: Path, quote: str) -> None:
    long = "x" * 2_000_000
    found = rows(tmp_path, f"a,1\n{quote}{long}{quote},2\nb,3\n", "a STRING, b INT")
    assert [row[1] for row in found] == [1, 2, 3]
    assert found[1][0] == long


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_empty_lines_are_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    data = end * 3_000 + f"a,b{end}{end}1,2{end}3,x{end}"
    for size in (1, 2, 1 << 20):
        monkeypatch.setattr(text_stream, "READ_BYTES", size)
        with pytest.raises(SchemaMismatchError, match="row 2: column 'b' is declared int32 but holds 'x'"):
            rows(tmp_path, data, "a INT, b INT", header="true")


@pytest.mark.parametrize(
    ("schema", "data", "complaint"),
    [
        ("a DECIMAL(5, 2), b STRING", '1,"x\ny"\n\n12345.6,z\n', "row 2: column 'a' is declared decimal.*'12345.6'"),
        ("a STRING, b DECIMAL(5, 2)", 'x,"1"\r\ny,"1.234"\r\n', "row 2: column 'b' is declared decimal.*'1.234'"),
        ("a STRING, b INT", '"1","2"\r"1"\r', r"Row #2: Expected 2 columns, got 1: \"1\"; correct the row"),
        ("a INT, b INT", '1,2\n""\n', r"Row #2: Expected 2 columns, got 1"),
        ("a STRING, b INT", "x,1\ny,2,3\n", r"Row #2: Expected 2 columns, got 3: y,2,3"),
        ("a STRING, b INT NOT NULL", "x,1\ny,\n", "row 2: column 'b' is declared NOT NULL"),
        ("a STRING, b TIMESTAMP", "x,\ny,today\n", "row 2: column 'b' is declared timestamp.*today"),
    ],
)
def test_value_that_does_not_fit_is_named_by_its_row(tmp_path: Path, schema: str, data: str, complaint: str) -> None:
    with pytest.raises(SchemaMismatchError, match=complaint):
        rows(tmp_path, data, schema)


def test_header_with_a_declared_name_twice_is_refused(tmp_path: Path) -> None:
    """Spark takes columns by their order, whatever the header says; here it says which is which."""
    with pytest.raises(SchemaMismatchError, match="has several columns 'a'; write the file with a name for each"):
        rows(tmp_path, "a,b,a\n1,2,3\n", header="true")
    assert rows(tmp_path, "a,c,b,c\n1,2,3,4\n", header="true") == [("1", "3")]


def test_open_quote_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('y,"2\nx,1\n')
    (found,) = check(Source("s", "csv", TWO_TEXTS, {"path": str(tmp_path)})).findings
    assert re.search(r"a\.csv: row 1: a quoted value has no end.*options\.quote", found.message)
    assert "correct the schema" not in found.message
