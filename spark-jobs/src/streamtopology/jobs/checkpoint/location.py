"""The location of a topology's checkpoint."""

from __future__ import annotations

from pathlib import Path

from streamtopology.topology import Topology


def checkpoint_uri(topology: Topology, work_dir: Path) -> str:
    """Return the manifest's path or bucket, or a folder of its own in the work folder if the manifest names none."""
    if topology.checkpoint is None:
        return str((work_dir / topology.name / "checkpoint").resolve())
    return resolved(topology.checkpoint)


def resolved(uri: str) -> str:
    """Return a bucket as it is, and a path or file:// URI as an absolute path."""
    return uri if uri.startswith("s3://") else str(Path(uri.removeprefix("file://")).resolve())
