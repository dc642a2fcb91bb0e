"""`streamtopology run --fresh` and `state delete`: delete a checkpoint, and the files that its sinks wrote from it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from streamtopology.contract import formatting
from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.checkpoint.location import checkpoint_uri
from streamtopology.jobs.checkpoint.open_store import open_store
from streamtopology.jobs.checkpoint.retention import HEADER
from streamtopology.jobs.connectors.sinks import Writer, Written, destination, written
from streamtopology.jobs.errors import WrongUse
from streamtopology.topology import Topology


@dataclass(frozen=True)
class Leftovers:
    """The checkpoint and the outputs of former runs of a topology. `kept`: sinks whose rows cannot be taken back."""

    checkpoint: Checkpoint
    outputs: Sequence[Written]
    kept: Sequence[str]

    def text(self) -> str:
        """The list of what `delete` deletes, for the user to agree to."""
        size = formatting.size(sum(file.bytes for file in self.checkpoint.stored()))
        lines = [f"checkpoint {self.checkpoint.uri}: {size}, {_batch(self.checkpoint)}"]
        lines += [f"output in {output.place}: {output.batches} batches" for output in self.outputs]
        lines += [f"not deleted: {sink} keeps its rows, and will get them again" for sink in self.kept]
        return "\n".join(lines)

    def delete(self) -> None:
        """Delete all of it, the checkpoint's header last: what is cut short can be repeated."""
        for output in self.outputs:
            output.delete()
        store = open_store(self.checkpoint.uri)
        for path in sorted(store.list(""), key=lambda path: path == HEADER):
            store.delete(path)
        if store.folder is not None:
            shutil.rmtree(store.folder)


def find_leftovers(topology: Topology, work_dir: Path) -> Leftovers | None:
    """Return what former runs of `topology` have left; None if there is no checkpoint. Refuses that of another topology."""
    uri = checkpoint_uri(topology, work_dir)
    if not open_store(uri).exists(HEADER):
        return None
    checkpoint = Checkpoint.to_delete(uri)
    if checkpoint.topology != topology.name:
        raise WrongUse(f"checkpoint {uri} is that of topology {checkpoint.topology!r}, not of {topology.name!r}")
    writer = Writer(topology.name, checkpoint.run)
    outputs = [output for sink in topology.sinks if (output := written(sink, writer)) is not None]
    kept = [f"{sink.name} ({destination(sink)})" for sink in topology.sinks if sink.format == "kafka"]
    return Leftovers(checkpoint, outputs, kept)


def held_text(work_dir: Path) -> str:
    """Return a line for each checkpoint of `work_dir` on the disk space that it holds, the largest first."""
    folders = (header.parent for header in work_dir.glob(f"*/checkpoint/{HEADER}"))
    found = [Checkpoint.to_delete(str(folder.resolve())) for folder in folders]
    sizes = sorted(((sum(file.bytes for file in each.stored()), each) for each in found), key=lambda pair: -pair[0])
    if not sizes:
        return f"no checkpoints in {work_dir}; one that a manifest places elsewhere is not listed"
    lines = [f"{formatting.size(size):>9}  {each.topology}  {_batch(each)}  {each.uri}" for size, each in sizes]
    return "\n".join([*lines, "to delete one: streamtopology state delete FILE"])


def _batch(checkpoint: Checkpoint) -> str:
    commits = checkpoint.commits()
    return f"as of batch {commits[-1]}" if commits else "without any batch"
