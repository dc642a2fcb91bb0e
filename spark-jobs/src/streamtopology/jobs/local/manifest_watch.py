"""Watch of the manifest's file while its topology runs: a change is applied as by `streamtopology apply`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from streamtopology.contract.errors import StreamTopologyError

_POLL_SECONDS = 0.5

# A value that changes with a file's content and with its replacement.
Version = tuple[int, int]


@contextmanager
def watching(
    apply_file: Callable[[str], str], manifest: Path, notify: Callable[[str], None], read: Version | None = None
) -> Iterator[None]:
    """While entered, pass the manifest to `apply_file` whenever its file has changed; `notify` gets the outcome.

    `read`: the version that runs; None for the one that is there now. A missing file is waited for: editors replace it, and a
    checkout removes and restores it.
    """
    done = threading.Event()
    seen = read or version_of(manifest)

    def watch() -> None:
        nonlocal seen
        while not done.wait(_POLL_SECONDS):
            before, seen = seen, version_of(manifest)
            if seen is None or seen == before:
                continue
            try:
                notify(f"{manifest} changed: {apply_file(str(manifest))}")
            except (StreamTopologyError, ValueError, OSError) as refused:
                notify(f"{manifest} changed but is not applied: {refused}")

    watcher = threading.Thread(target=watch, name="manifest", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def version_of(file: Path) -> Version | None:
    """Return the version of a file; None while there is no file."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino
