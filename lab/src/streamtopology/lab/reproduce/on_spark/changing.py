"""Streams that change as mixed-routing's do (section 5), as files of a batch each: the same rows for every scheme.

At the beginning of an interval keys of different instances trade their frequencies until a random instance has f times the
mean load more. Instances are hash destinations here: by those of a scheme's own table each scheme would get another stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamtopology.lab.bench.flights_data import key_shares
from streamtopology.lab.numbered_files import write_batches
from streamtopology.lab.reproduce.experiment import Parameters
from streamtopology.lab.simulate.streams import Floats, draw, swapped, zipf_probabilities
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.table import RoutingTable

Keys = npt.NDArray[np.int64]

TRADES_DDL = "id BIGINT, symbol BIGINT, price DOUBLE, at TIMESTAMP"
TRADES_SCHEMA = pa.schema(
    [("id", pa.int64()), ("symbol", pa.int64()), ("price", pa.float64()), ("at", pa.timestamp("us", tz="UTC"))]
)
# Of event time.
SECONDS_A_BATCH = 10

# Frequencies are traded as whole numbers with this sum.
WHOLE = 10**12


@dataclass(frozen=True)
class Changes:
    """`batches` in `intervals` of equal length; from one to the next a random one of `instances` gains `fluctuation` x mean."""

    batches: int
    intervals: int
    instances: int
    fluctuation: float

    @staticmethod
    def of(given: Parameters) -> Changes:
        return Changes(int(given["batches"]), int(given["intervals"]), int(given["servers"]), float(given["fluctuation"]))

    @property
    def first_changed(self) -> int:
        """The first batch of the second interval."""
        return -(-self.batches // self.intervals)

    def interval_of(self, batch: int) -> int:
        return batch * self.intervals // self.batches

    def shares(self, shares: Floats, keys: Keys, rng: np.random.Generator) -> list[Floats]:
        """The share of each key by interval, float64[n] each; at first `shares`, dealt to the keys at random."""
        owners = RoutingTable.uniform(range(self.instances)).lookup(hash_int64(keys))
        counts = rng.permutation(np.rint(shares * WHOLE).astype(np.int64))
        change = self.fluctuation * float(counts.sum()) / self.instances
        found: list[Floats] = []
        for _ in range(self.intervals):
            found.append(counts / counts.sum())
            counts = swapped(counts, owners, int(rng.integers(self.instances)), change, rng)
        return found


def write_words(folder: Path, given: Parameters, seed: int) -> None:
    """Write `keys-000000.parquet` and so on: key int64 and value float64, with the top share of the papers' Twitter trace."""

    def batch(number: int, keys: Keys, random: np.random.Generator) -> pa.Table:
        return pa.table({"key": keys, "value": random.random(len(keys))})

    _write(folder, "keys", int(given["rows"]), key_shares("tweets", int(given["words"])), Changes.of(given), seed, batch)


def write_trades(folder: Path, given: Parameters, seed: int) -> None:
    """Write `trades-000000.parquet` and so on: columns of `TRADES_SCHEMA`.

    A symbol's work is its pairs, the square of its trades: their Zipf exponent is half that of the work.
    """
    rows, exponent = int(given["trades"]), given["work_exponent"] / 2

    def batch(number: int, keys: Keys, random: np.random.Generator) -> pa.Table:
        second = 1_000_000
        at = (number * SECONDS_A_BATCH * second) + np.sort(random.integers(0, SECONDS_A_BATCH * second, rows))
        columns = {
            "id": np.arange(number * rows, (number + 1) * rows, dtype=np.int64),
            "symbol": keys,
            "price": 100 * np.exp(random.normal(0, 0.02, rows)),
            "at": at.astype("datetime64[us]"),
        }
        return pa.table(columns).cast(TRADES_SCHEMA)

    _write(folder, "trades", rows, zipf_probabilities(int(given["symbols"]), exponent), Changes.of(given), seed, batch)


def _write(
    folder: Path,
    name: str,
    rows: int,
    shares: Floats,
    changes: Changes,
    seed: int,
    batch: Callable[[int, Keys, np.random.Generator], pa.Table],
) -> None:
    """Write a file of `rows` a batch. The numbers of keys begin elsewhere with each seed, so that they hash elsewhere."""
    keys = np.arange(len(shares)) + seed * 10**7
    by_interval = changes.shares(shares, keys, np.random.default_rng(seed))

    def table(number: int) -> pa.Table:
        random = np.random.default_rng([seed, number])
        return batch(number, keys[draw(by_interval[changes.interval_of(number)], rows, random)], random)

    write_batches(folder, name, changes.batches, 16, table)
