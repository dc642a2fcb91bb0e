"""JSON values are those that Spark reads, by whichever of the two readers, or are refused with their line."""

from __future__ import annotations

import json
import struct
import tempfile
from datetime import UTC, date, datetime
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.streams import rows_of, spec

from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceError
from streamtopology.jobs.connectors.sources.schema.conform import SchemaMismatchError
from streamtopology.jobs.connectors.sources.schema.declared import declared_schema
from streamtopology.jobs.connectors.sources.text import json_lines, text_stream


def read(text: str | bytes, ddl: str, **options: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.json"
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
        part = Descriptor("s", "json", str(path), 0, 0, path.stat().st_size, 1)
        return rows_of([part], spec(path.parent, "json", ddl, **options))


def outcome(text: str, ddl: str) -> Any:
    """The values of a column; of a refusal its text without the folder and the reason."""
    try:
        return [repr(row["v"]) for row in read(text, ddl)]
    except SchemaMismatchError as error:
        return str(error).partition("a.json: ")[2].partition(" but ")[0].partition(" in ")[0]


def by_either(text: str, kind: str) -> Any:
    """The outcome of both readers: Arrow's, and Python's, which reads a file with a map."""
    by_arrow, by_python = outcome(text, f"v {kind}"), outcome(text, f"v {kind}, m MAP<STRING, INT>")
    assert by_arrow == by_python
    return by_arrow


# A row written by Spark 4.3, `df.write.json`.
SPARK_LINE = (
    '{"d":"2024-01-01","t":"2024-01-01T10:00:00.500Z","n":"2024-01-01T10:00:00.000","x":"NaN","y":"-Infinity","z":1.0E20,'
    '"de":1.50,"b":true,"bi":"AAH/","m":{"k":1},"m2":{"1":"a"},"ad":["2024-01-01"],"st":{"b":"AA=="},"nu":{}}\n'
)


def test_source_reads_what_spark_writes() -> None:
    ddl = (
        "d DATE, t TIMESTAMP, n TIMESTAMP_NTZ, x DOUBLE, y DOUBLE, z DOUBLE, de DECIMAL(10, 2), b BOOLEAN, bi BINARY, "
        "m MAP<STRING, INT>, m2 MAP<STRING, STRING>, ad ARRAY<DATE>, st STRUCT<b: BINARY>, nu STRUCT<x: INT>, i INT"
    )
    (row,) = read(SPARK_LINE, ddl)
    at = datetime(2024, 1, 1, 10)
    assert str(row.pop("x")) == "nan"
    assert row == {
        "d": date(2024, 1, 1), "t": at.replace(microsecond=500_000, tzinfo=UTC), "n": at, "y": float("-inf"), "z": 1e20,
        "de": Decimal("1.50"), "b": True, "bi": b"\0\1\xff", "m": [("k", 1)], "m2": [("1", "a")], "ad": [date(2024, 1, 1)],
        "st": {"b": b"\0"}, "nu": {"x": None}, "i": None,
    }  # fmt: skip


# --- lines


OBJECTS = ['{"v":3}', '{"v":null}', "{}", '{"v":1,"w":[{},{}]}', "", "  ", '  {"v": 2}  ', '{"w":"\\nnull"}', '{"v":1,"v":2}']
OTHERS = ["null", "5", "[]", '"x"', '{"v":1}{"v":2}', '{"v":1} {"v":2}', '{"v":\n1}', '{"v":1},', '{"v":1', '{"w":[{}\n{}]}']


@given(st.lists(st.sampled_from(OBJECTS), max_size=4), st.none() | st.sampled_from(OTHERS), st.sampled_from(["\n", "\r\n"]))
@example([], "null", "\n")
@example(["{}"], "  null", "\n")
def test_lines_are_rows_or_the_first_that_is_none_is_named(lines: list[str], other: str | None, end: str) -> None:
    """Arrow's reader crashes on `null` in the first place, and takes it for a row in others; Spark with FAILFAST refuses it."""
    rows = [repr(json.loads(line).get("v")) for line in lines if line.strip()]
    if other is None:
        assert by_either("".join(line + end for line in lines), "INT") == rows
        assert by_either(end.join(lines), "INT") == rows
        return
    text = end.join([*lines, other, '{"v":4}'])
    assert by_either(text, "INT").startswith(f"line {len(lines) + 1}: JSON parse error")
    with pytest.raises(SchemaMismatchError, match=r"each line is one object; write an object a line \(jq -c"):
        read(text, "v INT")


def test_encodings_and_marks_are_no_part_of_a_line() -> None:
    assert read('\ufeff{"v":1}', "v INT") == [{"v": 1}]
    assert read("\ufeff", "v INT") == read("", "v INT") == []
    assert read('{"\xe9": 2}\n'.encode("latin-1"), "`\xe9` INT", encoding="ISO-8859-1") == [{"\xe9": 2}]
    with pytest.raises(SchemaMismatchError, match=r"line 1 is no text in UTF-8.*options\.encoding"):
        read(b'{"v":"\xe9"}\n', "v STRING")


def test_long_line_is_a_row_and_the_longest_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "_BLOCK_BYTES", 1 << 20)
    long = json.dumps({"v": 2, "s": "x" * (5 << 20)})
    rows = read('{"v":1}\n' + long + '\n{"v":3}\n', "v INT, s STRING")
    assert [(row["v"], len(row["s"] or "")) for row in rows] == [(1, 0), (2, 5 << 20), (3, 0)]
    with pytest.raises(SchemaMismatchError, match="line 4: column 'v'"):
        read('{"v":1}\n' + long + '\n{"v":3}\n{"v":"x"}', "v INT")
    monkeypatch.setattr(text_stream, "_LONGEST_LINE", 4 << 20)
    with pytest.raises(SourceError, match="line 2 is longer than"):
        read('{"v":1}\n' + long, "v INT")


