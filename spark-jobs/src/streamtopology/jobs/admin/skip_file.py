"""`streamtopology state skip-file`: a bad file whose rows the next run leaves out."""

from __future__ import annotations

from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.connectors.sources.descriptor_stream import open_stream
from streamtopology.jobs.connectors.sources.descriptors import SourceSpec, place_of
from streamtopology.jobs.connectors.sources.files.stream import FileStream
from streamtopology.jobs.errors import WrongUse
from streamtopology.topology import Topology


def skip_file(uri: str, topology: Topology, file: str) -> str:
    """Leave out the rows of `file` that are not committed yet. Raises WrongUse if no source has been handed it.

    The checkpoint at `uri` may be of a topology that stopped at the file. Raises CheckpointError.
    """
    checkpoint, path = Checkpoint.attach(uri), place_of(file)
    commit = checkpoint.last_commit()
    positions = commit.end.positions if commit is not None else {}
    folder = checkpoint.spark_folder()
    waited: list[str] = []
    try:
        for source in topology.sources:
            if source.reads_descriptors and source.format != "kafka":
                stream = open_stream(SourceSpec.of(source, topology.name), folder.path / "files")
                start = positions.get(source.name, stream.initial_offset())
                if isinstance(stream, FileStream) and stream.skip(path, start):
                    waited.append(source.name)
        if waited:
            folder.save()
    finally:
        folder.close()
    if not waited:
        raise WrongUse(
            f"no source of topology {topology.name!r} waits to read {path}: its rows are committed, or no batch has begun "
            "with it, and it can simply be taken out of its folder"
        )
    names = " and ".join(map(repr, waited))
    continues = f"source {names} continues" if len(waited) == 1 else f"sources {names} continue"
    return f"{continues} without the rows of {path} that are not committed yet"
