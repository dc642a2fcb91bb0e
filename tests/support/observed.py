"""A stream that is made up batch by batch, with the reports that its instances and source tasks would send."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from streamtopology.contract.reasons import EpochCause, EpochReason
from streamtopology.routing.epochs.epoch import Epoch, Route
from streamtopology.routing.load.bucket_rows import BucketRows
from streamtopology.routing.load.load_report import LoadReport, SourceReport
from streamtopology.routing.planners.balance import imbalance
from streamtopology.routing.table.table import BUCKETS, RoutingTable

SLOTS = 4
BASE = {"source": 600_000.0, "count": 120_000.0, "top": 200_000.0}
HEAVY = 150


@dataclass
class Stream:
    """A topology on four slots, batch by batch: Zipf keys, each stage lasts as long as its last instance."""

    seed: int
    zipf: float = 1.0
    n_keys: int = 20_000
    rows: int = 100_000
    noise: float = 0.05
    fixed: float = 0.05
    operators: tuple[str, ...] = ("count",)
    policy: str = "mixed"
    bytes_per_key: int = 48
    read_ahead: bool = False
    source_rate: float = BASE["source"]
    speeds: np.ndarray = field(default_factory=lambda: np.array([1.0, 1.0, 1.0, 0.3]))

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.hashes = self.rng.integers(0, 2**64, self.n_keys, dtype=np.uint64)
        weights = 1 / np.arange(1, self.n_keys + 1) ** self.zipf
        self.shares = weights / weights.sum()
        self.labels = np.array([str(key) for key in range(self.n_keys)], dtype=object)

    def first_epoch(self) -> Epoch:
        table = RoutingTable.uniform(range(SLOTS)) if self.policy == "mixed" else None
        route = Route(self.policy, table, tuple(range(SLOTS)))
        return Epoch(1, dict.fromkeys(self.operators, route), (), EpochReason(EpochCause.FIRST))

    def batch(self, epoch: Epoch) -> tuple[float, list[LoadReport], list[SourceReport]]:
        """(seconds, reports, source reports) of one batch under this epoch."""
        shares = np.array(epoch.source_shares or (1 / SLOTS,) * SLOTS)
        sources = [self._source_report(slot, self.rows * shares[slot]) for slot in range(SLOTS)]
        reports = [report for name in self.operators for report in self._reports(name, epoch.routes[name])]
        reading = max(source.task_seconds for source in sources)
        working = sum(max(r.task_seconds for r in reports if r.operator == name) for name in self.operators)
        return max(reading, working) if self.read_ahead else reading + working, reports, sources

    def _source_report(self, slot: int, rows: float) -> SourceReport:
        busy, task = self._time("source", slot, rows)
        return SourceReport(slot, int(rows), busy, busy if self.read_ahead else task, ahead=self.read_ahead)

    def loads(self, route: Route) -> np.ndarray:
        """Expected rows per instance and batch."""
        if route.table is None:
            weights = np.array(route.options.get("capacities", [1.0] * SLOTS))
            return self.rows * weights / weights.sum()
        return np.bincount(route.table.lookup(self.hashes), self.rows * self.shares, SLOTS)

    def imbalance(self, route: Route) -> float:
        return imbalance(self.loads(route), BASE["count"] * self.speeds, np.full(SLOTS, self.fixed))

    def _time(self, stage: str, slot: int, rows: float) -> tuple[float, float]:
        rate = self.source_rate if stage == "source" else BASE[stage]
        busy = rows / (rate * self.speeds[slot]) * self.rng.lognormal(0, self.noise)
        return busy, busy + self.fixed * self.rng.lognormal(0, self.noise)

    def _reports(self, name: str, route: Route) -> list[LoadReport]:
        if route.table is None:
            counted = self.loads(route).astype(int)
            return [LoadReport(name, i, i, int(n), *self._time(name, i, n)) for i, n in enumerate(counted)]
        rows = self.rng.multinomial(self.rows, self.shares)
        owners = route.table.lookup(self.hashes)
        return [self._table_report(name, i, rows, np.flatnonzero(owners == i)) for i in range(SLOTS)]

    def _table_report(self, name: str, instance: int, rows_of_all: np.ndarray, keys: np.ndarray) -> LoadReport:
        """`keys`: the places of the instance's keys among all."""
        rows, hashes = rows_of_all[keys], self.hashes[keys]
        heavy = np.argsort(-rows, kind="stable")[:HEAVY]
        heavy = heavy[np.argsort(hashes[heavy])]
        light = rows.copy()
        light[heavy] = 0
        busy, task = self._time(name, instance, float(rows.sum()))
        return LoadReport(
            operator=name,
            instance=instance,
            slot=instance,
            rows=int(rows.sum()),
            busy_seconds=busy,
            task_seconds=task,
            state_keys=int((rows > 0).sum()),
            state_bytes=int((rows > 0).sum()) * self.bytes_per_key,
            heavy_hashes=hashes[heavy],
            heavy_rows=rows[heavy].astype(np.int64),
            heavy_seconds=np.zeros(len(heavy)),
            heavy_bytes=np.full(len(heavy), self.bytes_per_key, np.int64),
            heavy_labels=tuple(self.labels[keys[heavy]].tolist()),
            bucket_rows=BucketRows.of_keys(hashes, light, BUCKETS),
        )
