"""A real stream from a file, in place of the stand-in of an experiment: keys, or pairs of keys, with their times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from streamtopology.lab.reproduce.experiment import ExperimentError

Items = npt.NDArray[np.int64]

# Kinds of traces: a file with the columns `time` and `key`, or with `second_key`, too.
KEYS, PAIRS = "keys", "pairs"

_COLUMNS = {KEYS: ("time", "key"), PAIRS: ("time", "key", "second_key")}


@dataclass(frozen=True, eq=False)
class Trace:
    """Rows in the order of their times: `times` float64[n], in the file's unit; keys int64[n], numbered from 0 as they come."""

    times: npt.NDArray[np.float64]
    keys: Items
    second_keys: Items

    @property
    def n_keys(self) -> int:
        return int(self.keys.max()) + 1

    def periods(self, count: int) -> Iterator[slice]:
        """The rows of `count` periods of equal length, of which the last ends with the last row."""
        ends = np.linspace(self.times[0], self.times[-1], count + 1)[1:-1]
        cuts = [0, *np.searchsorted(self.times, ends).tolist(), len(self.times)]
        return (slice(start, end) for start, end in pairwise(cuts))


@lru_cache(maxsize=2)
def read_trace(path: str, kind: str) -> Trace:
    """Read a Parquet or CSV file. ExperimentError: it cannot be read, or lacks a column or a row."""
    table = _read(Path(path), kind)
    times = pc.cast(table["time"], pa.int64() if pa.types.is_temporal(table["time"].type) else pa.float64())
    order = np.argsort(times.to_numpy(), kind="stable")
    columns = [_numbered(table[name])[order] for name in _COLUMNS[kind][1:]]
    return Trace(times.to_numpy()[order].astype(np.float64), columns[0], columns[-1])


def kind_of(path: Path) -> str:
    """Return the kind of trace that the file is. ExperimentError as `read_trace`."""
    names = _schema(path).names
    return PAIRS if _COLUMNS[PAIRS][-1] in names else KEYS


def _schema(path: Path) -> pa.Schema:
    return _dataset(path).schema


def _dataset(path: Path) -> ds.Dataset:
    if not path.exists():
        raise ExperimentError(f"{path}: there is no such file")
    try:
        return ds.dataset(str(path), format="csv" if path.suffix == ".csv" else "parquet")
    except (pa.ArrowInvalid, OSError) as error:
        raise ExperimentError(f"{path}: cannot be read as Parquet, or as CSV with the ending .csv: {error}") from None


def _read(path: Path, kind: str) -> pa.Table:
    dataset = _dataset(path)
    if missing := [name for name in _COLUMNS[kind] if name not in dataset.schema.names]:
        found = ", ".join(dataset.schema.names)
        raise ExperimentError(
            f"{path}: no column {' and '.join(missing)}; a trace of {kind} needs {', '.join(_COLUMNS[kind])}, found {found}"
        )
    table = dataset.to_table(columns=list(_COLUMNS[kind])).drop_null()
    if not len(table):
        raise ExperimentError(f"{path}: no row has all of {', '.join(_COLUMNS[kind])}")
    return table


def _numbered(column: Any) -> Items:
    return column.combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
