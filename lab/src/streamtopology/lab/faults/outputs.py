"""The files of sinks, in a folder of the real disk or in the simulated bucket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from streamtopology.lab.faults.bucket import SINKS, Bucket


@dataclass(frozen=True)
class Outputs:
    """`bucket`: the one that all sinks of files are in; None: they are in `folder`."""

    folder: Path
    bucket: Bucket | None

    @property
    def place(self) -> str:
        """The path of the sinks, below which each has its own."""
        return str(self.folder) if self.bucket is None else SINKS

    def of(self, sink: str) -> Mapping[str, bytes]:
        """The content of a sink's batches, by the names of their files."""
        if self.bucket is None:
            return {path.name: path.read_bytes() for path in sorted((self.folder / sink).glob("batch-*"))}
        found = self.bucket.below(f"{SINKS}/{sink}")
        return {name: content for name, content in found.items() if name.startswith("batch-")}

    def sink_with(self, batch: int) -> str | None:
        """A sink that has the batch; None if none has."""
        found = [str(path) for path in self.folder.glob("*/batch-*")] if self.bucket is None else self.bucket.below(SINKS)
        return next((Path(path).parent.name for path in sorted(found) if Path(path).stem == f"batch-{batch:09d}"), None)
