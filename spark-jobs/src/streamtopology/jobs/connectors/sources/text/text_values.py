"""Values that files and folders write as texts: numbers, bytes, dates and times, also of Spark's patterns (`dd/MM/yyyy`)."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.jobs.connectors.sources.descriptors import TIME_OPTIONS, SourceError, SourceSpec, unwritable
from streamtopology.jobs.connectors.sources.schema.conform import SchemaMismatchError, conform, parse_timestamps

# Texts that are values of DOUBLE and FLOAT to Spark, too.
NO_NUMBERS = ("NaN", "Infinity", "+Infinity", "INF", "+INF", "-Infinity", "-INF")
_INTEGER = "^-?[0-9]+$"
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
# Of such texts Arrow may lose digits without a word: of 9242e-74 it makes 0, of 256 nines -1.
_LOSSY = r"[eE]|\.[0-9]{22}|[0-9]{39}|^\s|\s$"
_MOST_DIGITS = 38
_MOST_SHOWN = 60
_SHAPES = {"yyyy": "[0-9]{4}", **{letter * 2: "[0-9]{2}" for letter in "MdHms"}, **dict.fromkeys("MdHms", "[0-9]{1,2}")}
_SHAPES |= dict.fromkeys(("X", "XX", "XXX"), "Z|[+-][0-9]{2}(?::?[0-9]{2})?")
_SHAPES |= {"S" * digits: f"[0-9]{{{digits}}}" for digits in range(1, 7)}
_PARTS = re.compile(r"('((?:[^']|'')*)'|([A-Za-z])\3*|.)", re.DOTALL)


@dataclass(frozen=True)
class TimePattern:
    """A pattern, and the regular expression of the texts that are of it, with a group for each of its letters."""

    text: str
    shape: str
    letters: tuple[str, ...]

    @staticmethod
    def of(text: str, has_time: bool) -> TimePattern:
        """Raises ValueError, which says what of the pattern is not known."""
        if fault := unwritable(text):
            raise ValueError(fault)
        shape, letters = "", list[str]()
        for part in _PARTS.finditer(text):
            token, quoted, letter = part.groups()
            if quoted is not None or (letter is None and token != "'"):
                shape += re.escape(token if quoted is None else quoted.replace("''", "'") or "'")
            elif token not in _SHAPES or letter in letters:
                raise ValueError(f"has {token!r}" + (" twice" if letter in letters else ""))
            else:
                letters.append(token[0])
                shape += f"(?P<{letter}>{_SHAPES[token]})"
        missing = [name for name in ("yyyy", "MM", "dd") if name[0] not in letters]
        if missing or (not has_time and set(letters) & set("HmsSX")):
            raise ValueError(f"has no {missing[0]}" if missing else "has a time, and a DATE has none")
        return TimePattern(text, f"^{shape}$", tuple(letters))

    def to_iso(self, texts: pa.Array) -> pa.Array:
        """Raises `pa.ArrowInvalid`, which names the first text that is not of the pattern."""
        _refuse_unlike(texts, self.shape, f"not of the form {self.text!r}")
        parts = pc.extract_regex(texts, self.shape)
        found = {letter: pc.struct_field(parts, letter) for letter in self.letters}
        padded = {letter: pc.utf8_lpad(part, 2, "0") for letter, part in found.items() if letter not in "SX"}
        year, month, day, hour, minute, second = (padded.get(letter, "00") for letter in "yMdHms")
        iso = pc.binary_join_element_wise(year, month, day, "-")
        if set(self.letters) - set("yMd"):
            iso = pc.binary_join_element_wise(iso, pc.binary_join_element_wise(hour, minute, second, ":"), "T")
        if "S" in found:
            iso = pc.binary_join_element_wise(iso, found["S"], ".")
        return pc.binary_join_element_wise(iso, found.get("X", ""), "")


# By their options; without one ISO 8601.
Times = Mapping[str, TimePattern]


def time_patterns(spec: SourceSpec) -> Times:
    """Raises SourceError for the first pattern that is not known."""
    for _, sentence in time_problems(spec):
        raise SourceError(sentence)
    return {name: TimePattern.of(spec.options[name], name != "dateFormat") for name in TIME_OPTIONS if name in spec.options}


def time_problems(spec: SourceSpec) -> Iterator[tuple[str, str]]:
    """Each option that is no known pattern, with a sentence on the finding and the remedy."""
    for name in TIME_OPTIONS:
        try:
            TimePattern.of(spec.options.get(name, "yyyy-MM-dd"), name != "dateFormat")
        except ValueError as error:
            known = "known are yyyy, MM, dd, HH, mm, ss, SSS, XXX, and other characters, letters in quotes ('T')"
            remedy = f"{known}; for all else declare the column STRING and use strptime in select"
            yield name, f"source {spec.name!r}: option {name} is {spec.options[name]!r}, which {error}; {remedy}"


def values_of(
    texts: pa.Table,
    declared: pa.Schema,
    make: Callable[[pa.Array, pa.DataType], pa.Array],
    where: Callable[[int], str],
    fitting: str,
) -> pa.Table:
    """The declared values of columns of texts, by `make`.

    Raises SchemaMismatchError for the first row that does not fit, which is found by halves, and says `where` it is; `fitting`
    is a type that each text fits.
    """
    columns: list[pa.Array] = []
    try:
        for column, field in zip(texts.columns, declared, strict=True):
            try:
                columns.append(make(column.combine_chunks(), field.type))
            except pa.ArrowInvalid as error:
                text = str(column[0].as_py())
                sentence = f"{where(0)}: column {field.name!r} is declared {field.type} but holds {shown(text)}: {error}"
                raise SchemaMismatchError(sentence, field.name, "DOUBLE" if text in NO_NUMBERS else fitting) from error
        return conform(pa.table(columns, names=declared.names), declared, where(0))
    except SchemaMismatchError:
        half = texts.num_rows // 2
        if half == 0:
            raise
        # `take` copies the parts of nested values, where a slice has those of all rows.
        first, second = texts.take(np.arange(half)), texts.take(np.arange(half, texts.num_rows))
        found = values_of(first, declared, make, where, fitting)
        return pa.concat_tables([found, values_of(second, declared, make, lambda at: where(half + at), fitting)])


def from_texts(values: pa.Array, declared: pa.DataType, times: Times) -> pa.Array:
    """Numbers, times and dates of the patterns, and bytes of base64, at any depth. Raises `pa.ArrowInvalid`."""
    if values.type == declared:
        return values
    if pa.types.is_list(declared):
        items = from_texts(values.values, declared.value_type, times)
        return pa.ListArray.from_arrays(values.offsets, items, type=declared, mask=values.is_null())
    if pa.types.is_map(declared):
        items = from_texts(values.items, declared.item_type, times)
        return pa.MapArray.from_arrays(values.offsets, values.keys, items, type=declared, mask=values.is_null())
    if pa.types.is_struct(declared):
        # Flat parts are NULL where the struct is; under it there may be any texts.
        parts = [from_texts(part, field.type, times) for part, field in zip(values.flatten(), declared, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(declared), mask=values.is_null())
    if pa.types.is_timestamp(declared):
        pattern = times.get("timestampFormat" if declared.tz else "timestampNTZFormat")
        return parse_timestamps(values if pattern is None else pattern.to_iso(values), declared)
    if pa.types.is_date(declared):
        values = times["dateFormat"].to_iso(values) if "dateFormat" in times else values
    if pa.types.is_binary(declared):
        return _from_base64(values)
    if pa.types.is_integer(declared):
        return integers(values, declared)
    if pa.types.is_decimal(declared):
        return decimals(values, declared)
    return values.cast(declared)


def integers(texts: pa.Array | pa.ChunkedArray, declared: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Whole numbers of decimal digits. Raises `pa.ArrowInvalid`, naming the first text that is none.

    Arrow also reads hexadecimal texts, as the bits of the declared type: 0xFF is -1 in a TINYINT.
    """
    _refuse_unlike(texts, _INTEGER, "no whole number of decimal digits")
    return texts.cast(declared)


