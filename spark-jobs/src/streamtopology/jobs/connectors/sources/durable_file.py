"""Files that a commit relies on: whole, durable, written once."""

from __future__ import annotations

import os
from pathlib import Path


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, durably, unless they exist."""
    if folder.exists():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync(folder.parent)


def create(file: Path, text: str) -> bool:
    """Make a file with all of `text`, durably. Returns False if there is one: the first of several writers decides."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    with draft.open("w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    try:
        os.link(draft, file)
        created = True
    except FileExistsError:
        created = False
    finally:
        draft.unlink()
    sync(file.parent)  # also for another's file: its writer may have died before this
    return created


def sync(path: Path) -> None:
    """Make the content of a file durable, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
