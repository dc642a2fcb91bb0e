"""Sinks in folders that cannot be written or are another topology's, found before anything starts."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from streamtopology.jobs.connectors.sinks.manifest import OWNER, other_folders, partitions_of
from streamtopology.jobs.connectors.sinks.partitions import partition_columns
from streamtopology.jobs.connectors.sources.descriptors import SourceError, local_path
from streamtopology.topology import Doubt, Problem, Topology

_SUFFIXES = {"parquet": ".parquet", "json": ".jsonl", "csv": ".csv"}
_MOST_NAMED = 3


def unwritable_folders(topology: Topology) -> Iterator[Problem]:
    """A problem for each sink whose folder is another topology's, or cannot be made or written here.

    A folder on a volume of the driver's pod is left to the pod where that volume is not mounted.
    """
    mounts = [Path(str(mount.get("mountPath", ""))) for mount in topology.driver.pod.volume_mounts]
    for index, sink in enumerate(topology.sinks):
        folder = _folder(sink.options.get("path", ""))
        if folder is None or any(folder.is_relative_to(mount) and not mount.exists() for mount in mounts):
            continue
        owner, place = _owner_of(folder), f"folder {folder}"
        if (theirs := owner.get("topology")) not in (None, topology.name):
            sentence = f"sink {sink.name!r}: {place} holds the output of topology {theirs!r}; this is {topology.name!r}"
            remedy = "name another path, or delete the folder"
            yield Problem(f"spec.sinks[{index}].options.path", f"{sentence}: {remedy}")
            continue
        if owner and (other := other_folders(place, partitions_of(owner), partition_columns(sink))):
            yield Problem(f"spec.sinks[{index}].options.partitionBy", f"sink {sink.name!r}: {other}")
            continue
        why = _why_unwritable(folder)
        if why is not None:
            sentence = f"sink {sink.name!r}: cannot write to {folder}: {why}; name a folder that this user may write to"
            yield Problem(f"spec.sinks[{index}].options.path", sentence)


def rows_of_others(topology: Topology) -> Iterator[Doubt]:
    """A doubt for each sink whose folder has files of rows, and no manifest that says whose they are."""
    for index, sink in enumerate(topology.sinks):
        folder, suffix = _folder(sink.options.get("path", "")), _SUFFIXES.get(sink.format)
        if folder is None or suffix is None or not folder.is_dir() or (folder / OWNER).exists():
            continue
        with os.scandir(folder) as entries:
            names = (entry.name for entry in entries if entry.name.endswith(suffix) and entry.name[0] not in "._")
            found = sorted(islice(names, _MOST_NAMED))
        if found:
            sentence = f"sink {sink.name!r}: {folder} has files that this topology has not written, such as {', '.join(found)}"
            remedy = "readers of the folder get their rows, too; name an empty folder, or move them away"
            yield Doubt(f"spec.sinks[{index}].options.path", f"{sentence}: {remedy}")


def _owner_of(folder: Path) -> Mapping[str, object]:
    """Who writes to a folder, by its manifest; empty without any, and if it cannot be read, as a start then says."""
    try:
        owner = json.loads((folder / OWNER).read_text())
    except (OSError, ValueError):
        return {}
    return owner if isinstance(owner, dict) else {}


def _folder(path: str) -> Path | None:
    try:
        return Path(local_path(path)) if path else None
    except SourceError:  # on another machine: the check of the sink's options says so
        return None


def _why_unwritable(folder: Path) -> str | None:
    """The reason why nothing can be written to `folder`, found by making a hidden folder there for a moment."""
    there = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
    if there == folder and not folder.is_dir():
        return None  # a file: the check of the sink's options says so
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".streamtopology-", dir=there))
    except NotADirectoryError:
        return f"{there} is a file"
    except OSError as error:
        return f"{there} takes no new folder ({error.strerror})"
    return None
