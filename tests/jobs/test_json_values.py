"""JSON values are those that Spark reads, by whichever of the two readers, or are refused with their line."""

from __future__ import annotations

import json
import struct
import tempfile
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
from streamtopology.jobs.connectors.sources.text import json_lines
from streamtopology.jobs.connectors.sources.text.json_names import names_in_json


def read(text: str, ddl: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.json"
        path.write_text(text, encoding="utf-8")
        return rows_of([Descriptor("s", "json", str(path), 0, 0, path.stat().st_size, 1)], spec(path.parent, "json", ddl))


def by_both_readers(value: str, kind: str) -> list[Any]:
    """The value alone, as Arrow's reader has it, and in a file with a map, which is read by Python's."""
    (by_arrow,) = read(f'{{"v":{value}}}\n', f"v {kind}")
    (by_python,) = read(f'{{"v":{value}}}\n', f"v {kind}, m MAP<STRING, INT>")
    return [by_arrow["v"], by_python["v"]]


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE", "DECIMAL(10, 2)", "BIGINT"])
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("line", ["null", "  null", "5", "[]", '"x"', "true", '[{"v":1}]', '{"v":1}{"v":2}', '{"v":1} {"v":2}'])
def test_line_that_is_no_object_is_refused(kind: str, place: int, line: str) -> None:
    """Arrow's reader crashes on `null` in the first place, and reads it as a row of NULLs in others; Spark with FAILFAST
    refuses it."""
    lines = ['{"v":3}', '{"v":null}', "{}"]
    lines.insert(place, line)
    for text in ("\n".join(lines), "\n\n".join(lines) + "\n"):
        number = text.split("\n").index(line) + 1
        with pytest.raises(SchemaMismatchError, match=f"line {number}: JSON parse error") as refused:
            read(text, f"v {kind}")
        assert "jq -c" in str(refused.value)


@pytest.mark.parametrize("blocks", [1, 2])
def test_object_over_several_lines_is_refused_whatever_its_size(blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "_BLOCK_BYTES", 1000)
    text = "".join(json.dumps({"v": number}, indent=1) + "\n" for number in range(blocks * 60))
    with pytest.raises(SchemaMismatchError, match=r"line 1: JSON parse error.*each line is one object.*jq -c \. of"):
        read(text, "v INT")


def test_long_line_is_a_row_and_the_longest_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "_BLOCK_BYTES", 1 << 20)
    long = json.dumps({"v": 2, "s": "x" * (5 << 20)})
    rows = read('{"v":1}\n' + long + '\n{"v":3}\n', "v INT, s STRING")
    assert [(row["v"], len(row["s"] or "")) for row in rows] == [(1, 0), (2, 5 << 20), (3, 0)]
    monkeypatch.setattr(json_lines, "_LONGEST_LINE", 4 << 20)
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


def test_names_are_those_of_the_first_lines_in_their_encoding(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"K":1}\nnull\n{"x":' + "[" * 100_000 + "]" * 100_000 + '}\n{"\xe9":1}\n', encoding="utf-16")
    assert names_in_json(str(path), spec(tmp_path, "json", "k INT", encoding="UTF-16")) == {"K", "\xe9"}


# --- numbers


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
@example("-0")
def test_floating_numbers_are_the_nearest_by_both_readers(text: str) -> None:
    assert str(by_both_readers(text, "FLOAT")) == str([float32(text)] * 2)
    assert str(by_both_readers(text, "DOUBLE")) == str([float(text)] * 2)


def test_value_of_a_float_is_the_same_whatever_its_block_holds() -> None:
    numbers = ["0.1", "1.00000017881393432617187499", "1e-45", "3.4e38"]
    lines = [f'{{"v":{number}}}' for number in numbers]
    alone, mixed = (read("\n".join(lines + more), "v FLOAT")[:4] for more in ([], ['{"v":"NaN"}']))
    assert alone == mixed


