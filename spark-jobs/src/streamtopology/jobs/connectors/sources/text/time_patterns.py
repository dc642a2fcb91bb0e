"""Dates and times of other forms than ISO 8601, by Spark's patterns such as `dd/MM/yyyy HH:mm`."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.jobs.connectors.sources.descriptors import TIME_OPTIONS, SourceError, SourceSpec, unwritable

_SHAPES = {"yyyy": "[0-9]{4}", **{letter * 2: "[0-9]{2}" for letter in "MdHms"}, **dict.fromkeys("MdHms", "[0-9]{1,2}")}
_ZONE = "Z|[+-][0-9]{2}(?::?[0-9]{2})?"
_PARTS = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']")


@dataclass(frozen=True)
class TimePattern:
    """A pattern as the regular expression `shape`, and the replacement that makes ISO 8601 of what it matches."""

    text: str
    shape: str
    iso: str

    @staticmethod
    def of(text: str, has_time: bool) -> TimePattern:
        """Raises ValueError, which says what of the pattern is not known."""
        shape, groups = "", dict[str, int]()
        for part in _PARTS.finditer(text):
            token, letter = part[0], part[2]
            if letter is None:
                shape += re.escape("'" if token == "''" else token if part[1] is None else part[1].replace("''", "'"))
                continue
            known = _SHAPES.get(token) or (_ZONE if token in ("X", "XX", "XXX") else None)
            known = f"[0-9]{{{len(token)}}}" if letter == "S" and len(token) <= 6 else known
            if known is None or letter in groups:
                raise ValueError(f"has {token!r}" + (" twice" if letter in groups else ""))
            groups[letter] = len(groups) + 1
            shape += f"({known})"
        missing = [name for letter, name in (("y", "yyyy"), ("M", "MM"), ("d", "dd")) if letter not in groups]
        if missing or (not has_time and set(groups) & set("HmsSX")):
            raise ValueError(f"has no {missing[0]}" if missing else "has a time, and a DATE has none")
        place = {letter: f"\\{number}" for letter, number in groups.items()}
        iso = f"{place['y']}-{place['M']}-{place['d']}"
        if has_time:
            iso += "T" + ":".join(place.get(letter, "00") for letter in "Hms")
            iso += (f".{place['S']}" if "S" in place else "") + place.get("X", "")
        return TimePattern(text, f"^{shape}$", iso)

    def to_iso(self, texts: pa.Array) -> pa.Array:
        """Raises `pa.ArrowInvalid`, which names the first text that is not of the pattern."""
        is_other = pc.invert(pc.match_substring_regex(texts, self.shape))
        if pc.any(is_other).as_py():
            raise pa.ArrowInvalid(f"{pc.filter(texts, is_other)[0].as_py()!r} is not of the form {self.text!r}")
        iso = pc.replace_substring_regex(texts, self.shape, self.iso)
        iso = pc.replace_substring_regex(iso, r"-([0-9])(T|\b)", r"-0\1\2")
        return pc.replace_substring_regex(iso, r"([T:])([0-9])\b", r"\10\2")


@dataclass(frozen=True)
class TimePatterns:
    """The patterns of a source; None is ISO 8601."""

    date: TimePattern | None = None
    timestamp: TimePattern | None = None
    naive: TimePattern | None = None

    @staticmethod
    def of(spec: SourceSpec) -> TimePatterns:
        """Raises SourceError for the first pattern that is not known."""
        for _, sentence in time_problems(spec):
            raise SourceError(sentence)
        given = [(name, spec.options.get(name)) for name in TIME_OPTIONS]
        found = [None if text is None else TimePattern.of(text, name != "dateFormat") for name, text in given]
        return TimePatterns(*found)

    def of_type(self, kind: pa.DataType) -> TimePattern | None:
        """The pattern of a date or a timestamp."""
        if pa.types.is_date(kind):
            return self.date
        return None if not pa.types.is_timestamp(kind) else self.naive if kind.tz is None else self.timestamp


def time_problems(spec: SourceSpec) -> Iterator[tuple[str, str]]:
    """Each option that is no known pattern, with a sentence on the finding and the remedy."""
    for name in TIME_OPTIONS:
        text = spec.options.get(name)
        if text is None:
            continue
        if fault := unwritable(text):
            yield name, f"source {spec.name!r}: option {name} {fault}"
            continue
        try:
            TimePattern.of(text, name != "dateFormat")
        except ValueError as error:
            remedy = "known are yyyy, MM, dd, HH, mm, ss, SSS, XXX, and other characters, letters in quotes ('T')"
            other = "for all else declare the column STRING and use strptime in select"
            yield name, f"source {spec.name!r}: option {name} is {text!r}, which {error}; {remedy}; {other}"
