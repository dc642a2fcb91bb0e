"""A disk whose process dies at an operation that the test names by its number."""

from __future__ import annotations

from dataclasses import dataclass

from streamtopology.lab.faults.disk import FaultyDisk
from streamtopology.lab.faults.scheduler import Died

_CHANGES_NOTHING = ("read", "list")


@dataclass
class DyingDisk(FaultyDisk):
    """`steps_left`: the operations that change something until the process dies; None: it lives."""

    steps_left: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.step = self._count

    def copy(self) -> DyingDisk:
        """A disk of its own with the same on it."""
        return DyingDisk(dict(self.names), dict(self.durable), set(self.folders), set(self.durable_folders))

    def die_after(self, steps: int | None) -> None:
        self.steps_left = steps

    def _count(self, operation: str, path: str) -> None:
        if operation in _CHANGES_NOTHING or self.steps_left is None:
            return
        if self.steps_left == 0:
            raise Died
        self.steps_left -= 1