@pytest.mark.parametrize("with_map", ["", ", m MAP<STRING, INT>"])
def test_deep_nesting_is_skipped_or_refused_by_name(with_map: str) -> None:
    text = '{"v":1}\n{"v":2,"w":' + "[" * 100_000 + "]" * 100_000 + "}\n"
    if not with_map:
        assert [row["v"] for row in read(text, "v INT")] == [1, 2]
        return
    with pytest.raises(SchemaMismatchError, match="line 2: JSON parse error: its arrays and objects are nested too deeply"):
        read(text, f"v INT{with_map}")


def test_text_that_no_unicode_has_is_named_in_a_message_that_can_be_printed() -> None:
    assert by_either('{"v":"\\ud800"}\n', "STRING") == "line 1: JSON parse error: half a character"
    assert by_either('{"v":"\\ud83d\\ude00"}\n', "STRING") == [repr("\U0001f600")]


# --- values


@pytest.mark.parametrize(
    ("value", "kind", "found"),
    [
        ('"1"', "BIGINT", "the string '1'"),
        ("1.0", "BIGINT", "'1.0': '1.0' is no whole number"),
        ("1e5", "BIGINT", "'1e5'"),
        ("9" * 5000, "BIGINT", "'9999"),
        ("300", "TINYINT", "'300'"),
        ("true", "BIGINT", "the boolean 'True'"),
        ('"0x10"', "INT", "the string '0x10'"),
        ('"1.5"', "DOUBLE", "the string '1.5'"),
        ("5", "STRING", "the number '5'"),
        ('{"a":1}', "STRING", "the object"),
        ("1", "BOOLEAN", "the number '1'"),
        ("19723", "DATE", "the number '19723'"),
        ('"1.1.2024"', "DATE", "'1.1.2024'"),
        ('["2024-02-30"]', "ARRAY<DATE>", "'2024-02-30'"),
        ('"AAE"', "BINARY", "'AAE': no base64"),
        ('"AA=A"', "BINARY", "'AA=A': no base64"),
        ('"AA\xe9="', "BINARY", "no base64"),
        ("[1]", "MAP<STRING, INT>", "the array"),
        ('{"a":"x"}', "MAP<STRING, INT>", "the string 'x'"),
        ("1.239", "DECIMAL(5, 2)", "'1.239'"),
        ("12345.6", "DECIMAL(5, 2)", "'12345.6'"),
        *((json.dumps(text, ensure_ascii=False), "DECIMAL(9, 2)", "declared decimal")
          for text in ("1_0", "\uff11\uff12", " 1 ", "abc", "", "NaN", "0x10", "1,000", "1.5d", "--1", "1e")),
    ],
)  # fmt: skip
def test_value_of_another_type_is_named_by_its_line(value: str, kind: str, found: str) -> None:
    text = f'{{"v":null}}\n\n{{"v":{value}}}\n'
    assert str(by_either(text, kind)).startswith("line 3: column 'v' is declared")
    with pytest.raises(SchemaMismatchError) as refused:
        read(text, f"v {kind}")
    assert found in str(refused.value)


NUMBERS = st.from_regex(r"\A-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?\Z")


