"""Patterns in paths, by Hadoop's rules: `*`, `?`, `[ab]`, `[a-c]`, `[!a]` or `[^a]`, `{ab,cd}`, and `\\c` for the character c.

A pattern holds within one name of a path, but for braces, which may hold a `/`. A path without these characters is none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from streamtopology.jobs.connectors.file_uri import BUCKET_SCHEME, is_in_bucket
from streamtopology.jobs.connectors.sources.errors import SourceError

_SPECIAL = re.compile(r"([\\*?\[\]{}])")
# An escaped character, a class of characters, or a character.
_PIECE = re.compile(r"\\.|\[[!^]?\]?(?:\\.|[^\]\\])*\]|.", re.DOTALL)
_ESCAPE = "close it, or write a backslash before a character that stands for itself"


def literal(path: str) -> str:
    """The pattern that fits `path` alone."""
    return _SPECIAL.sub(r"\\\1", path)


@lru_cache(maxsize=1024)  # parts of a path are compared with those of each object below it
def has_pattern(path: str) -> bool:
    """True if `path` may fit several names."""
    return any(piece[0] in "*?{[" for piece in _PIECE.findall(path))


@lru_cache(maxsize=1024)
def plain(path: str) -> str:
    """The one path that a `path` without patterns fits."""
    return re.sub(r"\\(.)", r"\1", path, flags=re.DOTALL)


def fixed_part(path: str) -> str:
    """The folder above the first name of `path` that is a pattern; all of `path` if it has none."""
    fixed: list[str] = []
    for part in path.split("/"):
        if has_pattern(part):
            break
        fixed.append(plain(part))
    return "/".join(fixed) or "/"


def from_folder(folder: Path, path: str, is_pattern: bool) -> str:
    """A path that may be relative to `folder`, as one that is not."""
    whole = str(folder.absolute())
    is_relative = not path.startswith(("/", "file:", BUCKET_SCHEME))
    return f"{literal(whole) if is_pattern else whole}/{path}" if is_relative else path


def paths_of(pattern: str) -> list[str]:
    """The alternatives of a path, each without `.`, `..` and `//`, and once. Raises SourceError as `alternatives` does."""
    return list(dict.fromkeys(map(normal, alternatives(pattern))))


def normal(path: str) -> str:
    """A path of a folder or a bucket without `.`, `..` and `//`."""
    if is_in_bucket(path):
        return BUCKET_SCHEME + os.path.normpath(f"/{path.removeprefix(BUCKET_SCHEME)}").lstrip("/")
    return os.path.normpath(path)


def alternatives(path: str) -> list[str]:
    """`path` once for each choice in its braces. Raises SourceError for braces and brackets without their end."""
    pieces = _PIECE.findall(path)
    if "[" in pieces or "\\" in pieces:
        fault = "an open [" if "[" in pieces else "nothing after its last backslash"
        raise SourceError(f"pattern {path!r} has {fault}; {_ESCAPE}")
    if "{" not in pieces:
        return [path]
    start = pieces.index("{")
    end, choices = _choices(path, pieces, start)
    rest = "".join(pieces[end + 1 :])
    return [found for choice in choices for found in alternatives("".join(pieces[:start]) + choice + rest)]


def check_pattern(path: str) -> None:
    """Raises SourceError for a pattern that can fit nothing, as it is none."""
    for part in "/".join(alternatives(path)).split("/"):
        name_pattern(part)


def _choices(path: str, pieces: Sequence[str], start: int) -> tuple[int, list[str]]:
    """The place of the brace that closes the one at `start`, and the texts between their commas."""
    depth, choices = 0, [""]
    for place in range(start, len(pieces)):
        piece = pieces[place]
        depth += (piece == "{") - (piece == "}")
        if depth == 0:
            return place, choices
        if piece == "," and depth == 1:
            choices.append("")
        elif place > start:
            choices[-1] += piece
    raise SourceError(f"pattern {path!r} has an open {{; {_ESCAPE}")


@lru_cache(maxsize=1024)
def name_pattern(part: str) -> re.Pattern[str]:
    """The expression that fits the names that `part` of a path, without braces, fits. Raises SourceError."""
    try:
        return re.compile("".join(map(_expression, _PIECE.findall(part))), re.DOTALL)
    except re.error as error:
        raise SourceError(f"pattern {part!r} has a wrong [...] ({error.msg}); {_ESCAPE}") from error


def fits_name(pattern: str, name: str) -> bool:
    """True if `name` fits one of the `pattern`'s alternatives."""
    return any(name_pattern(part).fullmatch(name) for part in alternatives(pattern))


def _expression(piece: str) -> str:
    if piece == "*":
        return ".*"
    if piece == "?":
        return "."
    if piece[0] == "\\":
        return re.escape(piece[1])
    if len(piece) > 1:
        negated = piece[1] in "!^"
        members = re.sub(r"\\(.)|([\[\]&~|])", lambda match: re.escape(match[1] or match[2]), piece[2 if negated else 1 : -1])
        return f"[{'^' if negated else ''}{members}]"
    return re.escape(piece)
