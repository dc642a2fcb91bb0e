"""`streamtopology state export-batch`: a batch that a sink cannot take, moved to a folder instead."""

from __future__ import annotations

import filecmp
import os
from pathlib import Path

import pyarrow as pa

from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.connectors.sinks import Writer, written_batch
from streamtopology.jobs.connectors.sinks.base import staged_table
from streamtopology.jobs.connectors.sinks.folder import write_parquet
from streamtopology.jobs.connectors.sources.durable_file import sync
from streamtopology.jobs.errors import WrongUse
from streamtopology.topology import Topology, did_you_mean


def export_batch(uri: str, topology: Topology, sink: str, folder: Path) -> str:
    """Write the rows that the newest batch has for `sink` into `folder`; the next run does not publish them to it.

    They become a parquet file, or an Arrow file where parquet cannot hold them. `sink` may be one that the manifest no longer
    has. Raises WrongUse if there is nothing to export, CheckpointError.
    """
    checkpoint = Checkpoint.attach(uri)
    commit = checkpoint.last_commit()
    if commit is None:
        raise WrongUse(f"{uri} has no committed batch yet: there is nothing to export")
    known = {given.name: given for given in topology.sinks}
    if sink not in known and not commit.outputs.get(sink):
        names = sorted({*known, *filter(None, commit.outputs)})
        raise WrongUse(f"there is no sink {sink!r}; there are: {', '.join(names) or 'none'}{did_you_mean(sink, names)}")
    done = checkpoint.publications.exported_to(sink, commit.batch)
    if done is not None:
        raise WrongUse(f"batch {commit.batch} was exported for sink {sink!r} already, to {done}; start the topology")
    if (
        sink in known
        and (found := written_batch(known[sink], Writer(topology.name, checkpoint.run), commit.batch, commit.end_digest))
        is not None
    ):
        raise WrongUse(f"sink {sink!r} has batch {commit.batch} already, entered in {found}: start the topology")
    with checkpoint.at_hand(commit.outputs.get(sink, ())) as files:
        table = staged_table(files)
        rows = 0 if table is None else table.num_rows
        place = _written(table, folder.absolute(), f"{topology.name}-{sink}-batch-{commit.batch:09d}") if rows else None
    checkpoint.publications.exported(sink, commit.batch, str(place or "nowhere, as it has no rows"))
    done = f"{rows:,} rows of batch {commit.batch} are in {place}" if rows else f"batch {commit.batch} has no rows for it"
    return f"sink {sink!r}: {done}; the next run does not publish this batch to it and continues with the one after"


def _written(table: pa.Table | None, folder: Path, name: str) -> Path:
    """Write the rows durably, and as a whole; return the file."""
    assert table is not None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f".{name}.draft"
        try:
            write_parquet(table, draft)
            place = folder / f"{name}.parquet"
        except (pa.ArrowException, OSError):
            with pa.OSFile(str(draft), "wb") as out, pa.ipc.new_stream(out, table.schema) as writer:
                writer.write_table(table)
            place = folder / f"{name}.arrow"
        sync(draft)
        _refuse_other_rows(draft, place)
        os.replace(draft, place)
        sync(folder)
    except OSError as error:
        raise WrongUse(f"cannot write to {folder}: {error.strerror or error}; name a folder with room for the rows") from error
    return place


def _refuse_other_rows(draft: Path, place: Path) -> None:
    """Raise WrongUse if `place` has other rows: a checkpoint that went back, or a copy, has another batch of the number."""
    if place.exists() and not filecmp.cmp(draft, place, shallow=False):
        draft.unlink()
        raise WrongUse(f"{place} holds other rows, of another batch of this number: name another folder, or move it away")