def decimals(texts: pa.Array, declared: pa.DataType) -> pa.Array:
    """The numbers of decimal digits. Raises `pa.ArrowInvalid` for what is none or does not fit."""
    if not pc.any(pc.match_substring_regex(texts, _LOSSY)).as_py():
        return texts.cast(declared)
    return pa.array([None if text is None else _decimal(text, declared.scale) for text in texts.to_pylist()], declared)


def _decimal(text: str, scale: int) -> Decimal:
    if not _NUMBER.fullmatch(text):
        raise pa.ArrowInvalid("it is no decimal number")
    number = Decimal(text)
    if number and int(number.as_tuple().exponent) < -scale - _MOST_DIGITS:
        raise pa.ArrowInvalid(f"it has more than {scale} digits after the point")
    return number or Decimal(0)


def _from_base64(texts: pa.Array) -> pa.Array:
    """The bytes of base64 texts with padding (RFC 4648, section 4). Raises `pa.ArrowInvalid`."""
    try:
        found = [None if text is None else a2b_base64(text, strict_mode=True) for text in texts.to_pylist()]
    except ValueError as error:
        raise pa.ArrowInvalid(f"no base64, as which JSON holds bytes: {error}") from error
    return pa.array(found, pa.binary())


def _refuse_unlike(texts: pa.Array | pa.ChunkedArray, shape: str, what: str) -> None:
    is_other = pc.invert(pc.match_substring_regex(texts, shape))
    if pc.any(is_other).as_py():
        raise pa.ArrowInvalid(f"{shown(pc.filter(texts, is_other)[0].as_py())} is {what}")


def shown(text: str) -> str:
    """A text in a message."""
    return repr(text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "...")
