"""Which files of a checkpoint no one can need any more: a pure function of their names and the commits kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from streamtopology.jobs.checkpoint.records import CommitRecord
from streamtopology.jobs.checkpoint.store import PARTIAL

_NUMBER = re.compile(r"\d+")
_PARTIAL_NAME = re.compile(rf"\.(?P<name>.+)\.[0-9a-f]{{32}}{re.escape(PARTIAL)}")


def is_partial(path: str) -> bool:
    """Whether a file is being written, or was when its writer died."""
    return path.endswith(PARTIAL)


def number_of(path: str) -> int:
    """The batch or epoch that a file's name begins with."""
    match = _NUMBER.match(PurePosixPath(path).name)
    if match is None:
        raise ValueError(f"{path} is not named after a batch or epoch")
    return int(match.group())


def garbage(paths: Iterable[str], kept: Sequence[CommitRecord]) -> list[str]:
    """The files among `paths` that can go, given the newest commits, oldest first, that shall stay readable."""
    oldest, last = kept[0], kept[-1]
    named = set[str]().union(*(commit.paths() for commit in kept))
    waiting = {str(PurePosixPath(path).with_suffix(".snapshot")) for path in last.paths() if path.endswith(".delta")}

    def can_go(path: str) -> bool:
        target = _target(path)
        folder = PurePosixPath(target).parts[0]
        if folder not in ("epochs", "batches", "commits", "state", "outputs"):
            return False
        if folder == "epochs":
            return number_of(target) < oldest.epoch
        # A snapshot may be adopted by a later commit as long as the delta that it covers is still in use.
        return number_of(target) < oldest.batch and path not in named and target not in waiting

    return [path for path in paths if can_go(path)]


def _target(path: str) -> str:
    """The path that a partial file was going to have; any other path is its own."""
    match = _PARTIAL_NAME.fullmatch(PurePosixPath(path).name)
    return path if match is None else str(PurePosixPath(path).with_name(match["name"]))
