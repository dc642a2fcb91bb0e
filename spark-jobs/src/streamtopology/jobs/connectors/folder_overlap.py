"""Sinks that write where a source reads: their files would become its input."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from streamtopology.jobs.connectors.sources.descriptors import SourceError, local_path
from streamtopology.topology import Problem, Topology


@dataclass(frozen=True)
class _Folder:
    """The folder, or pattern of folders, that a source reads. files_only: a pattern of files, or one file of it."""

    parts: tuple[str, ...]
    files_only: bool

    @staticmethod
    def of(path: str) -> _Folder:
        whole = os.path.realpath(local_path(path))
        found = glob.glob(whole) if glob.has_magic(whole) else [whole]
        files_only = not any(map(os.path.isdir, found)) and (glob.has_magic(whole) or os.path.isfile(whole))
        return _Folder((Path(whole).parent if files_only else Path(whole)).parts, files_only)

    def relation(self, sink: tuple[str, ...]) -> str | None:
        """The verb from the folder `sink` to this one; None if neither is part of the other, or files alone are read."""
        if not all(name == part or fnmatchcase(name, part) for name, part in zip(sink, self.parts, strict=False)):
            return None
        if len(sink) > len(self.parts):
            return None if self.files_only else "lies in"
        return "is" if len(sink) == len(self.parts) else "contains"


def overlap_problems(topology: Topology) -> Iterator[Problem]:
    """A problem for each sink whose folder is, lies in, or contains the folder of a source."""
    for index, sink in enumerate(topology.sinks):
        path = sink.options.get("path", "")
        for source in topology.sources:
            relation = relation_of(path, source.options.get("path", ""))
            if relation is not None:
                yield Problem(
                    f"spec.sinks[{index}].options.path",
                    f"sink {sink.name!r}: {path} {relation} the folder that source {source.name!r} reads: the sink's files "
                    "would become input; give the sink a folder of its own, apart from it",
                )


def relation_of(sink: str, source: str) -> str | None:
    """The verb from a sink's path to a source's, such as "lies in"; None if they are apart, or one has no path."""
    with suppress(SourceError):  # a path on another machine: the checks of sinks and sources say so
        if sink and source:
            return _Folder.of(source).relation(Path(os.path.realpath(local_path(sink))).parts)
    return None
