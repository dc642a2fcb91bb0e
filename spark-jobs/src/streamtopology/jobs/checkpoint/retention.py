"""Choose the files of a checkpoint that may be deleted: a pure function of their names and of the kept commits.

Deleting is the one act that cannot be undone, so it is decided from names alone and tested without a disk. A file stays
if a kept commit names it, if it is newer than these, or if a lease or hold needs it. Names that are not ours stay, too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import PurePosixPath

from streamtopology.jobs.checkpoint.publications import FOLDER as PUBLICATIONS
from streamtopology.jobs.checkpoint.records import CommitRecord, Lease
from streamtopology.jobs.checkpoint.store import PARTIAL

HEADER = "header.json"
ORIGIN = "origin.json"

_NUMBER = re.compile(r"\d+")
_PARTIAL_NAME = re.compile(rf"\.(?P<name>.+)\.[0-9a-f]{{32}}{re.escape(PARTIAL)}")


def is_partial(path: str) -> bool:
    """True if a file is being written, or was when its writer died."""
    return path.endswith(PARTIAL)


def number_of(path: str) -> int:
    """The batch or epoch that a file's name begins with."""
    match = _NUMBER.match(PurePosixPath(path).name)
    if match is None:
        raise ValueError(f"{path} is not named after a batch or epoch")
    return int(match.group())


def epoch_of(path: str) -> int:
    """The epoch that a file below `migrations/` is about."""
    return int(PurePosixPath(path).parts[1])


def garbage(paths: Iterable[str], kept: Sequence[CommitRecord], leases: Collection[Lease] = ()) -> list[str]:
    """The files among `paths` that can go, given the newest commits, oldest first, that shall stay readable.

    Under a lease or hold its version and all that came after stay, too; `kept` has that version's commit, then.
    """
    oldest, last = kept[0], kept[-1]
    leased = {lease.epoch for lease in leases}
    oldest_epoch = min(commit.epochs[0] for commit in kept)  # two drivers at once may have made them in any order
    named = set[str]().union(*(commit.paths() for commit in kept))
    waiting = {str(PurePosixPath(path).with_suffix(".snapshot")) for path in last.paths() if path.endswith(".delta")}

    def can_go(path: str) -> bool:
        target = _target(path)
        folder = PurePosixPath(target).parts[0]
        if target == HEADER:
            return path != target  # a draft of who died while making the checkpoint
        if folder == "migrations":
            return epoch_of(target) not in leased and epoch_of(target) <= last.epoch
        if folder not in ("epochs", "batches", "commits", "state", "outputs", "tables", PUBLICATIONS):
            return False
        if folder == "epochs":
            is_draft = path != target  # of an epoch that ran it is what a dead writer left
            return number_of(target) < oldest_epoch or (is_draft and number_of(target) <= last.epoch)
        # A snapshot may be adopted by a later commit as long as the delta that it covers is still in use.
        return number_of(target) < oldest.batch and path not in named and target not in waiting

    return [path for path in paths if can_go(path)]


def _target(path: str) -> str:
    """The path that a partial file was going to have; any other path is its own."""
    match = _PARTIAL_NAME.fullmatch(PurePosixPath(path).name)
    return path if match is None else str(PurePosixPath(path).with_name(match["name"]))
