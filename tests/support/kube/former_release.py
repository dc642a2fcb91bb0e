"""The operator and the CRD of a former commit, unpacked from the repository's history, to be upgraded to the present ones."""

from __future__ import annotations

import os
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
SOURCES = ("operator/src", "routing/src")
CRD = "crds/streamtopologies.streamtopology.dev.yaml"


def unpacked(commit: str, folder: Path) -> str:
    """Unpack its sources into `folder`. Returns the PYTHONPATH by which a process runs them and not the present ones."""
    archived = subprocess.run(["git", "archive", commit, *SOURCES, CRD], cwd=REPOSITORY, capture_output=True, check=False)
    if archived.returncode != 0:
        raise AssertionError(f"commit {commit} is not here ({archived.stderr.decode().strip()}): git fetch --unshallow")
    with tarfile.open(fileobj=BytesIO(archived.stdout)) as sources:
        sources.extractall(folder, filter="data")
    return os.pathsep.join(str(folder / each) for each in SOURCES)
