"""The state of the checkpoint after a run, for its last lines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from streamtopology.jobs.checkpoint import Checkpoint, CommitRecord
from streamtopology.jobs.connectors.sinks.dead_letters import FOLDER as DEAD_LETTERS
from streamtopology.jobs.driver.watermarks import END_OF_TIME
from streamtopology.jobs.operators import load
from streamtopology.jobs.view.run_ending import LeftBehind
from streamtopology.topology import Topology


def left_behind(checkpoint: Checkpoint, topology: Topology, base_dir: Path, unread: Mapping[str, str]) -> LeftBehind:
    """Return what `checkpoint` holds, and what sources hold `unread`."""
    commit = checkpoint.last_commit()
    stored = checkpoint.stored()
    fed = newest_fed(checkpoint)
    record = f"commits/{fed}.json"
    return LeftBehind(
        checkpoint=checkpoint.uri,
        bytes=sum(file.bytes for file in stored),
        batch=None if commit is None else commit.batch,
        fed_batch=fed,
        fed_at=next((file.written_at for file in stored if file.path == record), None),
        open_windows={} if commit is None else open_windows(commit, topology, base_dir),
        unread=unread,
        closed=commit is not None and commit.watermark_after == END_OF_TIME,
        dead_letters=checkpoint.where(DEAD_LETTERS),
    )


def newest_fed(checkpoint: Checkpoint) -> int | None:
    """Return the newest kept batch that has read rows; the flush at the end of a run commits batches without any."""
    return next((number for number in reversed(checkpoint.commits()) if checkpoint.read_commit(number).rows_in), None)


def open_windows(commit: CommitRecord, topology: Topology, base_dir: Path) -> dict[str, int]:
    """Return, by operator with windows, the keys in windows that `commit` leaves open; operators without any are left out."""
    found: dict[str, int] = {}
    for operator in topology.operators:
        if load(operator.run, base_dir).drops_late_rows:
            found[operator.name] = sum(held.keys for held in commit.state.get(operator.name, {}).values())
    return {name: keys for name, keys in found.items() if keys}
