"""One policy at work on one operator's stream, with the controller and the planners that run on Spark.

The clock is the simulation's: a batch lasts as long as its slowest slot, and rows cost what they are said to on one core.
About 0.02 us a row for a table (work is per distinct key), a chooser's own cost for a chooser.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from streamtopology.routing.controller import Controller, Reroute, TopologyFacts
from streamtopology.routing.epoch import Epoch, Route
from streamtopology.routing.groupings import GroupingSpec
from streamtopology.routing.planners.balance import imbalance
from streamtopology.routing.report import LoadReport
from streamtopology.routing.simulator.lessons import Lessons
from streamtopology.routing.table import BUCKETS, RoutingTable, bucket_of, moved, partition
from streamtopology.routing.topology import Rebalance

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Instances = npt.NDArray[np.int32]
_T = TypeVar("_T")

JUDGED_BATCHES = 5
"""A judgement at least this often, however long the manifest's interval is: a simulation is shorter than a run."""

STATE_BYTES = 64
"""What a key's state is taken to weigh where the operator keeps any."""

HEAVY_KEYS, SAMPLE, SEEN_IN_SAMPLE = 256, 16_384, 3
"""An instance reports its heaviest keys alone, those seen so often in a sample of its rows: as the data plane does."""


@dataclass(frozen=True)
class Site:
    """One operator as it would run. `cpu`: cores of each slot; instance i lives on slot i mod their number.

    `combinable`: partial states of a key may be merged, so a policy may split keys although the operator has state.
    """

    operator: str
    parallelism: int
    cpu: tuple[float, ...]
    policy: str
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    has_key: bool = True
    stateful: bool = True
    combinable: bool = False
    rebalance: Rebalance = field(default_factory=Rebalance)

    @property
    def slots(self) -> npt.NDArray[np.int64]:
        """int64[parallelism]: the slot of each instance."""
        return np.arange(self.parallelism) % len(self.cpu)

    @property
    def used_cpu(self) -> Floats:
        """float64[u]: cores of the slots that have an instance."""
        return np.array(self.cpu[: self.parallelism])

    @property
    def capacities(self) -> Floats:
        """float64[parallelism]: cores of each instance; those on one slot share them."""
        sharing = np.bincount(self.slots, minlength=len(self.cpu))[self.slots]
        return np.array(self.cpu)[self.slots] / sharing


@dataclass(frozen=True, eq=False)
class Batch:
    """The rows of one batch: hashes uint64[n] and seconds float64[n] that each takes on one core.

    Then the same by distinct key: keys uint64[m], key_of int64[n], rows int64[m], work float64[m] in seconds.
    """

    hashes: Hashes
    seconds: Floats
    keys: Hashes
    key_of: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    work: Floats

    @staticmethod
    def of(hashes: Hashes, seconds: Floats | float) -> Batch:
        """`seconds`: one for each row, or the same for all."""
        each = np.broadcast_to(np.asarray(seconds, np.float64), len(hashes))
        keys, key_of, rows = np.unique(hashes, return_inverse=True, return_counts=True)
        return Batch(hashes, each, keys, key_of, rows, np.bincount(key_of, each, len(keys)).astype(np.float64))

    @property
    def times_keys(self) -> bool:
        """Whether rows differ in cost, so that instances would time them."""
        return bool(np.ptp(self.seconds) > 0)


@dataclass(frozen=True)
class Played:
    """What one policy made of one batch. `best_seconds`: before which no routing is done with it. `copies`: instances
    that a key of it went to, on average."""

    rows: int
    best_seconds: float
    seconds: float
    imbalance: float
    copies: float


@dataclass(frozen=True)
class Result:
    """One policy over all batches. `imbalance_before` is None where the policy never changed its routing.

    rows/s, the share of the bound, `imbalance_after` and `copies` are about the last third of the batches;
    `rows_per_second_of` and `rerouted_at` (numbers of batches) about all.
    """

    policy: str
    rows_per_second: float
    share_of_bound: float
    imbalance_before: float | None
    imbalance_after: float
    keys_moved: int
    bytes_moved: int
    entries: int
    copies: float
    rows_per_second_of: tuple[float, ...]
    rerouted_at: tuple[int, ...]


