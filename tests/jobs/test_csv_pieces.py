"""A csv file is read alike wherever its reads end: the values are those of a plain parser, a character at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.streams import rows_of, spec

from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceSpec
from streamtopology.jobs.connectors.sources.schema.conform import SchemaMismatchError
from streamtopology.jobs.connectors.sources.text import csv_rows, text_stream

Value = str | None
_ENDS = ("\r", "\n")


class NoCsvError(Exception):
    """A text that is refused."""


class PlainParser:
    """The rules of the page on text formats, one character after the other."""

    def __init__(self, text: str, sep: str, quote: str, escape: str | None, null: str) -> None:
        self._text = text.removeprefix("\ufeff")
        self._at = 0
        self._sep, self._quote, self._escape, self._null = sep, quote, escape, null

    def rows(self) -> list[tuple[Value, ...]]:
        rows: list[tuple[Value, ...]] = []
        if self._quote:
            self._check_escapes()
        while self._at < len(self._text):
            if not self._is(*_ENDS):
                rows.append(self._row())
                if len(rows[-1]) != 2:
                    raise NoCsvError
            self._end_of_line()
        return rows

    def _check_escapes(self) -> None:
        at = 0
        while self._escape and (at := self._text.find(self._escape, at)) >= 0:
            if self._text[at + 1 : at + 2] not in (self._quote, self._escape):
                raise NoCsvError
            at += 2
        if self._escape is None and "\\" + self._quote in self._text:
            raise NoCsvError

    def _row(self) -> tuple[Value, ...]:
        row = [self._value()]
        while self._is(self._sep):
            self._at += 1
            row.append(self._value())
        return tuple(row)

    def _value(self) -> Value:
        value = self._quoted() if self._quote and self._is(self._quote) else ""
        value += self._upto((self._sep, *_ENDS))
        return None if value in ("", self._null) else value

    def _quoted(self) -> str:
        self._at += 1
        value = ""
        while self._at < len(self._text):
            here, after = self._text[self._at], self._text[self._at + 1 : self._at + 2]
            is_escaped = here == self._escape and after != "" and after in (self._quote, self._escape)
            if is_escaped or (here == self._quote and after == self._quote):
                value += after
                self._at += 2
                continue
            self._at += 1
            if here == self._quote:
                return value
            value += here
        raise NoCsvError

    def _is(self, *characters: str) -> bool:
        return self._at < len(self._text) and self._text[self._at] in characters

    def _upto(self, ends: tuple[str, ...]) -> str:
        value = ""
        while self._at < len(self._text) and self._text[self._at] not in ends:
            self._at += bool(self._quote and self._text[self._at] == self._escape)
            value += self._text[self._at]
            self._at += 1
        return value

    def _end_of_line(self) -> None:
        self._at += 2 if self._text.startswith("\r\n", self._at) else 1


_VALUES = [
    "",
    "a",
    "N",
    " 1 ",
    "#c",
    "\u00e9",
    '"a"',
    '""',
    '"N"',
    '"l\nm"',
    '"r\r\n"',
    '"a""b"',
    '"\\"',
    '"\\""',
    "'q'",
    '"\ufeff"',
]
_ROWS = st.tuples(st.sampled_from(_VALUES), st.sampled_from(_VALUES)).map(";".join)
_LINES = st.one_of(_ROWS, _ROWS, _ROWS, st.sampled_from(["", "a", '"a"b;c', "\\\\;b", "\ufeffa;b"]))
_TEXTS = st.lists(st.tuples(_LINES, st.sampled_from(["\n", "\r\n", "\r"])), max_size=5).map(
    lambda lines: "".join(line + end for line, end in lines)
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("in") / "a.csv"


@settings(max_examples=300, deadline=None)
@given(
    text=st.tuples(_TEXTS, st.just("") | _LINES).map("".join),
    size=st.integers(1, 9),
    quote=st.sampled_from(['"', '"', "'", ""]),
    escape=st.sampled_from(["\\", '"', None]),
    null=st.sampled_from(["", "N"]),
)
@example('"x";1\r\n"y";2\r\n', 1, '"', "\\", "")
@example('a;b\n"x";', 1 << 20, '"', "\\", "")
@example('a;"b\n;', 1, '"', None, "")
@example("a;b\\", 1, '"', "\\", "")
def test_values_are_those_of_a_plain_parser_wherever_reads_end(
    file: Path, text: str, size: int, quote: str, escape: str | None, null: str
) -> None:
    expected: list[tuple[Value, ...]] | None
    try:
        expected = PlainParser(text, ";", quote, "" if escape == quote else escape, null).rows()
    except NoCsvError:
        expected = None
    file.write_bytes(text.encode())
    given = {} if escape is None else {"escape": escape}
    source = spec(file.parent, "csv", "a STRING, b STRING", sep=";", quote=quote, nullValue=null, **given)
    for read_bytes, block_bytes in ((size, 1 << 20), (1 << 20, 1 << 20), (1 << 20, 64)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(text_stream, "READ_BYTES", read_bytes)
            patch.setattr(csv_rows, "_BLOCK_BYTES", block_bytes)
            assert _read(file, source) == expected


def _read(file: Path, source: SourceSpec) -> list[tuple[Value, ...]] | None:
    try:
        return [tuple(row.values()) for row in rows_of([Descriptor("s", "csv", str(file), 0, 0, 1, 1)], source)]
    except SchemaMismatchError:
        return None
