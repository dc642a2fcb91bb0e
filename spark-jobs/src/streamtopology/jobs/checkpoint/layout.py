"""The names of a checkpoint's files. All else at its place is the user's: it is never deleted, and none begins next to it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from pathlib import PurePosixPath

_MOST_NAMED = 3

_OURS = re.compile(
    r"""
      (header|origin)\.json
    | (epochs|commits|drivers)/[0-9]+\.json
    | batches/[0-9]+-[0-9]+\.json
    | state/[^/]+/[0-9]+/[0-9]+-([0-9]+|e[0-9]+-[0-9]+(-[0-9]+)?)\.(delta|snapshot)
    | outputs/[^/]+/[0-9]+-[0-9]+-[0-9]+\.arrow
    | tables/[^/]+/[0-9]+-[0-9a-f]{16}\.arrow
    | migrations/[0-9]+/(lease|copied|[^/]+/[0-9]+)\.json
    | publications/([0-9]+-[0-9]+\.complete|([^/]+/)?[0-9]+\.(failed|exported))
    | copies/[0-9a-f]{16}\.json
    | dead-letters/batch-[0-9]{9,}\.jsonl
    | files/[^/]+/([0-9]{12,}(-[0-9]{12,})?|corrected-[0-9]{12,}-[0-9]{4,}|initial)\.json
    | spark/(metadata|(offsets|commits)/[0-9]+|sources/[0-9]+/(.+/)?[0-9]+(\.compact)?)
    """,
    re.VERBOSE,
)
# Files whose writer died, and Hadoop's checksums: the name that they were going to have, or are of.
_DRAFTS = (
    re.compile(r"(?P<folder>(.+/)?)\.(?P<name>[^/]+)\.[0-9a-f]{32}\.partial"),
    re.compile(r"(?P<folder>files/[^/]+/)\.(?P<name>[^/]+)\.[0-9]+"),
    re.compile(r"(?P<folder>spark/(.+/)?)\.{1,2}(?P<name>[^/]+?)(\.[0-9a-f-]{36}\.tmp(\.crc)?|\.crc)"),
)

_FOLDERS = re.compile(
    r"""
      epochs | commits | drivers | batches | copies | dead-letters
    | (state|migrations)(/[^/]+(/[^/]+)?)?
    | (outputs|publications|files|tables)(/[^/]+)?
    | spark(/(offsets|commits|sources(/[0-9]+(/.+)?)?))?
    """,
    re.VERBOSE,
)


def is_ours(path: str) -> bool:
    """True if a path below a checkpoint's place is one that runs give to files, or to drafts of them."""
    targets = (match["folder"] + match["name"] for draft in _DRAFTS if (match := draft.fullmatch(path)))
    return any(_OURS.fullmatch(target) for target in (path, *targets))


def is_our_folder(path: str) -> bool:
    """True for a folder in which runs make files; it may have files of others, too."""
    return _FOLDERS.fullmatch(path) is not None


def in_the_way(paths: Iterable[str]) -> list[str]:
    """Those of `paths` that no checkpoint can begin next to. Hidden ones are not: marks of tools, and our own drafts."""
    return [path for path in paths if not is_hidden(path)]


def is_hidden(path: str) -> bool:
    """True if the name of the file, or of a folder that it is in, begins with a dot."""
    return any(part.startswith(".") for part in path.split("/"))


def named(paths: Iterable[str]) -> str:
    """Paths of others for people: a few of them, and of a folder that is not ours its name alone."""
    names = sorted({_outermost(path) for path in paths})
    return ", ".join(islice(names, _MOST_NAMED)) + (" and more" if len(names) > _MOST_NAMED else "")


def not_empty(place: str, paths: Iterable[str]) -> str:
    """The refusal of a checkpoint's place that holds these files, and has no header."""
    found = list(paths)
    why = "is no checkpoint, and not empty" if not any(map(is_ours, found)) else "has files of a checkpoint, but no header.json"
    return (
        f"checkpoint {place} {why}: it holds {named(found)}. A checkpoint begins in an empty folder of its own: name one, such "
        f"as {place}/checkpoint, or move that away"
    )


def _outermost(path: str) -> str:
    parts = PurePosixPath(path).parts
    folders = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
    return next((f"{folder}/" for folder in folders if not is_our_folder(folder)), path)
