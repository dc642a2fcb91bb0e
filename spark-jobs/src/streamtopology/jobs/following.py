"""The manifest's file as another way to say `streamtopology apply`: it is watched while its topology runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from streamtopology.jobs.checkpoint import CheckpointError
from streamtopology.jobs.failures import TopologyFailed
from streamtopology.jobs.local.cluster import ClusterError

_POLL_SECONDS = 0.5


@contextmanager
def following(apply_file: Callable[[str], str], manifest: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """While entered, `apply_file` gets the manifest whenever its file has changed; what cannot be applied is told.

    A file that goes away is waited for: editors replace it, and a checkout takes it away and brings it back.
    """
    done = threading.Event()
    seen = _version(manifest)

    def watch() -> None:
        nonlocal seen
        while not done.wait(_POLL_SECONDS):
            before, seen = seen, _version(manifest)
            if seen is None or seen == before:
                continue
            try:
                tell(f"{manifest} changed: {apply_file(str(manifest))}")
            except (ValueError, OSError, CheckpointError, ClusterError, TopologyFailed) as refused:
                tell(f"{manifest} changed but is not applied: {refused}")

    watcher = threading.Thread(target=watch, name="manifest", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _version(file: Path) -> tuple[int, int] | None:
    """What tells a file from what it was, and from another that has taken its place; None while there is none."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino
