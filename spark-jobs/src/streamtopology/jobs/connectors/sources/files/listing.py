"""The files or objects that a source's path names, by the rules of Spark's file sources.

A folder stands for the files in it and those at any depth of its partition folders (`dt=2024-01-01`), with
`recursiveFileLookup` for those in all its folders. Names that begin with `_` or `.`, or end with `._COPYING_`, are no data
unless the path itself says them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from streamtopology.jobs.connectors.file_uri import is_in_bucket
from streamtopology.jobs.connectors.sources.descriptors import SourceError, SourceSpec
from streamtopology.jobs.connectors.sources.files.partitions import is_partition, looks_everywhere
from streamtopology.jobs.connectors.sources.files.table_look import files_of_table
from streamtopology.jobs.connectors.sources.path_patterns import (
    fits_name,
    fixed_part,
    has_pattern,
    literal,
    name_pattern,
    paths_of,
    plain,
)
from streamtopology.jobs.connectors.sources.stored_files import exists, objects_below


@dataclass(frozen=True)
class FoundFile:
    """A file that is data."""

    path: str
    mtime_ns: int
    size: int


def is_hidden(name: str) -> bool:
    """True for names that are no data to Spark: of drafts, markers and what programs keep for themselves."""
    return (name.startswith("_") and "=" not in name) or name.startswith(".") or name.endswith("._COPYING_")


def root_of(spec: SourceSpec) -> str:
    """The folder in which a source looks for files: its path up to the first pattern; of a file alone its folder.

    "" for a table of Iceberg: its files may be anywhere.
    """
    path = spec.options.get("path", "")
    root = fixed_part(path)
    return os.path.dirname(root) if not has_pattern(path) and os.path.isfile(root) else root


def list_files(spec: SourceSpec) -> list[str]:
    """The files of a source by modification time, then name, as Spark's file source orders them.

    Raises SourceError if a path that is no pattern does not exist, or a folder or bucket cannot be listed.
    """
    path = spec.options.get("path", None if spec.table_format != "iceberg" else "")
    if path is None:
        raise SourceError(f"source {spec.name!r}: option path is missing; name the folder to read")
    if path and not is_in_bucket(path) and not has_pattern(path) and not exists(plain(path)):
        raise SourceError(f"source {spec.name!r}: folder {plain(path)} does not exist; create it or correct option path")
    try:
        found = {_spelt(file.path): file for file in files_of(spec)}
    except OSError as error:
        why = f"cannot list {error.filename}: {error.strerror}; allow this user to read it (chmod +rx)"
        raise SourceError(f"source {spec.name!r}: {why}") from error
    return sorted(found, key=lambda path: (found[path].mtime_ns, path))


def _spelt(path: str) -> str:
    """The path. Raises SourceError if its bytes are no UTF-8: neither Spark nor a report could name it."""
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise SourceError(f"{path!r}: the name of the file is not in UTF-8; rename it") from error
    return path


def files_of(spec: SourceSpec) -> Iterator[FoundFile]:
    """The files of a source in the order of their folders, one twice if two patterns fit it. Raises OSError, SourceError.

    The first ones are there at once, however many there are.
    """
    wanted, is_deep = spec.options.get("pathGlobFilter", "*"), looks_everywhere(spec)
    if spec.is_table:
        return (FoundFile(file, status.mtime_ns, status.size) for file, status in files_of_table(spec))
    path = spec.options["path"]
    found = _objects_at(path, is_deep) if is_in_bucket(path) else _files_in(places_at(path), is_deep)
    return (file for file in found if fits_name(wanted, os.path.basename(file.path)))


def places_of(spec: SourceSpec) -> Iterator[str]:
    """The folders and files that a source's path fits."""
    return places_at(spec.options["path"])


def places_at(path: str) -> Iterator[str]:
    """The folders and files that a path or pattern fits."""
    for pattern in paths_of(path):
        yield from _places("/" if pattern.startswith("/") else "", [part for part in pattern.split("/") if part])


def linked_folders(spec: SourceSpec) -> Iterator[str]:
    """The folders that a source reads by way of links, those of its pattern and those below, with their real names.

    Raises OSError, SourceError.
    """
    is_deep = looks_everywhere(spec)
    for place in places_of(spec):
        if has_pattern(spec.options["path"]) and os.path.isdir(place):
            yield os.path.realpath(place)
        yield from _links_at(place, is_deep, frozenset())


