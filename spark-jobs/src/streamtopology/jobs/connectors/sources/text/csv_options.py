"""Options of csv sources, with Spark's names and defaults, and what of them cannot be read here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from streamtopology.jobs.connectors.sources.descriptors import SourceError, SourceSpec, unwritable

_ESCAPED = {"\\t": "\t", "\\\\": "\\", '\\"': '"', "\\'": "'", "\\b": "\b", "\\f": "\f", "\\u0000": ""}
_NONE = ("", "\0")
_CUT = "string_split(value, '||')[1] AS a"


@dataclass(frozen=True)
class CsvOptions:
    r"""Characters are of ASCII, as the text is cut by its bytes; "" is none.

    `escape` stands before a quote or itself; a doubled quote is a quote with any `escape`. `null` is NULL, as is what is empty.
    """

    header: bool = False
    separator: str = ","
    quote: str = '"'
    escape: str = ""
    is_escape_given: bool = False
    null: str = ""

    @property
    def finding_of_escape(self) -> str:
        """A clause on a text that the escape does not explain, with the remedy."""
        other = "to '\"' if it is a character like others"
        if self.escape:
            return f"options.escape is {self.escape!r}, which stands before another character here; set it {other}"
        spark = "to '\\\\' if it is no part of the value, as in files of Spark"
        return f"a backslash stands before a quote; set options.escape {spark}, {other}"

    @staticmethod
    def of(spec: SourceSpec) -> CsvOptions:
        """The options of a source. Raises SourceError for the first that cannot be read."""
        reading = _Reading(spec)
        options = reading.options()
        for _, sentence in reading.problems:
            raise SourceError(sentence)
        return options


def csv_problems(spec: SourceSpec) -> Iterator[tuple[str, str]]:
    """Each option of a csv source that cannot be read, with a sentence on the finding and the remedy."""
    reading = _Reading(spec)
    reading.options()
    yield from reading.problems


@dataclass
class _Reading:
    spec: SourceSpec
    problems: list[tuple[str, str]] = field(default_factory=list)

    def options(self) -> CsvOptions:
        given = self.spec.options
        separator = self._character("delimiter" if "sep" not in given and "delimiter" in given else "sep", ",", "a separator")
        quote = self._character("quote", '"', "quotes", none="without quotes")
        escape = self._character("escape", "", "an escape", none="without escapes")
        if separator in ("", "\n", "\r"):
            self._add("sep", "is no character between values", "name one, such as ';' or '\\t'")
        for name, other in (("quote", quote), ("escape", escape)):
            if other and other == separator:
                self._add(name, f"is the separator {separator!r}, too", "name another, or none: ''")
        if fault := unwritable(given.get("nullValue", "")):
            self.problems.append(("nullValue", f"source {self.spec.name!r}: option nullValue {fault}"))
        mode = given.get("mode", "FAILFAST")
        if mode.upper() != "FAILFAST":
            self._add(
                "mode", f"is {mode!r}", "allowed: FAILFAST: a row that does not fit stops the run, which names it; leave it out"
            )
        return CsvOptions(
            header=given.get("header", "false").lower() == "true",
            separator=separator or ",",
            quote=quote,
            escape="" if escape == quote or not quote else escape,
            is_escape_given="escape" in given,
            null=given.get("nullValue", ""),
        )

    def _character(self, name: str, default: str, what: str, none: str = "") -> str:
        given = self.spec.options.get(name, default)
        character = _ESCAPED.get(given, given) if len(given) > 1 else given
        if character in _NONE:
            return ""
        if len(character) != 1 or ord(character) > 127:
            found = f"{len(character)} characters" if len(character) > 1 else "no character of ASCII"
            remedy = f"{what} is one character of ASCII{f', or empty: {none}' if none else ''}"
            self._add(name, f"is {given!r}, {found}", f"{remedy}; or read the file as text and cut it in select: {_CUT}")
            return default
        return character

    def _add(self, name: str, finding: str, remedy: str) -> None:
        self.problems.append((name, f"source {self.spec.name!r}: option {name} {finding}; {remedy}"))
