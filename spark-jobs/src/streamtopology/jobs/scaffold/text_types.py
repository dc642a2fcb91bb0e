"""Types of columns that come as texts (CSV) or as JSON values: the narrowest that holds all values seen."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.jobs.connectors.sources.schema.conform import parse_timestamps

# Texts by which CSV files commonly mark a missing value.
NULL_WORDS = ("NA", "NULL", "null", "N/A", "n/a", "None", r"\N", "-", "?")

MICROSECONDS = pa.timestamp("us", tz="UTC")
_SHAPES = (
    (r"^-?(0|[1-9]\d{0,17})$", "BIGINT"),
    (r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$", "DOUBLE"),
    (r"^\d{4}-\d\d-\d\d$", "DATE"),
    (r"^(true|false|True|False|TRUE|FALSE)$", "BOOLEAN"),
)
_LEADING_ZERO = r"^[+-]?0\d"
_INT64 = range(-(2**63), 2**63)


def type_of_texts(texts: Iterable[str]) -> str:
    """The Spark type of CSV cells, empty ones apart. Numbers with a leading zero (postcodes) stay texts.

    >>> type_of_texts(["1", "", "-20"]), type_of_texts(["1", "2.5"]), type_of_texts(["01069"]), type_of_texts([""])
    ('BIGINT', 'DOUBLE', 'STRING', 'STRING')
    """
    values = pa.array([text for text in texts if text], pa.string())
    if not len(values) or _some(values, _LEADING_ZERO):
        return "STRING"
    for shape, type_ in _SHAPES:
        if _all(values, shape):
            return type_
    return "TIMESTAMP" if are_times(pa.chunked_array([values])) else "STRING"


def null_word(columns: Sequence[Sequence[str]]) -> str | None:
    """The text that most often makes a column of numbers or times a column of texts, if leaving it out helps."""
    helped: dict[str, int] = {}
    for texts in columns:
        words = set(texts) & set(NULL_WORDS)
        if len(words) == 1 and "" not in texts and type_of_texts(text for text in texts if text not in words) != "STRING":
            word = words.pop()
            helped[word] = helped.get(word, 0) + 1
    return max(helped, key=lambda word: helped[word]) if helped else None


def type_of_json(values: Iterable[Any]) -> str | None:
    """The Spark type that a source reads these JSON values as, NULLs apart; None for arrays and for mixed values.

    An object is read as its text, whose fields are then columns.

    >>> type_of_json([1, None, 2.5]), type_of_json(["2025-01-31T12:00:00Z"]), type_of_json([1, "a"]), type_of_json([{}])
    ('DOUBLE', 'TIMESTAMP', None, 'STRING')
    """
    present = [value for value in values if value is not None]
    kinds = {type(value) for value in present}
    if not kinds or kinds == {str}:
        texts = pa.array(present, pa.string())
        return "TIMESTAMP" if are_times(pa.chunked_array([texts])) else "STRING"
    if kinds == {dict}:
        return "STRING"
    if kinds == {bool}:
        return "BOOLEAN"
    if kinds == {int}:
        return "BIGINT" if all(value in _INT64 for value in present) else None
    return "DOUBLE" if kinds <= {int, float} else None


def are_times(values: pa.ChunkedArray) -> bool:
    """True if all of these texts, none of them NULL, are times or dates that a source reads."""
    if not len(values) or not _all(values, r"^\d{4}-\d\d-\d\d"):
        return False
    try:
        parse_timestamps(values, MICROSECONDS)
    except pa.ArrowInvalid:
        return False
    return True


def _all(values: pa.Array | pa.ChunkedArray, shape: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(values, shape)).as_py())


def _some(values: pa.Array, shape: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(values, shape)).as_py())