def folders_left_out(spec: SourceSpec) -> Iterator[str]:
    """Folders in those of a source that it does not read: neither partitions nor hidden."""
    if looks_everywhere(spec):
        return
    if is_in_bucket(path := spec.options["path"]):
        below, read = f"{root_of(spec)}/", {file.path for file in _objects_at(path, is_deep=False)}
        left = (file.path.removeprefix(below) for file in _objects_at(path, is_deep=True) if file.path not in read)
        yield from dict.fromkeys(below + name.partition("/")[0] for name in left)
        return
    for place in places_of(spec):
        if os.path.isdir(place):
            with os.scandir(place) as entries:
                names = [entry.path for entry in entries if entry.is_dir()]
            yield from (path for path in names if not is_hidden(name := os.path.basename(path)) and not is_partition(name))


def files_below(folder: str) -> Iterator[FoundFile]:
    """The files in a folder and in all its folders. Raises OSError."""
    return _objects_at(literal(folder), True) if is_in_bucket(folder) else _files_at(folder, True, frozenset())


def _files_in(places: Iterable[str], is_deep: bool) -> Iterator[FoundFile]:
    for place in places:
        yield from _files_at(place, is_deep, frozenset())


def _objects_at(path: str, is_deep: bool) -> Iterator[FoundFile]:
    """The data at a path or pattern of a bucket, whose folders are but parts of names. All objects below it are listed."""
    for pattern in paths_of(path):
        parts = pattern.split("/")
        for found, status in objects_below(fixed_part(pattern)):
            names = found.split("/")
            below = names[len(parts) :]
            is_inside = not any(map(is_hidden, below)) and (len(below) < 2 or is_deep or is_partition(below[0]))
            if is_inside and len(names) >= len(parts) and all(map(_fits, parts, names)):
                yield FoundFile(found, status.mtime_ns, status.size)


def _fits(part: str, name: str) -> bool:
    """True if a part of a path, which may be a pattern, fits a name that is data."""
    if not has_pattern(part):
        return plain(part) == name
    return name_pattern(part).fullmatch(name) is not None and (part[0] in "._" or not is_hidden(name))


def _places(folder: str, parts: Sequence[str]) -> Iterator[str]:
    """The places in `folder` that the rest of a path, `parts`, fits."""
    if not parts:
        yield folder
        return
    first, rest = parts[0], parts[1:]
    if not has_pattern(first):
        path = os.path.join(folder, plain(first))
        if os.path.isdir(path) if rest else os.path.exists(path):
            yield from _places(path, rest)
        return
    with os.scandir(folder or ".") as entries:
        for entry in entries:
            if _fits(first, entry.name) and (not rest or entry.is_dir()):
                yield from _places(os.path.join(folder, entry.name), rest)


def _files_at(place: str, is_deep: bool, above: frozenset[tuple[int, int]]) -> Iterator[FoundFile]:
    """The data at `place`, a file or a folder; `above` are the folders that it is in: a link back to one is not followed."""
    with suppress(FileNotFoundError):  # a writer's draft that was just renamed
        status = os.stat(place)
        if not os.path.isdir(place):
            yield FoundFile(place, status.st_mtime_ns, status.st_size)
            return
        if (status.st_dev, status.st_ino) in above:
            return
        inside = above | {(status.st_dev, status.st_ino)}
        with os.scandir(place) as entries:
            names = [(entry.path, entry.is_dir()) for entry in entries if _is_data(entry, is_deep)]
        for path, is_folder in names:
            if is_folder:
                yield from _files_at(path, is_deep or is_partition(os.path.basename(path)), inside)
            else:
                with suppress(FileNotFoundError):
                    status = os.stat(path)
                    yield FoundFile(path, status.st_mtime_ns, status.st_size)


def _links_at(folder: str, is_deep: bool, above: frozenset[str]) -> Iterator[str]:
    real = os.path.realpath(folder)
    if not os.path.isdir(folder) or real in above:
        return
    with os.scandir(folder) as entries:
        folders = [entry for entry in entries if entry.is_dir() and _is_data(entry, is_deep)]
    for entry in folders:
        if entry.is_symlink():
            yield os.path.realpath(entry.path)
        yield from _links_at(entry.path, is_deep or is_partition(entry.name), above | {real})


def _is_data(entry: os.DirEntry[str], is_deep: bool) -> bool:
    if is_hidden(entry.name):
        return False
    return (is_deep or is_partition(entry.name)) if entry.is_dir() else entry.is_file()
