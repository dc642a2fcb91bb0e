"""Texts as DECIMAL. Arrow does not always say what it loses: of 9242e-74 it makes 0, of 256 nines -1."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal

import pyarrow as pa

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
_MOST_DIGITS = 38
_EXPONENT = rb"-0*(1[89]|[2-9][0-9]|[0-9]{3,9})(?![0-9])"
_TINY = (re.compile(b"e" + _EXPONENT), re.compile(b"E" + _EXPONENT), re.compile(rb"\.[0-9]{22}"))


def has_tiny_number(text: bytes) -> bool:
    """True if a number in the text may have digits 39 places behind the point, which Arrow loses."""
    return any(pattern.search(text) for pattern in _TINY)


def decimals(texts: Iterable[str | int | None], declared: pa.DataType) -> pa.Array:
    """The numbers of decimal digits. Raises ValueError for what is none or does not fit; `pa.ArrowInvalid` is one, too."""
    return pa.array([None if text is None else _decimal(text, declared.scale) for text in texts], declared)


def _decimal(text: str | int, scale: int) -> Decimal:
    if isinstance(text, int):
        return Decimal(text)
    if not _NUMBER.fullmatch(text):
        raise ValueError("it is no decimal number")
    number = Decimal(text)
    if not number:
        return Decimal(0)
    if int(number.as_tuple().exponent) < -scale - _MOST_DIGITS:
        raise ValueError(f"it has more than {scale} digits after the point")
    return number
