"""`streamtopology run --fresh` and `state delete`: delete a checkpoint, and the files that its sinks wrote from it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from streamtopology.contract import formatting
from streamtopology.jobs.checkpoint import Checkpoint, layout
from streamtopology.jobs.checkpoint.location import checkpoint_uri, local_folder
from streamtopology.jobs.checkpoint.open_store import open_store
from streamtopology.jobs.checkpoint.retention import HEADER
from streamtopology.jobs.connectors.sinks import Writer, WrittenOutput, destination, written
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.own_command import on_manifest
from streamtopology.topology import Topology


@dataclass(frozen=True)
class Leftovers:
    """The checkpoint and the outputs of earlier runs of a topology. `kept`: sinks whose rows cannot be taken back.

    `others`: files in the checkpoint's folder that no run has made; they stay. `is_linked`: a link leads to that folder.
    """

    checkpoint: Checkpoint
    outputs: Sequence[WrittenOutput]
    kept: Sequence[str]
    others: Sequence[str]
    is_linked: bool

    def text(self) -> str:
        """The list of what `delete` deletes, for the user to agree to."""
        lines = [f"checkpoint {self.checkpoint.uri}: {formatting.size(_bytes(self.checkpoint))}, {_batch(self.checkpoint)}"]
        lines += [f"output in {output.place}: {output.batches} batches" for output in self.outputs]
        lines += [f"not deleted: {sink} keeps its rows, and will get them again" for sink in self.kept]
        lines += [f"not deleted: {self.others_text()}"] if self.others else []
        return "\n".join(lines)

    def others_text(self) -> str:
        """The files that are not ours, for people; empty without any."""
        return f"what is not ours in {self.checkpoint.uri}: {layout.named(self.others)}" if self.others else ""

    def refuse_start(self) -> None:
        """Raise WrongUse if a checkpoint could not begin in what `delete` leaves."""
        if blocking := layout.in_the_way(self.others):
            raise WrongUse(
                f"checkpoint {self.checkpoint.uri} also holds what is not ours, {layout.named(blocking)}, and a new one begins "
                "in an empty folder alone: move that away, or name another `checkpoint`; nothing was deleted"
            )

    def delete(self) -> None:
        """Delete all of it, the checkpoint's header last: what is cut short can be repeated. What is not ours stays."""
        for output in self.outputs:
            output.delete()
        store = open_store(self.checkpoint.uri)
        for path in sorted(filter(layout.is_ours, store.list("")), key=lambda path: path == HEADER):
            store.delete(path)
        if store.folder is not None:
            _remove_empty(store.folder, self.is_linked)


def find_leftovers(topology: Topology, work_dir: Path) -> Leftovers | None:
    """Return what earlier runs of `topology` have left; None if there is no checkpoint. Refuses that of another topology."""
    uri = checkpoint_uri(topology, work_dir)
    if not open_store(uri).exists(HEADER):
        return None
    checkpoint = Checkpoint.to_delete(uri)
    if checkpoint.topology != topology.name:
        raise WrongUse(f"checkpoint {uri} is that of topology {checkpoint.topology!r}, not of {topology.name!r}")
    writer = Writer(topology.name, checkpoint.run)
    outputs = [output for sink in topology.sinks if (output := written(sink, writer)) is not None]
    kept = [
        f"{sink.name} ({destination(sink)})" for sink in topology.sinks if sink.format in ("kafka", "delta", "iceberg", "spark")
    ]
    others = [path for path in open_store(uri).list("") if not layout.is_ours(path)]
    is_in_folder = topology.checkpoint is not None and not uri.startswith("s3://")
    is_linked = is_in_folder and local_folder(topology.checkpoint or "").is_symlink()
    return Leftovers(checkpoint, outputs, kept, others, is_linked)


def delete_copy(uri: str, topology: str, run: str) -> None:
    """Delete the copy of a checkpoint that has this identity. A place with anything else, or nothing, is left as it is."""
    if open_store(uri).exists(HEADER):
        copy = Checkpoint.to_delete(uri)
        if (copy.topology, copy.run) == (topology, run):
            Leftovers(copy, (), (), (), is_linked=False).delete()


def held_text(work_dir: Path) -> str:
    """Return a line for each checkpoint of `work_dir` on the disk space that it holds, the largest first."""
    folders = (header.parent for header in work_dir.glob(f"*/checkpoint/{HEADER}"))
    found = [Checkpoint.to_delete(str(folder.resolve())) for folder in folders]
    sizes = sorted(((_bytes(each), each) for each in found), key=lambda pair: -pair[0])
    if not sizes:
        return f"no checkpoints in {work_dir}; one that a manifest places elsewhere is not listed"
    lines = [f"{formatting.size(size):>9}  {each.topology}  {_batch(each)}  {each.uri}" for size, each in sizes]
    return "\n".join([*lines, f"to delete one: streamtopology state delete {on_manifest(Path('FILE'), work_dir)}"])


def _remove_empty(root: Path, is_linked: bool) -> None:
    """Remove the folders of a deleted checkpoint in which nothing is left, and `root` unless a link leads there."""
    ours: list[str] = []
    for where, folders, _ in os.walk(root):
        folders[:] = [name for name in folders if layout.is_our_folder(os.path.relpath(os.path.join(where, name), root))]
        ours.append(where)
    for folder in reversed(ours[is_linked:]):
        with suppress(OSError):  # files of others are there, or a volume is mounted there
            os.rmdir(folder)


def _bytes(checkpoint: Checkpoint) -> int:
    return sum(file.bytes for file in checkpoint.stored() if layout.is_ours(file.path))


def _batch(checkpoint: Checkpoint) -> str:
    commits = checkpoint.commits()
    return f"as of batch {commits[-1]}" if commits else "without any batch"
