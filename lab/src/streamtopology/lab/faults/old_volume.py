"""An older copy of the checkpoint's volume takes the volume's place: sinks have batches that the checkpoint knows nothing of.

Then a sink leaves out a batch that is the same again, and refuses another one; nothing is missing and nothing twice, or the
run stops and says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamtopology.lab.faults.disk import FaultyDisk
from streamtopology.lab.faults.story import Story

KIND = "old volume"
_REFUSED = re.compile(r"has another batch (\d+)")

# The records of committed batches, by number.
Commits = dict[int, dict[str, Any]]


@dataclass(eq=False)
class OldVolume:
    """`refused`: a sink has refused a batch, and rightly."""

    story: Story
    disk: FaultyDisk
    refused: bool = False
    _names: Mapping[str, bytes] | None = None
    # The records of batches that were committed before the volume was put back, and are not on it.
    _former: Commits = field(default_factory=dict[int, dict[str, Any]])

    def __post_init__(self) -> None:
        faults = [fault for fault in self.story.faults if fault.kind == KIND]
        self._copied_after = {max(fault.batch - 2 - fault.seed % 4, 0) for fault in faults}

    def committed(self, batch: int) -> None:
        """Copy the volume, if that is to be after this batch."""
        if batch in self._copied_after and self._names is None:
            self._names = dict(self.disk.names)

    def put_back(self, commits: Commits) -> None:
        """Have what was copied, of the checkpoint and of `commits`; nothing without a copy."""
        if self._names is None:
            return
        self.disk.put_back(self._names)
        records = [Path(path).stem for path in self._names if Path(path).parent.name == "commits"]
        newest = max((int(number) for number in records if number.isdecimal()), default=-1)
        for batch in [batch for batch in commits if batch > newest]:
            self._former[batch] = commits.pop(batch)

    def may_be_in_sinks(self, batch: int) -> bool:
        """True for a batch that was committed before."""
        return batch <= max(self._former, default=-1)

    def is_refusal(self, why: str, commits: Commits) -> bool:
        """True if a sink has refused a batch that is not the same again."""
        found = _REFUSED.search(why)
        if found is None or (batch := int(found[1])) not in self._former:
            return False
        self.refused = _ends(self._former[batch]) != _ends(commits[batch])
        return self.refused


def _ends(record: Mapping[str, Any]) -> tuple[Any, Any]:
    return record["end"]["positions"], record["watermark_after"]
