"""Spark DDL (`key BIGINT, delay DOUBLE NOT NULL`) to an Arrow schema, without a JVM.

Spark's own parser lives in the JVM; `streamtopology validate` and the tasks that read files have none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import pyarrow as pa

from streamtopology.topology import did_you_mean
from streamtopology.topology.schema import SchemaError

_SIMPLE_TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "BYTE": pa.int8(),
    "SMALLINT": pa.int16(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "VARCHAR": pa.string(),
    "CHAR": pa.string(),
    "CHARACTER": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_LTZ": pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
}
_DECIMALS = ("DECIMAL", "DEC", "NUMERIC")
_NESTED = ("ARRAY", "MAP", "STRUCT")
_TYPES = (*_SIMPLE_TYPES, *_DECIMALS, *_NESTED)
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|('(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\")|(\w+)|([(),:<>]))")
_MAX_DECIMAL_DIGITS = 38


@lru_cache(maxsize=256)  # each task that reads a source asks for it
def ddl_to_arrow(ddl: str) -> pa.Schema:
    """The Arrow schema of a Spark DDL column list.

    `a INT`, `a: INT` and `struct<a: INT>` are accepted as Spark does, with NOT NULL, COMMENT and `quoted` names.
    TIMESTAMP is microseconds in UTC, TIMESTAMP_NTZ microseconds without a zone. Raises `SchemaError`.
    """
    parser = _Parser(ddl)
    if parser.peek().upper() == "STRUCT" and parser.peek(1) == "<":
        parser.take()
        parser.expect("<")
        fields = parser.fields(closing=">")
        parser.expect(">")
    else:
        fields = parser.fields(closing="")
    parser.expect_end()
    names = [field.name for field in fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SchemaError(f"schema {ddl!r}: column {twice[0]!r} is declared twice")
    return pa.schema(fields)


@dataclass(frozen=True)
class _Token:
    text: str
    kind: Literal["quoted name", "text", "plain"]


def _tokens(ddl: str) -> Iterator[_Token]:
    position, end = 0, len(ddl.rstrip())
    while position < end:
        match = _TOKEN.match(ddl, position)
        if match is None:
            raise SchemaError(f"schema {ddl!r}: unexpected {ddl[position:].strip()[:10]!r} at position {position}")
        identifier, literal, word, mark = match.groups()
        if identifier is not None:
            yield _Token(identifier[1:-1].replace("``", "`"), "quoted name")
        elif literal is not None:
            yield _Token(literal, "text")
        else:
            yield _Token(word or mark, "plain")
        position = match.end()


class _Parser:
    """Recursive descent over the tokens of one DDL text."""

    def __init__(self, ddl: str) -> None:
        self._ddl = ddl
        self._tokens = list(_tokens(ddl))
        self._at = 0

    def peek(self, ahead: int = 0) -> str:
        """The text of a coming token; quoted ones look like no keyword or mark."""
        index = self._at + ahead
        if index >= len(self._tokens) or self._tokens[index].kind != "plain":
            return ""
        return self._tokens[index].text

    def take(self) -> _Token:
        if self._at >= len(self._tokens):
            raise SchemaError(f"schema {self._ddl!r}: ends too early")
        token = self._tokens[self._at]
        self._at += 1
        return token

    def expect(self, mark: str) -> None:
        token = self.take()
        if token.text != mark:
            raise SchemaError(f"schema {self._ddl!r}: expected {mark!r} but found {token.text!r}")

    def expect_end(self) -> None:
        if self._at < len(self._tokens):
            raise SchemaError(f"schema {self._ddl!r}: unexpected {self._tokens[self._at].text!r} after the last column")

    def fields(self, closing: str) -> list[pa.Field]:
        if closing and self.peek() == closing:
            return []
        fields = [self._field()]
        while self.peek() == ",":
            self.take()
            fields.append(self._field())
        return fields

    def _field(self) -> pa.Field:
        token = self.take()
        if token.kind != "quoted name" and not re.fullmatch(r"\w+", token.text):
            raise SchemaError(f"schema {self._ddl!r}: expected a column name but found {token.text!r}")
        name = token.text
        if self.peek() == ":":
            self.take()
        if self._at >= len(self._tokens):
            raise SchemaError(f"schema {self._ddl!r}: column {name!r} has no type")
        data_type = self._type(name)
        nullable = True
        if self.peek().upper() == "NOT":
            self.take()
            if self.take().text.upper() != "NULL":
                raise SchemaError(f"schema {self._ddl!r}: NOT of column {name!r} must be NOT NULL")
            nullable = False
        if self.peek().upper() == "COMMENT":
            self.take()
            self.take()
        return pa.field(name, data_type, nullable=nullable)

    def _type(self, column: str) -> pa.DataType:
        given = self.take().text
        word = given.upper()
        if word in _DECIMALS:
            return self._decimal(column)
        if word == "ARRAY":
            self.expect("<")
            item = self._type(column)
            self.expect(">")
            return pa.list_(item)
        if word == "MAP":
            self.expect("<")
            key = self._type(column)
            self.expect(",")
            value = self._type(column)
            self.expect(">")
            return pa.map_(key, value)
        if word == "STRUCT":
            self.expect("<")
            fields = self.fields(closing=">")
            self.expect(">")
            return pa.struct(fields)
        if word not in _SIMPLE_TYPES:
            remedy = f"known are {', '.join(_TYPES)}{did_you_mean(word, _TYPES)}"
            if self.peek().upper() in _SIMPLE_TYPES:
                remedy = f"write a name with a space in backticks: `{column} {given}`"
            raise SchemaError(f"schema {self._ddl!r}: column {column!r} has unknown type {word!r}; {remedy}")
        if word in ("VARCHAR", "CHAR", "CHARACTER") and self.peek() == "(":
            self._numbers()
        return _SIMPLE_TYPES[word]

    def _decimal(self, column: str) -> pa.DataType:
        numbers = self._numbers() if self.peek() == "(" else [10]
        precision, scale = (*numbers, 0)[:2]
        if len(numbers) > 2 or not 1 <= precision <= _MAX_DECIMAL_DIGITS or scale > precision:
            raise SchemaError(
                f"schema {self._ddl!r}: column {column!r} needs DECIMAL(precision, scale) with "
                f"1 <= precision <= {_MAX_DECIMAL_DIGITS} and scale <= precision"
            )
        return pa.decimal128(precision, scale)

    def _numbers(self) -> list[int]:
        self.expect("(")
        numbers: list[int] = []
        while True:
            text = self.take().text
            if not re.fullmatch("[0-9]{1,9}", text):
                raise SchemaError(f"schema {self._ddl!r}: expected a number but found {text!r}")
            numbers.append(int(text))
            if self.peek() != ",":
                break
            self.take()
        self.expect(")")
        return numbers
