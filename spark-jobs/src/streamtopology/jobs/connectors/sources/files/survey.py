"""The amount that a source's path names, and the reason why it names nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from streamtopology.jobs.connectors.sources.descriptors import SourceError, SourceSpec
from streamtopology.jobs.connectors.sources.files.file_kinds import suffix_of
from streamtopology.jobs.connectors.sources.files.listing import files_below, files_of, folders_left_out, list_files
from streamtopology.jobs.connectors.sources.files.stream import estimate_rows
from streamtopology.jobs.connectors.sources.files.tables import place_of_table
from streamtopology.jobs.connectors.sources.path_patterns import has_pattern, plain
from streamtopology.jobs.connectors.sources.stored_files import each_of, for_arrow
from streamtopology.topology import Doubt, Problem

_MOST_OPENED = 1000
_MOST_FOLDERS = 20


def amount(spec: SourceSpec) -> str:
    """The files of a source and their rows: "3 files, 1,200 rows"; "about" where only reading them would count the rows."""
    try:
        files = list_files(spec)
    except SourceError as error:  # its checks say so, too
        return str(error)
    texts = [f"{len(files):,} file{'' if len(files) == 1 else 's'}", _rows(spec, files)]
    return ", ".join(text for text in texts if text)


def _rows(spec: SourceSpec, files: Sequence[str]) -> str:
    opened = files[:_MOST_OPENED]
    try:
        counted = sum(each_of(opened, lambda path: _rows_of(spec, path), str))
    except (OSError, pa.ArrowInvalid):  # the run names the file when it comes to it
        return "not all of them readable"
    is_exact = spec.format == "parquet" and len(opened) == len(files)
    rows = counted if is_exact else round(counted * len(files) / max(len(opened), 1))
    return "no rows" if not files else f"{'' if is_exact else 'about '}{rows:,} row{'' if rows == 1 else 's'}"


def _rows_of(spec: SourceSpec, path: str) -> int:
    return pq.read_metadata(for_arrow(path)).num_rows if spec.format == "parquet" else estimate_rows(path)


def nothing_to_read(specs: Sequence[SourceSpec], waits: bool) -> Iterator[str]:
    """A sentence for each source of files that has none, for a run that `waits` for them or ends. Raises SourceError."""
    for spec in specs:
        if spec.format != "kafka" and not list_files(spec):
            yield f"source {spec.name!r} {'waits' if waits else 'ends without rows'}: {why_none(spec)}"


def why_none(spec: SourceSpec) -> str:
    """Return why a source has no file, and what to do. Raises OSError."""
    if spec.is_table:
        return f"table {place_of_table(spec)} has no rows: correct the name of the table, or append some"
    path, wanted = spec.options["path"], spec.options.get("pathGlobFilter")
    unfiltered = SourceSpec("", spec.format, None, {**spec.options, "pathGlobFilter": "*"})
    if wanted is not None and (other := next(files_of(unfiltered), None)):
        return (
            f"no file in {plain(path)} matches option pathGlobFilter {wanted!r} (there is {os.path.basename(other.path)}); "
            "correct it, or leave it out"
        )
    if folder := next(folders_left_out(spec), None):
        return (
            f"folder {os.path.dirname(folder)} has folders ({os.path.basename(folder)}) but no files of its own; set "
            f"options.recursiveFileLookup: true, or name them by a pattern: {path.rstrip('/')}/*"
        )
    if has_pattern(path):
        named = " (as a name of its own it would need a backslash before each *, ?, [ and {)" if os.path.exists(path) else ""
        return f"no file matches {path}{named}: correct the pattern, or put data there"
    return f"folder {plain(path)} has no files: correct option path, or put data there"


def unread_folders(spec: SourceSpec, example: str) -> Iterator[Problem]:
    """A doubt about folders next to the files of a source that have files like `example`, and are not read. Raises OSError."""
    if spec.is_table or has_pattern(spec.options["path"]):
        return
    folders = [folder for folder in islice(folders_left_out(spec), _MOST_FOLDERS) if _has_file_like(example, folder)]
    if folders:
        names = ", ".join(map(os.path.basename, folders[:3]))
        sentence = f"source {spec.name!r}: the files in its folders ({names}) are not read"
        yield Doubt("options.path", f"{sentence}; set options.recursiveFileLookup: true to read them, too")


def _has_file_like(example: str, folder: str) -> bool:
    return any(suffix_of(file.path) == suffix_of(example) for file in islice(files_below(folder), _MOST_OPENED))
