"""Corrections of SQL expressions that do not fit their columns, so that one slip hides no other mistake."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa

from streamtopology.jobs.columnar import expressions
from streamtopology.jobs.columnar.expressions import ExpressionError
from streamtopology.topology import nearest

_NAMED = re.compile(r"(?P<body>.*\S)\s+AS\s+(?P<name>\S+)\s*", re.DOTALL | re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z_]\w*(?!\w*\s*\()")


def corrected(expression: str, schema: pa.Schema) -> str | None:
    """The expression with the columns that it probably means; None if it does not hold with these either."""
    body, given = named_expression(expression)
    name = f" AS {given}" if given else ""
    columns = {column.lower() for column in schema.names}
    if body.lower() in columns:  # a word of SQL, such as `at`
        return f"{expressions.quoted(body)}{name}"

    def column_meant(word: re.Match[str]) -> str:
        return word[0] if word[0].lower() in columns else nearest(word[0], schema.names) or word[0]

    likely = _WORD.sub(column_meant, body) + name
    if likely == expression or expression_fault(likely, schema) is not None:
        return None
    return likely


def named_expression(expression: str) -> tuple[str, str | None]:
    """Return the part before AS, and the column's name after it, as written; None without an AS."""
    named = _NAMED.fullmatch(expression)
    return (named["body"], named["name"]) if named else (expression, None)


def stand_in(expression: str) -> str:
    """A number under the name that `expression` gives its column."""
    return f"0 AS {named_expression(expression)[1] or expressions.quoted(expression)}"


def expression_fault(expression: str, schema: pa.Schema) -> str | None:
    """The reason why one expression does not hold for rows of `schema`, or None."""
    try:
        expressions.output_schema(schema, (expression,))
    except ExpressionError as error:
        return str(error)
    return None


def replaced(value: object, old: str, new: str) -> object:
    """`value` with `new` in place of `old`, wherever that is a text in it, or a word of one."""
    if isinstance(value, str):
        return re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", lambda _: new, value)
    if isinstance(value, Mapping):
        return {name: replaced(item, old, new) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [replaced(item, old, new) for item in value]
    return value


def path_of(value: object, text: str) -> str | None:
    """The path in `value` at which `text` stands: as a value, as a word of one, or around one."""
    leaves = dict(_leaves(value, ""))
    word = re.compile(rf"(?<!\w){re.escape(text)}(?!\w)")
    for test in (lambda leaf: leaf == text, word.search, lambda leaf: leaf and leaf in text):
        for path, leaf in leaves.items():
            if test(leaf):
                return path
    return None


def _leaves(value: object, path: str) -> list[tuple[str, str]]:
    if isinstance(value, str):
        return [(path, value)]
    if isinstance(value, Mapping):
        return [leaf for name, item in value.items() for leaf in _leaves(item, f"{path}.{name}")]
    if isinstance(value, list | tuple):
        return [leaf for index, item in enumerate(value) for leaf in _leaves(item, f"{path}[{index}]")]
    return []
