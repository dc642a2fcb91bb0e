"""The data files at a path: their format, and the options by which a source lists these and no others."""

from __future__ import annotations

import os
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from streamtopology.jobs.connectors.sources.descriptors import Kind, SourceError, SourceSpec, local_path
from streamtopology.jobs.connectors.sources.files.file_kinds import FORMATS, suffix_of, whole_suffix_of
from streamtopology.jobs.connectors.sources.files.listing import list_files
from streamtopology.jobs.connectors.sources.path_patterns import has_pattern, literal
from streamtopology.jobs.connectors.sources.text.text_stream import UnreadableFileError, open_decompressed
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.scaffold.sample import Option, joined

_SNIFFED_BYTES = 4096


@dataclass(frozen=True)
class DataFiles:
    """Files of one format, in the order in which a source reads them, and the options that name them."""

    format: Kind
    paths: tuple[str, ...]
    options: dict[str, Option]
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        size = sum(os.path.getsize(path) for path in self.paths)
        return f"{len(self.paths):,} {self.format} file{'s' if len(self.paths) > 1 else ''}, {_bytes(size)}"


def find_files(path: str) -> DataFiles:
    """The data files at `path`: a file, a pattern, or a folder with its subfolders. Raises WrongUse, with a remedy."""
    if "://" in path:
        path = _on_this_machine(path)
    if os.path.isdir(path):
        return _in_folder(path)
    if not os.path.exists(path) and not has_pattern(path):
        raise WrongUse(f"no file or folder {path}; for a Kafka topic of that name add --servers HOST:PORT")
    option = literal(path) if os.path.exists(path) else path
    paths = _listed({"path": option})
    if not paths:
        raise WrongUse(f"no file fits {path}")
    formats: list[Kind] = list({format_of(found): None for found in paths})
    if len(formats) > 1:
        raise WrongUse(f"{path} has files of several formats ({', '.join(formats)}): name those of one")
    return DataFiles(formats[0], paths, {"path": option}, tuple(_format_notes(formats[0], paths[0])))


def _on_this_machine(uri: str) -> str:
    try:
        return local_path(uri)
    except SourceError as error:
        raise WrongUse(str(error)) from error


def format_of(path: str) -> Kind:
    """The format that the name of a file says, else its first bytes. Raises WrongUse for bytes that are neither."""
    suffix = suffix_of(path)
    if suffix in FORMATS:
        return FORMATS[suffix]
    head = first_bytes(path, _SNIFFED_BYTES)
    if head.startswith(b"PAR1"):
        return "parquet"
    lines = text_of(head[: head.rfind(b"\n") + 1] or head, path).splitlines()
    if lines and lines[0].lstrip().startswith(("{", "[")):
        return "json"
    commas = {line.count(",") for line in lines[:20] if line}
    return "csv" if len(commas) == 1 and commas != {0} else "text"


def first_bytes(path: str, most: int) -> bytes:
    """The first bytes of a file, decompressed. Raises WrongUse if it cannot be read."""
    try:
        with closing(open_decompressed(path, path)) as stream:
            return stream.read(most)
    except UnreadableFileError as error:
        raise WrongUse(f"cannot read {error}; a run would stop at it") from error
    except OSError as error:  # pyarrow's errors of damaged streams, too
        raise WrongUse(f"cannot read {path}: {error}; correct or remove the file: a run would stop at it") from error


