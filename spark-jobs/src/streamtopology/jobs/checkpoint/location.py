"""The location of a topology's checkpoint."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from streamtopology.jobs.checkpoint.errors import CheckpointError
from streamtopology.jobs.connectors.file_uri import encoded_path
from streamtopology.topology import Topology


def checkpoint_uri(topology: Topology, work_dir: Path) -> str:
    """Return the manifest's path or bucket, or a folder of its own in the work folder if the manifest names none."""
    if topology.checkpoint is None:
        return str((work_dir / topology.name / "checkpoint").resolve())
    return resolved(topology.checkpoint)


def resolved(uri: str) -> str:
    """Return a bucket as it is, and a path or file: URI as an absolute path. Raises CheckpointError."""
    return uri if uri.startswith("s3://") else str(local_folder(uri).resolve())


def local_folder(uri: str) -> Path:
    """Return the folder that a path or a `file:` URI names. Raises CheckpointError."""
    try:
        encoded = encoded_path(uri)
    except ValueError as error:
        raise CheckpointError(f"checkpoint {error}") from error
    return Path(uri if encoded is None else unquote(encoded))
