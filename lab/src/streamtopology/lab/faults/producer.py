"""The producer of a story's files, with its pauses, and the silences in which nothing else happens."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from streamtopology.lab.faults.rows import NAMES, File
from streamtopology.lab.faults.scheduler import Scheduler

_CALM_SECONDS = 60.0


@dataclass(eq=False)
class Producer:
    """Puts files into `folder`, in a folder for each source. `committed` counts the batches that are committed.

    `silences`: that number after each pause at whose end nothing had happened to the topology for a minute.
    """

    scheduler: Scheduler
    folder: Path
    files: Sequence[File]
    committed: Callable[[], int]
    placed: int = 0
    silences: list[int] = field(default_factory=list[int])
    _disturbed_until: float = 0.0

    def disturb(self, seconds: float = 0.0) -> None:
        """Note that something happens to the topology, which takes `seconds`."""
        self._disturbed_until = max(self._disturbed_until, self.scheduler.now + seconds)

    def run(self, random: Random) -> None:
        for number, file in enumerate(self.files):
            self.scheduler.wait(None, random.choice((0.0, 0.05, 0.1, 0.2)))
            path = self.folder / file.source / f"{number:06d}.json"
            draft = path.with_name(f".{path.name}")
            draft.write_text("".join(f"{json.dumps(dict(zip(NAMES, row, strict=True)))}\n" for row in file.rows))
            os.utime(draft, ns=(number * 1_000, number * 1_000))
            draft.rename(path)
            self.placed += 1
            if file.pause:
                self._be_silent(file.pause)

    @property
    def is_done(self) -> bool:
        return self.placed == len(self.files)

    def _be_silent(self, seconds: float) -> None:
        self.scheduler.wait(None, seconds)
        if self.scheduler.now - self._disturbed_until > _CALM_SECONDS:
            self.silences.append(self.committed())
