"""CSV files whose form nobody wrote down: separator, header, missing values, types of columns."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.scaffold.files import first_bytes, text_of
from streamtopology.jobs.scaffold.sample import Option
from streamtopology.jobs.scaffold.text_types import null_word, type_of_texts

_SAMPLE_BYTES = 2 << 20
_MOST_ROWS = 20_000
_SEPARATORS = (",", ";", "\t", "|")

Rows = list[list[str]]


@dataclass(frozen=True)
class CsvColumns:
    """Name and Spark type of each column, and the options by which a source reads the files."""

    columns: list[tuple[str, str]]
    options: dict[str, Option]
    notes: list[str]


def csv_columns(paths: Sequence[str]) -> CsvColumns:
    """The columns that all of `paths` have. Raises WrongUse for files that no source can read."""
    separator = _separator(_text(paths[0]))
    files = {path: _rows(path, separator) for path in paths}
    files = {path: rows for path, rows in files.items() if rows}
    if not files:
        raise WrongUse(f"{paths[0]} has no rows")
    first = next(iter(files.values()))
    has_header = is_header(first)
    names = first[0] if has_header else [f"c{number}" for number in range(1, len(first[0]) + 1)]
    cells: dict[str, list[str]] = {name: [] for name in names}
    for path, rows in files.items():
        _refuse_ragged(path, rows)
        header = rows[0] if has_header else names
        if len(header) != len(names) and not has_header:
            raise WrongUse(f"{path} has {len(header)} columns, {paths[0]} has {len(names)}: name files of one kind")
        cells = {name: cells[name] for name in cells if header.count(name) == 1}
        for place, name in enumerate(header):
            if name in cells:
                cells[name] += [row[place] for row in rows[int(has_header) :]]
    notes = [f"left out: column {name!r}, not once in every file" for name in dict.fromkeys(names) if name not in cells]
    notes += [f"left out: column {name!r}, a column without a usable name" for name in _unusable(cells)]
    cells = {name: texts for name, texts in cells.items() if name not in _unusable(cells)}
    missing = null_word(list(cells.values()))
    options: dict[str, Option] = {"header": True} if has_header else {}
    options |= {"sep": separator} if separator != "," else {}
    options |= {"nullValue": missing} if missing else {}
    options |= {"escape": '"'} if any(_has_plain_backslashes(_text(path)) for path in files) else {}
    return CsvColumns([(name, _type(texts, missing)) for name, texts in cells.items()], options, notes)


def is_header(rows: Rows) -> bool:
    """True if the first row names columns: distinct texts that are no values, and that no column holds again.

    >>> is_header([["city", "fare"], ["Ulm", "3.5"]]), is_header([["Ulm", "3.5"], ["Bonn", "2"]])
    (True, False)
    """
    first, others = rows[0], rows[1:]
    if not any(first) or any(type_of_texts([cell]) != "STRING" or re.fullmatch(r"[\d.,+-]+", cell) for cell in first if cell):
        return False
    again = any(cell and any(row[place : place + 1] == [cell] for row in others) for place, cell in enumerate(first))
    return not again and len(set(first)) > len(first) / 2


def _has_plain_backslashes(text: str) -> bool:
    """True if backslashes stand before doubled quotes alone, as in JSON within a column: they escape nothing there."""
    return '\\""' in text and re.search(r'\\"(?!")', text) is None


def _unusable(cells: dict[str, list[str]]) -> list[str]:
    """Names that a schema cannot have: empty ones, and those that differ from an earlier one in case only."""
    lower = [name.lower() for name in cells]
    return [name for place, name in enumerate(cells) if not name.strip() or name.lower() in lower[:place]]


def _type(texts: list[str], missing: str | None) -> str:
    return type_of_texts(text for text in texts if text != missing)


def _text(path: str) -> str:
    data = first_bytes(path, _SAMPLE_BYTES)
    whole = data if len(data) < _SAMPLE_BYTES else data[: data.rfind(b"\n") + 1] or data
    return text_of(whole, path)


def _separator(text: str) -> str:
    """The separator that cuts the first lines into equal numbers of columns, the most of them."""
    lines = [line for line in text.splitlines()[:50] if line]

    def columns(separator: str) -> int:
        counts = {len(row) for row in csv.reader(lines, delimiter=separator)}
        return counts.pop() if len(counts) == 1 else 0

    best = max(_SEPARATORS, key=columns)
    return best if columns(best) > 1 else ","


def _rows(path: str, separator: str) -> Rows:
    """The first rows of a file, empty lines apart."""
    rows = csv.reader(io.StringIO(_text(path), newline=""), delimiter=separator)
    return list(islice((row for row in rows if row), _MOST_ROWS))


def _refuse_ragged(path: str, rows: Rows) -> None:
    wrong = next((number for number, row in enumerate(rows, 1) if len(row) != len(rows[0])), None)
    if wrong is not None:
        raise WrongUse(
            f"{path}: row {wrong} has {len(rows[wrong - 1])} columns, the first has {len(rows[0])}; correct the file: "
            "a run would stop at it"
        )
