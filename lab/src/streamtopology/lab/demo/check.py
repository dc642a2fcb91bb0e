"""The reference of the demo's results: a plain group-by of the same flights with pyarrow and numpy.

It shares no code with the operators, the routing or the state but for the reading of the state's files. Both operators are
compared: what `destination` has published, and what `tail`, whose state moves most, keeps in the newest commit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.plan.as_of import node_state
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.view.run_report import Check

QUANTILES = (0.5, 0.9, 0.99)
CLIPPED = (-60, 180)  # the manifest's min and max: what lies outside counts as these

# Of one key: how many flights it has, and then its histogram or its quantiles.
Figures = tuple[int, ...]


@dataclass(frozen=True)
class Expected:
    """By key, what an operator must have: for a tail number the whole histogram of its delays, for a destination quantiles."""

    tails: Mapping[str, Figures]
    destinations: Mapping[str, Figures]


def count_flights(data: Path | Sequence[Path]) -> Expected:
    """Group all flights in `data` (a folder, or files) that arrived."""
    source = data if isinstance(data, Path) else [str(path) for path in data]
    flights = ds.dataset(source).to_table(columns=["tailnum", "dest", "arr_delay"])
    arrived = flights.filter(pc.field("arr_delay").is_valid())
    return Expected(histograms(arrived, "tailnum", "arr_delay"), quantiles(arrived, "dest", "arr_delay"))


def check_tails(expected: Expected, checkpoint: Checkpoint) -> Check:
    """Compare the state that the newest commit names for the operator `tail`."""
    return compare(expected.tails, kept_histograms(checkpoint, "tail"))


def check_destinations(expected: Expected, results: Path) -> Check:
    """Compare the last row that `results` has for each destination."""
    return compare(expected.destinations, last_rows(results, "dest").items())


def compare(expected: Mapping[str, Figures], found: Iterable[tuple[str, Figures]]) -> Check:
    """Equal are the same keys, each once, with the same figures; a row is lost or doubled where a key's count says so."""
    listed = list(found)
    seen = Counter[str]()
    for key, (count, *_) in listed:
        seen[key] += count
    lost = sum(max(0, count - seen[key]) for key, (count, *_) in expected.items())
    duplicated = sum(max(0, count - expected.get(key, (0,))[0]) for key, count in seen.items())
    equal = len(listed) == len(expected) and dict(listed) == expected
    return Check(sum(figures[0] for figures in expected.values()), seen.total(), lost, duplicated, equal)


def histograms(rows: pa.Table, key: str, column: str) -> dict[str, Figures]:
    """key -> (count, how often each value from the smallest to the largest occurs)."""
    keys = rows[key].combine_chunks().dictionary_encode()
    low, high = CLIPPED
    bins = high - low + 1
    values = np.clip(rows[column].to_numpy(), low, high) - low
    cells = keys.indices.to_numpy().astype(np.int64) * bins + values
    counted = np.bincount(cells, minlength=len(keys.dictionary) * bins).reshape(-1, bins)
    return dict(_with_counts(keys.dictionary.to_pylist(), counted))


def quantiles(rows: pa.Table, key: str, column: str) -> dict[str, Figures]:
    """key -> (count, element of rank ceil(q * count) for each quantile), by sorting all values of a key."""
    ordered = rows.sort_by([(key, "ascending"), (column, "ascending")])
    keys = ordered[key].combine_chunks()
    values = np.clip(ordered[column].to_numpy(), *CLIPPED)
    runs = pc.call_function("run_end_encode", [keys])
    ends = runs.run_ends.to_numpy()
    starts = np.concatenate([[0], ends[:-1]])
    expected: dict[str, Figures] = {}
    for name, start, end in zip(runs.values.to_pylist(), starts.tolist(), ends.tolist(), strict=True):
        count = end - start
        ranks = [max(1, -(-count * round(q * 1000) // 1000)) for q in QUANTILES]
        expected[name] = (count, *(int(values[start + rank - 1]) for rank in ranks))
    return expected


def kept_histograms(checkpoint: Checkpoint, operator: str) -> list[tuple[str, Figures]]:
    """Key and (count, histogram) as the instances of `operator` keep them; a key that two keep is there twice."""
    commit = checkpoint.last_commit()
    if commit is None:
        return []
    node = ExecutionPlan.from_json(checkpoint.read_epoch(commit.epoch)).compile().node(operator)
    held = node_state(checkpoint, commit, node)
    if held is None:
        return []
    counted = held["histogram"].combine_chunks().flatten().to_numpy().reshape(held.num_rows, -1)
    return _with_counts(held[node.key[0]].to_pylist(), counted)


def last_rows(results: Path, key: str) -> dict[str, Figures]:
    """key -> (count, quantiles) as the sink's newest batch that names the key has them."""
    found: dict[str, Figures] = {}
    for path in sorted(results.glob("*.parquet")):
        for row in pq.read_table(path).to_pylist():
            found[row[key]] = tuple(value for name, value in row.items() if name != key)
    return found


def _with_counts(keys: list[str], histograms: np.ndarray) -> list[tuple[str, Figures]]:
    rows = histograms.tolist()
    return [(key, (sum(row), *row)) for key, row in zip(keys, rows, strict=True)]