@given(NUMBERS, st.booleans())
@example("1e99999999999999999999", False)
@example("9" * 256, False)
@example("9" * 5000, True)
@example("92425775e-74", False)
@example("1e-9999", True)
@example("1e-999999999", False)
@example("1.5e-00000000038", False)
@example("1.50000000", True)
def test_decimals_have_all_their_digits_or_are_refused(text: str, quoted: bool) -> None:
    value = Decimal(text) if len(text) < 20 or "e99" not in text else Decimal("Infinity")
    with localcontext(prec=200):
        exact = Decimal("0.00000") if value.is_infinite() or value.adjusted() > 40 else value.quantize(Decimal("0.00001"))
        fits = exact == value and abs(exact) < Decimal(10) ** 25
    json_text = f'"{text}"' if quoted else text
    if fits:
        assert by_both_readers(json_text, "DECIMAL(30, 5)") == [exact, exact]
    else:
        for ddl in ("v DECIMAL(30, 5)", "v DECIMAL(30, 5), m MAP<STRING, INT>"):
            with pytest.raises(SchemaMismatchError, match="line 1: column 'v' is declared decimal"):
                read(f'{{"v":{json_text}}}\n', ddl)


@pytest.mark.parametrize("text", ["1_0", "\uff11\uff12", " 1 ", "abc", "", "NaN", "0x10", "1,000", "1.5d", "--1", "1e"])
@pytest.mark.parametrize("with_map", ["", ", m MAP<STRING, INT>"])
def test_decimal_text_that_is_no_number_is_refused(text: str, with_map: str) -> None:
    with pytest.raises(SchemaMismatchError, match=r"line 2: column 'v' is declared decimal128\(10, 2\).*does not fit"):
        read('{"v":"1.50"}\n' + json.dumps({"v": text}, ensure_ascii=False) + "\n", f"v DECIMAL(10, 2){with_map}")


@pytest.mark.parametrize("text", ["9" * 30, "1e5", "1.0", '"1"', '"0x10"', "true"])
def test_integer_that_is_none_is_refused(text: str) -> None:
    for ddl in ("v BIGINT", "v BIGINT, m MAP<STRING, INT>"):
        with pytest.raises(SchemaMismatchError, match="line 1: column 'v' is declared int64"):
            read(f'{{"v":{text}}}\n', ddl)


def test_number_of_thousands_of_digits_is_infinite_or_refused() -> None:
    assert by_both_readers("9" * 5000, "DOUBLE") == [float("inf")] * 2
    for ddl in ("v BIGINT", "v BIGINT, m MAP<STRING, INT>"):
        with pytest.raises(SchemaMismatchError, match="line 2: column 'v' is declared int64"):
            read(f'{{"v":1}}\n{{"v":{"9" * 5000}}}\n', ddl)


@pytest.mark.parametrize("kind", ["INT", "DECIMAL(3, 1)"])
def test_minus_zero_is_zero_where_there_is_one_zero(kind: str) -> None:
    assert by_both_readers("-0", kind) == [0, 0]


# --- keys of maps


@pytest.mark.parametrize(
    ("kind", "text", "keys"),
    [
        ("STRING", '{"a":1,"a":2}', ["a"]),  # the last one counts, as in Spark
        ("INT", '{"1":1,"-2":2}', [1, -2]),
        ("DOUBLE", '{"1.5":1,"NaN":2,"-Infinity":3,"1e3":4}', [1.5, float("nan"), float("-inf"), 1000.0]),
        ("BOOLEAN", '{"true":1,"false":2}', [True, False]),
        ("DECIMAL(5, 2)", '{"1.50":1,"2":2}', [Decimal("1.50"), Decimal("2.00")]),
        ("BINARY", '{"AA==":1}', [b"\0"]),
    ],
)
def test_names_are_keys_of_the_declared_type(kind: str, text: str, keys: list[Any]) -> None:
    (row,) = read(f'{{"m":{text}}}\n', f"m MAP<{kind}, INT>")
    assert str([key for key, _ in row["m"]]) == str(keys)
    assert row["m"][-1][1] == (2 if text == '{"a":1,"a":2}' else len(keys))


