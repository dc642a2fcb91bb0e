"""Numbers and dates in texts as people write them: `1.234,50`, `31.12.2026`."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.jobs.scaffold.text_types import NULL_WORDS

# The share of a column's texts from which it is worth a word that they have a form.
_MOSTLY = 0.5
_COMMA_NUMBER = r"^[+-]?([1-9]\d{0,2}(\.\d{3})+|0|[1-9]\d*)(,\d+)?$"
_SURELY_DECIMAL = r",(\d{1,2}|\d{4,})$"
_TIMES = (
    (r"^\d{1,2}\.\d{1,2}\.\d{4}$", "%d.%m.%Y"),
    (r"^\d{1,2}\.\d{1,2}\.\d{4} \d{1,2}:\d\d$", "%d.%m.%Y %H:%M"),
    (r"^\d{1,2}\.\d{1,2}\.\d{4} \d{1,2}:\d\d:\d\d$", "%d.%m.%Y %H:%M:%S"),
)


@dataclass(frozen=True)
class TextForm:
    """A form that the texts of a column have.

    what: in words. share: of the texts that have it. sql: an expression that makes values of them, NULL of the others, with {}
    for the column. values: those of the column, NULL where it does not fit.
    """

    what: str
    share: float
    sql: str
    values: pa.ChunkedArray

    @property
    def is_whole(self) -> bool:
        """True if all texts have the form."""
        return self.share == 1.0


def written(texts: pa.ChunkedArray) -> TextForm | None:
    """The form of the texts of a column, words for missing values apart; None if fewer than half of them have one."""
    present = texts.filter(pc.invert(pc.is_in(texts, pa.array(["", *NULL_WORDS])))).drop_null()
    if not len(present):
        return None
    shares = ((pc.sum(pc.is_valid(form.read(present))).as_py() / len(present), form) for form in _forms(present))
    share, form = max(shares, key=lambda found: found[0], default=(0.0, None))
    if form is None or share < _MOSTLY:
        return None
    return TextForm(form.what, share, form.sql, form.read(texts))


@dataclass(frozen=True)
class _Form:
    what: str
    sql: str
    read: Callable[[pa.ChunkedArray], pa.ChunkedArray]


def _forms(present: pa.ChunkedArray) -> Iterator[_Form]:
    """The forms to try. `1,234` alone is left open: it may be a thousand and more."""
    if pc.any(pc.match_substring_regex(present, _SURELY_DECIMAL)).as_py():
        number = "TRY_CAST(replace(replace({}, '.', ''), ',', '.') AS DOUBLE)"
        yield _Form("numbers with a decimal comma", number, _numbers)
    for shape, format_ in _TIMES:
        is_date = "%H" not in format_
        sql = f"try_strptime({{}}, '{format_}')"
        what = "dates (day.month.year)" if is_date else "times (day.month.year)"
        yield _Form(what, f"TRY_CAST({sql} AS DATE)" if is_date else sql, lambda texts, s=shape, f=format_: _times(texts, s, f))


def _numbers(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    fitting = pc.if_else(pc.match_substring_regex(texts, _COMMA_NUMBER), texts, None)
    return pc.replace_substring(pc.replace_substring(fitting, ".", ""), ",", ".").cast(pa.float64())


def _times(texts: pa.ChunkedArray, shape: str, format_: str) -> pa.ChunkedArray:
    fitting = pc.if_else(pc.match_substring_regex(texts, shape), texts, None)
    times = pc.strptime(fitting, format_, unit="us", error_is_null=True)
    return times if "%H" in format_ else times.cast(pa.date32())