class Contender:
    """One policy at work: its epoch, its controller, and what it has done so far."""

    def __init__(self, site: Site, spec: GroupingSpec, seed: int) -> None:
        self.policy = spec.name
        self._site = site
        self._spec = spec
        self._seed = seed
        self._now = 0.0
        self._controller = Controller(site.rebalance, lambda: self._now)
        instances = tuple(range(site.parallelism))
        options: Mapping[str, object] = site.options if spec.name == site.policy else {}
        table = spec.first_table(instances, options)
        self._epoch = Epoch(1, {site.operator: Route(spec.name, table, instances, options)}, (), "the first epoch")
        self._lessons = Lessons(spec, options, site.parallelism)
        self._facts = TopologyFacts.of(self._epoch.routes, site.cpu, source_by_share=False)
        self._rows_given = np.zeros(site.parallelism)
        self._played: list[Played] = []
        self._rerouted_at: list[int] = []
        self._keys_moved = 0

    def take(self, batch: Batch, seen: Hashes, best_seconds: float) -> None:
        """Route one batch, let its time pass, judge.

        `seen`: every key so far, distinct; `best_seconds`: before which no routing is done with the batch.
        """
        table = self._route.table
        if table is None or self._spec.kind == "virtual":
            chosen = self._choose(batch)
            speeds = np.array(self._site.cpu)[self._site.slots]
            self._lessons.take_in(batch.hashes, batch.seconds / speeds[chosen], chosen)
            work, rows = self._sums(chosen, batch.seconds), self._sums(chosen)
            copies = _copies(batch, chosen, self._site.parallelism)
            reports = self._with_buckets(self._reports(rows, work), chosen, batch)
        else:
            owner = table.lookup(batch.keys)
            work, rows = self._sums(owner, batch.work), self._sums(owner, batch.rows)
            copies = 1.0
            reports = self._with_keys(self._reports(rows, work), table, owner, batch, seen)
        seconds = float((np.bincount(self._site.slots, work) / self._site.used_cpu).max())
        self._rows_given += rows
        self._played.append(Played(len(batch.hashes), best_seconds, seconds, self._imbalance(work), copies))
        self._judge(seconds, reports, seen, best_seconds)

    def result(self) -> Result:
        """All batches so far."""
        settled = last_third(self._played)
        seconds = sum(batch.seconds for batch in settled)
        before = [batch.imbalance for batch in self._played[: self._rerouted_at[0]]] if self._rerouted_at else []
        table = self._route.table
        return Result(
            policy=self.policy,
            rows_per_second=sum(batch.rows for batch in settled) / seconds,
            share_of_bound=sum(batch.best_seconds for batch in settled) / seconds,
            imbalance_before=float(np.median(before)) if before else None,
            imbalance_after=float(np.median([batch.imbalance for batch in settled])),
            keys_moved=self._keys_moved,
            bytes_moved=self._keys_moved * self._state_bytes,
            entries=0 if table is None else len(table.entry_hashes),
            copies=float(np.mean([batch.copies for batch in settled])),
            rows_per_second_of=tuple(batch.rows / batch.seconds for batch in self._played),
            rerouted_at=tuple(self._rerouted_at),
        )

    @property
    def _route(self) -> Route:
        return self._epoch.routes[self._site.operator]

    @property
    def _state_bytes(self) -> int:
        return STATE_BYTES if self._site.stateful else 0

    def _sums(self, instance: Instances, weights: Floats | Counts | None = None) -> Floats:
        return np.bincount(instance, weights, self._site.parallelism).astype(np.float64)

    def _imbalance(self, work: Floats) -> float:
        capacities = self._site.capacities
        return imbalance(work, capacities, np.zeros(len(capacities)))

    def _choose(self, batch: Batch) -> Instances:
        """Every slot is a router of its own with an equal part of the rows, and of what was given up to this batch."""
        active = np.array(self._route.instances, np.int32)
        chosen: list[Instances] = []
        routers = len(self._site.cpu)
        for router, hashes in enumerate(np.array_split(batch.hashes, routers)):
            seed = self._seed + len(self._played) * 1_000_003 + router
            given = self._rows_given[active] / routers
            chooser = self._spec.chooser(active, given, seed, self._route.options, self._route.table)
            self._lessons.tell(chooser, routers)
            chosen.append(chooser.choose(hashes if self._site.has_key else None, len(hashes)))
        return np.concatenate(chosen)

    def _reports(self, rows: Floats, work: Floats) -> list[LoadReport]:
        busy = work / np.array(self._site.cpu)[self._site.slots]
        return [
            LoadReport(
                self._site.operator, instance, int(self._site.slots[instance]), int(rows[instance]), float(busy[instance]),
                float(busy[instance]),
            )
            for instance in range(self._site.parallelism)
        ]  # fmt: skip

    def _with_buckets(self, reports: Sequence[LoadReport], chosen: Instances, batch: Batch) -> list[LoadReport]:
        """The reports with their rows per bucket: keys that are split are nobody's heavy ones."""
        cells = chosen.astype(np.int64) * BUCKETS + bucket_of(batch.hashes, BUCKETS)
        rows = np.bincount(cells, minlength=self._site.parallelism * BUCKETS).reshape(-1, BUCKETS)
        return [replace(report, bucket_rows=rows[report.instance]) for report in reports]

    def _with_keys(
        self, reports: Sequence[LoadReport], table: RoutingTable, owner: Instances, batch: Batch, seen: Hashes
    ) -> list[LoadReport]:
        """The reports with their heavy keys, rows per bucket and state."""
        held = self._sums(table.lookup(seen)).astype(np.int64)
        order, bounds = partition(owner, self._site.parallelism)
        timed = batch.times_keys
        detailed: list[LoadReport] = []
        for report in reports:
            mine = order[bounds[report.instance] : bounds[report.instance + 1]]
            heavy, light = _heavy_and_light(mine, batch.rows)
            speed = self._site.cpu[report.slot]
            detailed.append(
                replace(
                    report,
                    state_keys=int(held[report.instance]) if self._site.stateful else 0,
                    state_bytes=int(held[report.instance]) * self._state_bytes,
                    heavy_hashes=batch.keys[heavy],
                    heavy_rows=batch.rows[heavy],
                    heavy_seconds=batch.work[heavy] / speed if timed else np.zeros(len(heavy)),
                    heavy_bytes=np.full(len(heavy), self._state_bytes, np.int64),
                    heavy_labels=("",) * len(heavy),
                    bucket_rows=np.bincount(bucket_of(batch.keys[light], BUCKETS), batch.rows[light], BUCKETS).astype(np.int64),
                )
            )
        return detailed

    def _judge(self, seconds: float, reports: Sequence[LoadReport], seen: Hashes, best_seconds: float) -> None:
        """Let the batch's time pass, and re-route where the controller says so."""
        wanted = self._site.rebalance
        interval = min(wanted.interval_seconds, JUDGED_BATCHES * best_seconds)
        self._controller.configure(replace(wanted, mode="Auto", interval_seconds=interval))
        self._now += seconds
        self._controller.observe(len(self._played), seconds, reports, (), self._epoch.number)
        decision = self._controller.step(self._now, self._epoch, self._facts)
        if not isinstance(decision, Reroute):
            return
        before, after = self._route.table, decision.epoch.routes[self._site.operator].table
        if before is not None and after is not None and self._spec.kind == "table":
            self._keys_moved += int(np.count_nonzero(moved(before, after, seen)[0]))
        self._epoch = decision.epoch
        self._rerouted_at.append(len(self._played))


def last_third(values: Sequence[_T]) -> Sequence[_T]:
    """The last third, at least one: when what was to be re-routed has been."""
    return values[-max(1, len(values) // 3) :]


def _heavy_and_light(mine: Counts, rows: Counts) -> tuple[Counts, Counts]:
    """An instance's keys (positions int64) divided: the heaviest, in order, and all others."""
    threshold = SEEN_IN_SAMPLE * max(1, int(rows[mine].sum()) // SAMPLE)
    often = mine[rows[mine] >= threshold]
    heavy = np.sort(often[np.argsort(-rows[often], kind="stable")[:HEAVY_KEYS]])
    return heavy, np.setdiff1d(mine, heavy, assume_unique=True)


def _copies(batch: Batch, chosen: Instances, parallelism: int) -> float:
    """To how many instances a key of the batch went, on average."""
    held = np.zeros((len(batch.keys), parallelism), np.bool_)
    held[batch.key_of, chosen] = True
    return float(held.sum() / len(batch.keys))
