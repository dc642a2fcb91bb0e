"""A checkpoint copied as a whole, as of its newest commit, while its driver may run.

A copy that is killed is continued by the same call: `origin.json` is written first and `header.json` last, and what has no
header is no checkpoint. The source is only read, but for a hold on the version that is being copied (`holds`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from streamtopology.jobs.checkpoint import layout, records
from streamtopology.jobs.checkpoint.checkpoint import KEPT_COMMITS, Checkpoint
from streamtopology.jobs.checkpoint.errors import CheckpointError
from streamtopology.jobs.checkpoint.records import CommitRecord, CopyHold, Header, Origin
from streamtopology.jobs.checkpoint.retention import HEADER, ORIGIN, is_partial, number_of
from streamtopology.jobs.checkpoint.spark_log import SPARK_FOLDERS
from streamtopology.jobs.checkpoint.store import Store
from streamtopology.topology import RestoreMode

# Of a large file, in memory at a time, by each of `AT_ONCE` threads.
PIECE_BYTES = 32 << 20

AT_ONCE = 4


@dataclass(frozen=True)
class CheckpointCopy:
    """A copy that is made: as of which batch and epoch, and how large it is."""

    batch: int
    epoch: int
    bytes: int


def copy_checkpoint(
    source: Checkpoint, into: Store, topology: str, mode: RestoreMode = "Clone", run: str | None = None
) -> CheckpointCopy:
    """Copy `source` as of its newest commit to an empty place, for `topology`, or continue such a copy.

    A Clone has an identity of its own, and sinks get from it what comes after that commit. Own continues the identity of the
    source, which must not run any more: sinks continue where it has left them. `run`: the identity of a Clone, by which a
    further call finds that it has made the copy already; a random one by default. Raises CheckpointError.
    """
    _refuse_overlap(source.uri, into.uri)
    if run is not None and (made_before := _made(into, run)) is not None:
        source.holds.release(into.uri)
        return made_before
    if not source.commits():
        raise CheckpointError(f"{source.uri} has no committed batch yet")
    _claim(into, Origin(source.uri, source.run, mode))
    commit = _held(source, into.uri, mode)
    listed = (path for folder in ("batches", "state") for path in into.list(folder))
    made = [path for path in listed if layout.is_ours(path) and not is_partial(path)]
    if any(number_of(path) > commit.batch for path in made):
        raise CheckpointError(
            f"{into.uri} holds part of a copy as of a later batch than {commit.batch}, to which {source.uri} was rolled back: "
            "delete it, or name another place"
        )
    kept = commit if mode == "Own" else replace(commit, outputs={})
    batches = [path for path in source.files("batches") if layout.is_ours(path) and number_of(path) == commit.batch]
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="copy") as threads:
        notes = sorted(source.publications.known()) if mode == "Own" else []
        for _ in threads.map(lambda path: _copy_file(source, into, path), [*sorted(kept.paths()), *batches, *notes]):
            """Raise the error of the first file that could not be copied."""
    _copy_logs(source, into)
    for epoch in commit.epochs:
        _copy_file(source, into, f"epochs/{epoch}.json")
    into.create(f"commits/{commit.batch}.json", records.to_bytes(kept))
    _refuse_if_it_runs(source, commit, into.uri, mode)
    own_run = source.run if mode == "Own" else run or uuid.uuid4().hex
    into.create(HEADER, records.to_bytes(Header(topology, own_run)))
    source.holds.release(into.uri)
    return CheckpointCopy(commit.batch, commit.epoch, _size(into))


def _refuse_overlap(source: str, target: str) -> None:
    first, second = (uri.rstrip("/") if uri.startswith("s3://") else str(Path(uri).resolve()) for uri in (source, target))
    if f"{first}/".startswith(f"{second}/") or f"{second}/".startswith(f"{first}/"):
        raise CheckpointError(f"{target} is {source} itself, or in or around it: name another place for the copy")


def _made(into: Store, run: str) -> CheckpointCopy | None:
    """The whole copy of this identity that is in `into`, if any."""
    if not into.exists(HEADER) or records.from_bytes(records.Header, into.read(HEADER), into.where(HEADER)).run != run:
        return None
    commit = Checkpoint.attached(into).last_commit()
    return None if commit is None else CheckpointCopy(commit.batch, commit.epoch, _size(into))


def _size(into: Store) -> int:
    return sum(file.bytes for file in into.stored(""))


def _claim(into: Store, origin: Origin) -> None:
    """Make `into` a copy of `origin` that is to be made. Refuses a place with anything but half of the same copy."""
    is_copy = into.exists(ORIGIN) and not into.exists(HEADER)
    if not is_copy and (found := layout.in_the_way(into.list(""))):
        there = f"{layout.named(found)} is there"
        raise CheckpointError(f"{into.uri} is not empty, {there}: name a place for the copy that does not exist yet")
    into.create(ORIGIN, records.to_bytes(origin))
    found = records.from_bytes(records.Origin, into.read(ORIGIN), into.where(ORIGIN))
    if (found.run, found.mode) != (origin.run, origin.mode):
        raise CheckpointError(
            f"{into.uri} holds part of another copy (of {found.uri}, {found.mode}): delete it, or name another place"
        )


def _held(source: Checkpoint, target: str, mode: RestoreMode) -> CommitRecord:
    """The commit that a copy to `target` is of: the one that it holds already, else the newest one, which it holds then."""
    hold = source.holds.of(target)
    while True:
        commits = source.commits()
        if hold is not None and hold.batch in commits and (mode == "Clone" or hold.batch == commits[-1]):
            return source.read_commit(hold.batch)
        source.holds.release(target)
        hold = CopyHold(target, commits[-1])
        source.holds.take(hold)
        if hold.batch not in source.commits()[-KEPT_COMMITS:]:
            hold = None  # a sweep that began before may delete it


def _copy_file(source: Checkpoint, into: Store, path: str) -> None:
    first = source.read_range(path, 0, PIECE_BYTES)
    if len(first) < PIECE_BYTES:
        into.create(path, first)
    else:
        into.create_from(path, lambda: _pieces(source, path))


def _pieces(source: Checkpoint, path: str) -> Iterator[bytes]:
    start = 0
    while piece := source.read_range(path, start, PIECE_BYTES):
        yield piece
        start += len(piece)


def _copy_logs(source: Checkpoint, into: Store) -> None:
    """Copy the logs of Spark and of sources. A file that has gone meanwhile is part of a longer one, which is there by then."""
    copied: set[str] = set()
    while True:
        found = [path for folder in SPARK_FOLDERS for path in source.files(folder) if not layout.is_hidden(path)]
        contents = [(path, source.find(path)) for path in found if path not in copied]
        for path, content in contents:
            if content is not None:
                into.create(path, content)
                copied.add(path)
        if all(content is not None for _, content in contents):
            return


def _refuse_if_it_runs(source: Checkpoint, commit: CommitRecord, target: str, mode: RestoreMode) -> None:
    """Refuse an Own copy of a version that was left behind meanwhile."""
    if mode == "Own" and source.commits()[-1] != commit.batch:
        source.holds.release(target)
        raise CheckpointError(
            f"{source.uri} has committed batches after {commit.batch}, so its topology runs: stop it first, or make a Clone"
        )