def float32(text: str) -> float:
    """The nearest of FLOAT, rounded once: by exact fractions of the two neighbours."""
    exact = abs(Decimal(text))
    near = np.float32(min(float(exact), float(np.finfo(np.float32).max)))
    if exact >= Decimal(2) ** 128 - Decimal(2) ** 103:
        near = np.float32(np.inf)
    else:
        around = [np.nextafter(near, np.float32(0)), near, np.nextafter(near, np.float32(np.inf)) if exact < 3e38 else near]
        finite = [value for value in around if np.isfinite(value)]
        is_odd = [struct.unpack("<I", struct.pack("<f", value))[0] & 1 for value in finite]
        near = finite[min(range(len(finite)), key=lambda i: (abs(Decimal(float(finite[i])) - exact), is_odd[i]))]
    return -float(near) if text.startswith("-") else float(near)


@given(NUMBERS)
@example("1.00000017881393432617187499")
@example("3.4028235677973366e38")
@example("16777217")
@example("1e400")
@example("9" * 5000)
@example("-0")
def test_floating_numbers_are_the_nearest_by_both_readers(text: str) -> None:
    assert by_either(f'{{"v":{text}}}', "FLOAT") == [repr(float32(text))]
    assert by_either(f'{{"v":{text}}}', "DOUBLE") == [repr(float(text))]


@given(NUMBERS, st.booleans())
@example("1e99999999999999999999", False)
@example("9" * 256, False)
@example("9" * 5000, True)
@example("92425775e-74", False)
@example("1e-9999", True)
@example("1e-999999999", False)
@example("1.5e-00000000038", False)
@example("1.50000000", True)
@example("-0", False)
def test_decimals_have_all_their_digits_or_are_refused(text: str, quoted: bool) -> None:
    value = Decimal(text) if len(text) < 20 or "e99" not in text else Decimal("Infinity")
    with localcontext(prec=200):
        exact = Decimal("0.00000") if value.is_infinite() or value.adjusted() > 40 else value.quantize(Decimal("0.00001"))
        fits = exact == value and abs(exact) < Decimal(10) ** 25
    found = by_either(f'{{"v":"{text}"}}' if quoted else f'{{"v":{text}}}', "DECIMAL(30, 5)")
    if fits:
        assert [Decimal(one[9:-2]) for one in found] == [exact]
    else:
        assert found == "line 1: column 'v' is declared decimal128(30, 5)"


def test_value_is_the_same_whatever_its_block_holds() -> None:
    numbers = ["0.1", "1.00000017881393432617187499", "1e-45", "3.4e38", "-0", "NaN", "-Infinity"]
    lines = [f'{{"v":{number}}}' for number in numbers]
    alone, mixed = (outcome("\n".join(lines + more), "v FLOAT")[:7] for more in ([], ['{"v":"NaN"}']))
    assert alone == mixed


# --- maps and NOT NULL


@pytest.mark.parametrize("ddl", ["MAP<INT, INT>", "MAP<STRUCT<a: INT>, INT>", "ARRAY<MAP<ARRAY<INT>, INT>>"])
def test_keys_that_are_no_texts_are_refused_by_their_schema(ddl: str) -> None:
    with pytest.raises(SourceError, match=r"column 'm': names of JSON objects, its keys, are no .*; declare .*key of STRING"):
        declared_schema(spec(Path("/x"), "json", f"m {ddl}"))


def test_name_twice_is_the_last_as_in_spark() -> None:
    assert read('{"m":{"a":1,"a":2}}\n{"m":{}}\n{"m":{"a":3}}\n', "m MAP<STRING, INT>") == [
        {"m": [("a", 2)]}, {"m": []}, {"m": [("a", 3)]},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ddl", "sound", "bad"),
    [
        ("STRUCT<b: INT NOT NULL>", '{"b":1}', ['{"b":null}', "{}"]),
        ("ARRAY<STRUCT<b: INT NOT NULL>>", '[{"b":1},null]', ['[{"b":1},{}]']),
        ("STRUCT<a: STRUCT<b: DATE NOT NULL>>", '{"a":{"b":"2024-01-01"}}', ['{"a":{"b":null}}']),
        ("MAP<STRING, STRUCT<b: INT NOT NULL>>", '{"k":{"b":1},"l":null}', ['{"k":{}}']),
    ],
)
def test_not_null_of_a_field_is_enforced(ddl: str, sound: str, bad: list[str]) -> None:
    assert len(read(f'{{"v":{sound}}}\n{{"v":null}}\n{{}}\n', f"v {ddl}")) == 3
    for value in bad:
        with pytest.raises(SchemaMismatchError, match=r"line 3: column 'v' has the field '(a\.)?b', declared NOT NULL"):
            read(f'{{"v":{sound}}}\n{{"v":null}}\n{{"v":{value}}}\n', f"v {ddl}")
