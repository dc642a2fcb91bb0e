"""The input of a story: files of rows for its sources, in the order in which they appear, and pauses between them."""

from __future__ import annotations

import math
from random import Random
from typing import NamedTuple

# k, g, v, ts (epoch seconds).
Row = tuple[int, int, int, float | None]

COLUMNS = "k BIGINT, g BIGINT, v BIGINT, ts DOUBLE"
NAMES = ("k", "g", "v", "ts")

_KEYS, _GROUPS = 9, 3
_SECONDS_PER_FILE, _SECONDS_OF_A_FILE = 10, 15
_LATE_SHARE, _LATE_SECONDS = 0.12, (10, 150)
_BAD_SHARE = 0.04
# No time, no number, microseconds taken for seconds, the year 2262.
BAD_TIMES = (None, math.nan, math.inf, -math.inf, 1e300, 1.75e15, 9_214_646_400.0)
_PAUSE_SHARE, PAUSE_SECONDS = 0.03, 90.0


class File(NamedTuple):
    """A file of `source`. `pause`: seconds of silence after it."""

    source: str
    rows: tuple[Row, ...]
    pause: float = 0.0


def draw_files(random: Random, count: int, sources: tuple[str, ...]) -> tuple[File, ...]:
    """Draw `count` files. Some stories have rows out of order and bad times, some have pauses."""
    wild, pausing = random.random() < 0.5, random.random() < 0.3
    files: list[File] = []
    for number in range(count):
        source = random.choice(sources) if number >= len(sources) else sources[number]
        pause = PAUSE_SECONDS if pausing and random.random() < _PAUSE_SHARE else 0.0
        files.append(File(source, _rows(random, number, wild), pause))
    return tuple(files)


def _rows(random: Random, number: int, wild: bool) -> tuple[Row, ...]:
    """One to eight rows. If not `wild`, none is late, however the files are cut into batches."""
    keys = [min(int(random.paretovariate(0.7)), _KEYS) for _ in range(random.randint(1, 8))]
    start = _SECONDS_PER_FILE * number
    return tuple((key, key % _GROUPS, random.randrange(100), _time(random, start, wild)) for key in keys)


def _time(random: Random, start: int, wild: bool) -> float | None:
    if wild and random.random() < _BAD_SHARE:
        return random.choice(BAD_TIMES)
    time = float(start + random.randrange(_SECONDS_OF_A_FILE))
    return time - random.randint(*_LATE_SECONDS) if wild and random.random() < _LATE_SHARE else time
