"""A stream that a test hands to a running topology file by file, for as long as it takes to see what it waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from support.manifests import write_rows

if TYPE_CHECKING:
    from support.topologies import Running


class Feed:
    """Files of `size` rows, and what a plain count says about them."""

    def __init__(self, folder: Path, size: int = 3000) -> None:
        self.folder = folder
        self.size = size
        self.expected: Counter[int] = Counter()
        self.sent = 0
        folder.mkdir()

    def files(self, running: Running, number: int = 2, first: int = 1) -> None:
        """Hand over that number of files of keys from `first` on, each when the former is committed."""
        self.until(running, lambda: False, first, at_most=number)

    def until(self, running: Running, seen: Callable[[], object], first: int = 1, waiting: int = 0, at_most: int = 150) -> None:
        """The same until `seen()`, or until the number is reached; on return all are committed.

        Args:
            waiting: how many files there are to be read ahead at any time.
        """
        committed, before = running.rows, self.sent
        while self.sent - before < at_most and not seen():
            self.expected.update(write_rows(self.folder, self.sent, rows=self.size, first=first))
            self.sent += 1
            running.wait_for_rows(committed + (self.sent - before - waiting) * self.size)
        running.wait_for_rows(committed + (self.sent - before) * self.size)
