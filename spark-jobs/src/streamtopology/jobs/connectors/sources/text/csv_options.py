"""Options of csv sources, with Spark's names and defaults, and what of them cannot be read here."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow.csv as pa_csv

from streamtopology.jobs.connectors.sources.descriptors import SourceError, SourceSpec, unwritable

_ESCAPED = {"\\t": "\t", "\\\\": "\\", '\\"': '"', "\\'": "'", "\\b": "\b", "\\f": "\f", "\\u0000": "", "\0": ""}


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

    @property
    def refused(self) -> re.Pattern[bytes] | None:
        r"""A text that would lose a character: `\"` if nothing says what it is, else an escape of other characters."""
        quote, escape = re.escape(self.quote.encode()), re.escape(self.escape.encode())
        if not quote or (self.is_escape_given and not escape):
            return None
        if not escape:
            return re.compile(rb"\\" + quote)
        return re.compile(rb"(?<!%s)(?:%s%s)*%s[^%s%s]" % (escape, escape, escape, escape, escape, quote))

    def parsing(self) -> pa_csv.ParseOptions:
        """The same to Arrow."""
        return pa_csv.ParseOptions(
            delimiter=self.separator,
            quote_char=self.quote or False,
            escape_char=self.escape or False,
            newlines_in_values=bool(self.quote),
        )

    @staticmethod
    def of(spec: SourceSpec) -> CsvOptions:
        """The options of a source. Raises SourceError for the first that cannot be read."""
        options, problems = _read(spec)
        for _, sentence in problems:
            raise SourceError(sentence)
        return options


def csv_problems(spec: SourceSpec) -> list[tuple[str, str]]:
    """Each option of a csv source that cannot be read, with a sentence on the finding and the remedy."""
    return _read(spec)[1]


def _read(spec: SourceSpec) -> tuple[CsvOptions, list[tuple[str, str]]]:
    given, problems = spec.options, list[tuple[str, str]]()

    def add(name: str, finding: str) -> None:
        problems.append((name, f"source {spec.name!r}: option {name} {finding}"))

    def character(name: str, default: str, what: str) -> str:
        text = given.get(name, default)
        found = _ESCAPED.get(text, text)
        if len(found) > 1 or not found.isascii():
            remedy = "or read the file as text and cut it in select: string_split(value, '||')[1] AS a"
            add(name, f"is {text!r}, {len(found)} characters; {what}; {remedy}" if len(found) > 1 else f"is {text!r}; {what}")
            return default
        return found

    by_name = "delimiter" if "sep" not in given and "delimiter" in given else "sep"
    separator = character(by_name, ",", "a separator is one character of ASCII")
    quote = character("quote", '"', "quotes are one character of ASCII, or empty: without quotes")
    escape = character("escape", "", "an escape is one character of ASCII, or empty: without escapes")
    if separator in ("", "\n", "\r"):
        add("sep", "is no character between values; name one, such as ';' or '\\t'")
    for name, other in (("quote", quote), ("escape", escape)):
        if other and other == separator:
            add(name, f"is the separator {separator!r}, too; name another, or none: ''")
    if fault := unwritable(given.get("nullValue", "")):
        add("nullValue", fault)
    mode = given.get("mode", "FAILFAST")
    if mode.upper() != "FAILFAST":
        add("mode", f"is {mode!r}; allowed: FAILFAST: a row that does not fit stops the run, which names it; leave it out")
    options = CsvOptions(
        header=given.get("header", "false").lower() == "true",
        separator=separator or ",",
        quote=quote,
        escape="" if escape == quote or not quote else escape,
        is_escape_given="escape" in given,
        null=given.get("nullValue", ""),
    )
    return options, problems
