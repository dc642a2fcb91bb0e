"""Kinds of data files by their names, and folders that hold several kinds."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from streamtopology.jobs.connectors.sources.descriptors import Kind, SourceSpec
from streamtopology.jobs.connectors.sources.path_patterns import has_pattern
from streamtopology.jobs.connectors.sources.stored_files import opened
from streamtopology.jobs.connectors.sources.text.text_stream import SUFFIXES
from streamtopology.topology import Doubt, Problem

# Suffix of a file's name -> the format that it says.
FORMATS: Mapping[str, Kind] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".txt": "text",
    ".log": "text",
}
_MOST_LISTED = 1000
_PARQUET = b"PAR1"


def suffix_of(path: str) -> str:
    """`.csv` for `a.csv` and `a.csv.gz`."""
    stem, suffix = os.path.splitext(path)
    return (os.path.splitext(stem)[1] if suffix.lower() in SUFFIXES else suffix).lower()


def whole_suffix_of(path: str) -> str:
    """`.csv.gz` for `a.csv.gz`."""
    stem, suffix = os.path.splitext(os.path.basename(path))
    return os.path.splitext(stem)[1] + suffix if suffix.lower() in SUFFIXES else suffix


def is_parquet(path: str) -> bool:
    """True if the file begins as parquet files do. Raises OSError and BucketError."""
    with opened(path) as file:
        return file.read(len(_PARQUET)) == _PARQUET


def one_of_each_kind(files: Iterable[str], format_: Kind) -> list[str]:
    """A file for each suffix among the first of `files`; one whose name says `format_` comes first."""
    kinds: dict[str, str] = {}
    for path in islice(files, _MOST_LISTED):
        kinds.setdefault(suffix_of(path), path)
    return sorted(kinds.values(), key=lambda path: FORMATS.get(suffix_of(path)) != format_)


def foreign_files(spec: SourceSpec, looked_at: str, others: Iterable[str]) -> Iterator[Problem]:
    """The findings about `others`, files of other kinds in the folder of `looked_at`. Raises OSError."""
    for path in others:
        if is_parquet(path) == (spec.format == "parquet") and not _is_named_as_another(spec, path):
            continue
        refused = spec.format == "parquet" or is_parquet(path)
        sentence = f"source {spec.name!r}: reads {path}, too, which is no {spec.format} file; {_remedy(spec, looked_at)}"
        yield (Problem if refused else Doubt)("options.path", sentence)


def _is_named_as_another(spec: SourceSpec, path: str) -> bool:
    return spec.format in ("csv", "json") and FORMATS.get(suffix_of(path), spec.format) not in (spec.format, "text")


def _remedy(spec: SourceSpec, looked_at: str) -> str:
    suffix = whole_suffix_of(looked_at)
    if has_pattern(spec.options["path"]) or not suffix:
        return "name files of one kind in option path"
    return f"set options.pathGlobFilter: '*{suffix}' to read only files of one kind"