def text_of(data: bytes, path: str) -> str:
    """`data` as text. Raises WrongUse for bytes that are no text."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise WrongUse(f"{path} is neither parquet nor text in UTF-8 ({error.reason} at byte {error.start})") from error
    if "\0" in text:
        raise WrongUse(f"{path} is neither parquet nor text: it has zero bytes")
    return text


def _in_folder(folder: str) -> DataFiles:
    """The files of the most common format (by bytes) at one depth below `folder`; notes name the others."""
    groups: dict[tuple[int, str], list[str]] = defaultdict(list)
    for depth, path in _walk(folder):
        if os.path.getsize(path):
            groups[depth, suffix_of(path)].append(path)
    if not groups:
        raise WrongUse(f"{folder} has no data: no file with content (names that begin with . or _ are no data)")
    depth, suffix = max(groups, key=lambda group: sum(os.path.getsize(path) for path in groups[group]))
    chosen = groups[depth, suffix]
    if depth > 0 and _holds_working_folder(folder) and (below := _only_folder(folder, groups)):
        return _in_folder(below)
    format_ = format_of(chosen[0])
    others = [path for group, paths in groups.items() if group != (depth, suffix) for path in paths]
    among_others = any(os.path.dirname(other) == folder for other in others) or _holds_working_folder(folder)
    options = _options(folder, depth, chosen[0], among_others or depth > 0)
    notes = (*_folder_notes(folder, chosen, others), *_format_notes(format_, chosen[0]))
    return DataFiles(format_, _listed(options), options, notes)


def _holds_working_folder(folder: str) -> bool:
    """True if what is written into the current folder, as the manifest, comes to lie in `folder`."""
    return Path.cwd().is_relative_to(os.path.realpath(folder))


def _only_folder(folder: str, groups: Mapping[tuple[int, str], list[str]]) -> str | None:
    """The one folder in `folder` that has all of its data: output may lie next to it. None for a part of a partition."""
    data = {path for (_, suffix), paths in groups.items() if suffix in FORMATS for path in paths}
    names = {Path(os.path.relpath(path, folder)).parts[0] for path in data}
    name = names.pop() if len(names) == 1 else ""
    below = name if folder == "." else os.path.join(folder, name)
    return below if name and "=" not in name and os.path.isdir(below) else None


def _format_notes(format_: Kind, example: str) -> Iterator[str]:
    if format_ == "text" and suffix_of(example) not in FORMATS:
        yield f"read as lines of text, as no format of data has names like {os.path.basename(example)}"


def _refuse(error: OSError) -> NoReturn:
    raise _closed(error.filename) from error


def _closed(folder: str) -> WrongUse:
    return WrongUse(f"cannot read {folder}: permission denied; allow this user to read it (chmod +rx)")


def _walk(folder: str) -> Iterator[tuple[int, str]]:
    """(depth below `folder`, path) of each file; names that begin with `.` or `_` are no data to a source."""
    seen = set[str]()
    for place, folders, names in os.walk(folder, followlinks=True, onerror=_refuse):
        if not os.access(place, os.X_OK, effective_ids=True):
            raise _closed(place)
        if (real := os.path.realpath(place)) in seen:  # a link back up
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if name[0] not in "._")
        depth = 0 if place == folder else os.path.relpath(place, folder).count(os.sep) + 1
        for name in sorted(names):
            path = os.path.join(place, name)
            if name[0] not in "._" and os.path.isfile(path):
                yield depth, path


def _options(folder: str, depth: int, example: str, filtered: bool) -> dict[str, Option]:
    pattern = f"*{whole_suffix_of(example)}"
    base = literal(folder)
    if depth == 0:
        return {"path": base, "pathGlobFilter": pattern} if filtered and pattern != "*" else {"path": base}
    return {"path": os.path.join(base, *["[!_]*"] * depth, f"[!_]{pattern}")}


def _folder_notes(folder: str, chosen: list[str], others: list[str]) -> Iterator[str]:
    if others:
        yield f"left out: {joined(os.path.relpath(path, folder) for path in others)} (another format or depth)"
    parts = [part.split("=")[0] for part in Path(os.path.relpath(chosen[0], folder)).parts[:-1] if "=" in part]
    below = list(dict.fromkeys(Path(os.path.relpath(path, folder)).parts[0] for path in chosen))
    if len(below) > 1 and not parts and os.path.dirname(chosen[0]) != folder:
        one = os.path.normpath(os.path.join(folder, below[0]))
        yield f"read as one: the folders {joined(below)}; for the data of one of them: streamtopology init {shlex.quote(one)}"
    if parts:
        yield f"{', '.join(parts)}: only in the names of folders, not in the files, so no column"


def _listed(options: dict[str, Option]) -> tuple[str, ...]:
    """The files as a source with these options lists them."""
    return tuple(list_files(SourceSpec("data", "text", None, {name: str(value) for name, value in options.items()})))


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:,.0f} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"
