"""A stream of words in files for a topology that counts them, and what a plain count says of them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from support.waiting import eventually

WORDS = [f"w{number}" for number in range(300)]
WORDS_IN_FILE = 6000
LOOK_SECONDS = 0.2


class WordStream:
    """Files of skewed words in `folder`/lines; counts are read from `folder`/counts, whose batches have a word's newest count.

    Both folders and `folder`/checkpoint are made so that every user may write there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.expected: Counter[str] = Counter()
        self._files = 0
        for made in (folder, *(folder / name for name in ("lines", "counts", "checkpoint"))):
            made.mkdir(exist_ok=True)
            made.chmod(0o777)

    def feed(self, files: int = 3, seconds: float = 200) -> None:
        """That many files more, a batch for each; waits until they are counted and published."""
        for _ in range(files):
            self._write()
        eventually(lambda: self.counted().total() >= self.expected.total(), seconds)

    @contextmanager
    def flowing(self, ahead: int = 3) -> Iterator[None]:
        """New files all the time, as fast as they are counted: never more than `ahead` files that have not been taken."""
        ended = threading.Event()

        def flow() -> None:
            while not ended.wait(LOOK_SECONDS):
                while self._files - len(self._published()) < ahead:
                    self._write()

        thread = threading.Thread(target=flow, name="words flow")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def counted(self) -> Counter[str]:
        """The newest count of each word in the sink."""
        return newest_counts(self._published())

    def _published(self) -> list[Path]:
        return sorted((self.folder / "counts").glob("batch-*.parquet"))

    def _write(self) -> None:
        """A file that appears whole."""
        random = np.random.default_rng(self._files)
        words = [WORDS[int(drawn) % len(WORDS)] for drawn in random.zipf(1.4, WORDS_IN_FILE)]
        self.expected.update(words)
        lines = self.folder / "lines"
        unseen = lines / f".part-{self._files:04}"
        unseen.write_text("".join(" ".join(words[at : at + 12]) + "\n" for at in range(0, len(words), 12)))
        unseen.rename(lines / f"part-{self._files:04}.txt")
        self._files += 1


def newest_counts(files: Iterable[Path]) -> Counter[str]:
    """The last count of each word in a sink's files of batches, which are in order."""
    newest: Counter[str] = Counter()
    for file in files:
        newest.update({row["word"]: row["count"] - newest[row["word"]] for row in pq.read_table(file).to_pylist()})
    return newest