@pytest.mark.parametrize(
    ("kind", "text", "complaint"),
    [
        ("INT", '{"0x10":1}', "found string"),
        ("INT", '{"1":1,"01":2}', "found string"),
        ("INT", '{" 1":1}', "found string"),
        ("INT", '{"1.0":1}', "found number with a fraction"),
        ("INT", '{"3000000000":1}', "does not fit"),
        ("BOOLEAN", '{"TRUE":1}', "found string"),
        ("DOUBLE", '{"1.0":1,"1":2}', "has the key 1.0 twice"),
        ("DOUBLE", '{"NaN":1,"x":2}', "found string"),
        ("DECIMAL(5, 2)", '{"1.5":1,"1.50":2}', "has the key 1.50 twice"),
        ("DATE", '{"2024-02-30":1}', "does not fit"),
        ("TIMESTAMP", '{"2024-01-01T00:00:00Z":1,"2024-01-01T01:00:00+01:00":2}', "twice"),
        ("BINARY", '{"AA==":1,"AB==":2}', "twice"),
    ],
)
def test_names_that_are_no_keys_or_one_twice_are_refused(kind: str, text: str, complaint: str) -> None:
    for shape, ddl in ((text, f"MAP<{kind}, INT>"), (f"[{text}]", f"ARRAY<MAP<{kind}, INT>>")):
        with pytest.raises(SchemaMismatchError, match=f"line 2: column 'm' .*{complaint}"):
            read(f'{{"m":null}}\n{{"m":{shape}}}\n', f"m {ddl}")


@pytest.mark.parametrize("ddl", ["MAP<STRUCT<a: INT>, INT>", "ARRAY<MAP<ARRAY<INT>, INT>>"])
def test_keys_that_no_name_can_be_are_refused_by_their_schema(ddl: str) -> None:
    with pytest.raises(SourceError, match=r"column 'm': names of JSON objects, its keys, are no (struct|list)<"):
        declared_schema(spec(Path("/x"), "json", f"m {ddl}"))


def test_same_key_in_two_rows_is_no_key_twice() -> None:
    rows = read('{"m":{"1":1}}\n{"m":{}}\n{"m":{"1":2}}\n', "m MAP<INT, INT>")
    assert [row["m"] for row in rows] == [[(1, 1)], [], [(1, 2)]]


# --- NOT NULL


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
        with pytest.raises(SchemaMismatchError, match=r"line 3: column 'v' .*its field 'b' is declared NOT NULL"):
            read(f'{{"v":{sound}}}\n{{"v":null}}\n{{"v":{value}}}\n', f"v {ddl}")


def test_text_that_no_unicode_has_is_named_in_a_message_that_can_be_printed() -> None:
    with pytest.raises(SchemaMismatchError, match="column 'v'") as refused:
        read('{"v":"\\ud800"}\n', "v STRING, m MAP<STRING, INT>")
    str(refused.value).encode()


def test_row_of_nulls_is_no_line_of_null() -> None:
    assert read('{"w":"\\nnull"}\n{"v":1}\n', "v INT") == [{"v": None}, {"v": 1}]


SPLIT = [
    '{"a":1}{"a":2}\n{"a":\n3}',
    '{"a":1} {"a":2}\n{"a":3\n}',
    '{"a":1},{"a":2}\n{"a":1,"b":[{}\n{}]}',
    '{"a":1},{"a":2}\n{"a":1\n"b":2}',
]


@pytest.mark.parametrize("text", SPLIT)
@pytest.mark.parametrize("schema", ["a INT", "a INT, m MAP<STRING, INT>"])
@pytest.mark.parametrize("before", ["", '{"a":0}\n', '\n{"a":0}\r\n  \n'])
def test_objects_that_are_no_lines_are_refused_by_their_line(tmp_path: Path, text: str, schema: str, before: str) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json").write_bytes((before + text + "\n").encode())
    part = Descriptor("s", "json", str(tmp_path / "in/a.json"), 0, 0, 1, 1)
    with pytest.raises(SchemaMismatchError, match=rf"a\.json: line {before.count(chr(10)) + 1}: .*each line is one object"):
        rows_of([part], spec(tmp_path / "in", "json", schema))


@pytest.mark.parametrize("end", ["\n", "\r\n", " \n\n"])
def test_objects_with_any_ends_of_lines_are_rows(tmp_path: Path, end: str) -> None:
    (tmp_path / "a.json").write_bytes("".join(f'{{"a":{n},"o":{{"x":[{{}},{{}}]}}}}{end}' for n in range(5)).encode())
    part = Descriptor("s", "json", str(tmp_path / "a.json"), 0, 0, 1, 1)
    assert rows_of([part], spec(tmp_path, "json", "a INT")) == [{"a": n} for n in range(5)]
