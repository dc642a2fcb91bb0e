"""The rows of the case keyed: files that follow each other without an end, and the same ones with other names of the keys."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv

from streamtopology.lab.numbered_files import write_batches
from streamtopology.lab.simulate.streams import draw, zipf_probabilities

KEYS = 1_000_000
ROWS_PER_FILE = 500_000
DIFFERENT_FILES, FILES = 20, 6_000
ROW_GROUPS = 20
# For an engine that needs minutes for one of those files: the first of them, cut into as many.
SMALL_FILES = 50

# With the first names the run begins, with the others the hot keys are others.
NAMES = ("names", "moved")


def write_rows(data: Path, skew: float) -> None:
    """Files of all rows, as Parquet, also small ones, and as CSV; folders of links to them, over and over; the first by itself.

    `expected.json`: the counts of that first one, by kind. A Parquet file has the size of that with the other names, so that a
    reader that has looked at one can read the other.
    """
    shares = zipf_probabilities(KEYS, skew)
    rng = np.random.default_rng(7)
    drawn = [draw(shares, ROWS_PER_FILE, rng) for _ in range(DIFFERENT_FILES)]
    expected: dict[str, list[int]] = {}
    for version in NAMES:
        names = rng.permutation(KEYS)
        tables = [pa.table({"k": names[of_file]}) for of_file in drawn]
        small = [
            tables[0].slice(first, ROWS_PER_FILE // SMALL_FILES)
            for first in range(0, ROWS_PER_FILE, ROWS_PER_FILE // SMALL_FILES)
        ]
        files = {
            "parquet": write_batches(
                data / f"rows-{version}", "rows", DIFFERENT_FILES, ROW_GROUPS, tables.__getitem__, plain=True
            ),
            "small": write_batches(data / f"small-rows-{version}", "rows", SMALL_FILES, 1, small.__getitem__, plain=True),
        }
        files["csv"] = [file.with_suffix(".csv") for file in files["parquet"]]
        for table, text in zip(tables, files["csv"], strict=True):
            csv.write_csv(table, text)
        for kind, of_kind in files.items():
            link_over_and_over(data / f"{kind}-{version}", of_kind, FILES)
            if version == NAMES[0]:
                link_over_and_over(data / f"{kind}-once", of_kind, 1)
                expected[kind] = _counts(small[0] if kind == "small" else tables[0])
    (data / "expected.json").write_text(json.dumps(expected) + "\n")


def link_over_and_over(folder: Path, files: Sequence[Path], count: int) -> None:
    """`count` links to the files, over and over, of one time: readers that go by times then go by names."""
    folder.mkdir(exist_ok=True)
    for file in files:
        os.utime(file, (_TIME, _TIME))
    for number in range(count):
        file = files[number % len(files)]
        link = folder / f"rows-{number:06d}{file.suffix}"
        link.unlink(missing_ok=True)  # of an earlier try
        link.hardlink_to(file)


_TIME = 1_700_000_000


def _counts(rows: pa.Table) -> list[int]:
    """The number of keys, of rows, and the highest count."""
    _, counts = np.unique(rows["k"].to_numpy(), return_counts=True)
    return [len(counts), int(counts.sum()), int(counts.max())]
