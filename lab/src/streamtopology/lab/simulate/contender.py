"""One policy on one operator's stream, with the controller and the planners that run on Spark.

The clock is the simulation's: a batch lasts as long as its slowest slot, and rows have their declared cost on one core.
About 0.02 us a row for a table (work is per distinct key), a chooser's own cost for a chooser.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from streamtopology.contract.reasons import EpochCause, EpochReason
from streamtopology.lab.simulate.learning import SimulatedLearning
from streamtopology.lab.simulate.merging import Merging
from streamtopology.lab.simulate.site import Batch, Counts, Floats, Hashes, Instances, Site
from streamtopology.routing.control.controller import Controller
from streamtopology.routing.control.decisions import Reroute, TopologyFacts
from streamtopology.routing.control.feed import CommittedBatch, Feed
from streamtopology.routing.epochs.epoch import Epoch, Route
from streamtopology.routing.groupings import first_table, make_chooser
from streamtopology.routing.load.bucket_rows import BucketRows
from streamtopology.routing.load.load_report import LoadReport
from streamtopology.routing.planners.balance import imbalance
from streamtopology.routing.table.table import BUCKETS, RoutingTable, bucket_of, moved, partition
from streamtopology.topology.groupings import GroupingSpec

_T = TypeVar("_T")

# A judgement at least this often, however long the manifest's interval is: a simulation is shorter than a run.
JUDGED_BATCHES = 5

# The assumed size of a key's state where the operator keeps any.
STATE_BYTES = 64

# An instance reports its heaviest keys alone, those seen so often in a sample of its rows: as the data plane does.
HEAVY_KEYS, SAMPLE, SEEN_IN_SAMPLE = 256, 16_384, 3


@dataclass(frozen=True)
class Played:
    """The result of one policy on one batch. `best_seconds`: before which no routing is done with it. `copies`: instances
    that a key of it went to, on average. `seconds` include those of `merging`."""

    rows: int
    best_seconds: float
    seconds: float
    merging: float
    imbalance: float
    copies: float


@dataclass(frozen=True, eq=False)
class KeysAt:
    """An instance's keys of a batch: positions among all its keys int64[m], rows int64[m], work float64[m] in seconds."""

    positions: Counts
    rows: Counts
    work: Floats


@dataclass(frozen=True, eq=False)
class Dealt:
    """One batch as it was routed: seconds of work on one core and rows of each instance, float64[parallelism] each.

    `merging`: seconds until the parts of keys are combined; `copies` as of `Played`.
    """

    work: Floats
    rows: Floats
    merging: float
    copies: float
    reports: Sequence[LoadReport]


@dataclass(frozen=True)
class Result:
    """One policy over all batches. `imbalance_before` is None where the policy never changed its routing.

    rows/s, the share of the bound, `imbalance_after`, `copies` and `merging` (the share of the time that merging the parts of
    keys takes) are about the last third of the batches;
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
    merging: float
    rows_per_second_of: tuple[float, ...]
    rerouted_at: tuple[int, ...]


class Contender:
    """One policy: its epoch, its controller, and its results so far. Another kind of routing has its own `deal`."""

    def __init__(self, site: Site, spec: GroupingSpec, seed: int) -> None:
        self.policy = spec.name
        self.site = site
        self._spec = spec
        self._seed = seed
        self._now = 0.0
        self.controller = Controller(site.rebalance, lambda: self._now)
        self._feed = Feed(self.controller)
        instances = tuple(range(site.parallelism))
        options: Mapping[str, object] = site.options if spec.name == site.policy else {}
        table = first_table(spec.name, instances, options)
        self._epoch = Epoch(1, {site.operator: Route(spec.name, table, instances, options)}, (), EpochReason(EpochCause.FIRST))
        self._learning = SimulatedLearning(spec, options, site.parallelism)
        self.facts = TopologyFacts.of(self._epoch.routes, site.cpu, source_by_share=False)
        self._rows_given = np.zeros(site.parallelism)
        self._merging = Merging(site) if spec.splits_keys and site.stateful else None
        self._played: list[Played] = []
        self._rerouted_at: list[int] = []
        self._keys_moved = 0

    def run_on(self, cpu: tuple[float, ...]) -> None:
        """The slots have other cores from the next batch on; the declared ones stay."""
        self.site = replace(self.site, cpu=cpu)
        if self._merging is not None:
            self._merging.run_on(cpu)

    def take(self, batch: Batch, seen: Hashes, best_seconds: float) -> None:
        """Route one batch, let its time pass, judge.

        `seen`: every key so far, distinct; `best_seconds`: before which no routing is done with the batch.
        """
        dealt = self.deal(batch, seen)
        seconds = self.site.stage_seconds(dealt.work) + dealt.merging
        self._rows_given += dealt.rows
        imbalanced = self._imbalance(dealt.work)
        self._played.append(Played(len(batch.hashes), best_seconds, seconds, dealt.merging, imbalanced, dealt.copies))
        self._judge(seconds, dealt.reports, seen, best_seconds)

    def deal(self, batch: Batch, seen: Hashes) -> Dealt:
        """Route one batch; `seen`: every key so far."""
        if self.route.table is not None and self._spec.kind == "table":
            return self.looked_up(batch, self.route.table, seen)
        chosen = self._choose(batch)
        speeds = np.array(self.site.cpu)[self.site.slots]
        self._learning.take_in(batch.hashes, batch.seconds / speeds[chosen], chosen)
        work, rows = self.sums(chosen, batch.seconds), self.sums(chosen)
        held = holders(batch, chosen, self.site.parallelism)
        merging = self._merging.take(batch, held) if self._merging else 0.0
        reports = self._with_buckets(self._reports(rows, work), chosen, batch)
        return Dealt(work, rows, merging, float(held.sum() / len(batch.keys)), reports)

    def looked_up(self, batch: Batch, table: RoutingTable, seen: Hashes) -> Dealt:
        """Route one batch by a table in which every key has one owner."""
        owner = table.lookup(batch.keys)
        work, rows = self.sums(owner, batch.work), self.sums(owner, batch.rows)
        order, bounds = partition(owner, self.site.parallelism)
        mine = [order[bounds[j] : bounds[j + 1]] for j in range(self.site.parallelism)]
        keys = [KeysAt(positions, batch.rows[positions], batch.work[positions]) for positions in mine]
        return Dealt(work, rows, 0.0, 1.0, self.reports(rows, work, table, keys, batch, seen))

    def result(self) -> Result:
        """All batches so far."""
        settled = last_third(self._played)
        seconds = sum(batch.seconds for batch in settled)
        before = [batch.imbalance for batch in self._played[: self._rerouted_at[0]]] if self._rerouted_at else []
        table = self.route.table
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
            merging=sum(batch.merging for batch in settled) / seconds,
            rows_per_second_of=tuple(batch.rows / batch.seconds for batch in self._played),
            rerouted_at=tuple(self._rerouted_at),
        )

    @property
    def route(self) -> Route:
        """The operator's, in force."""
        return self._epoch.routes[self.site.operator]

    @property
    def _state_bytes(self) -> int:
        return STATE_BYTES if self.site.stateful else 0

    def sums(self, instance: Instances, weights: Floats | Counts | None = None) -> Floats:
        """float64[parallelism]: the rows, or their weights, of each instance."""
        return np.bincount(instance, weights, self.site.parallelism).astype(np.float64)

    def _imbalance(self, work: Floats) -> float:
        capacities = self.site.capacities
        return imbalance(work, capacities, np.zeros(len(capacities)))

    def _choose(self, batch: Batch) -> Instances:
        """Every slot is a router of its own with an equal part of the rows, and of what was given up to this batch."""
        active = np.array(self.route.instances, np.int32)
        chosen: list[Instances] = []
        routers = len(self.site.cpu)
        for router, hashes in enumerate(np.array_split(batch.hashes, routers)):
            seed = self._seed + len(self._played) * 1_000_003 + router
            given = self._rows_given[active] / routers
            chooser = make_chooser(self.policy, active, given, seed, self.route.options, self.route.table)
            self._learning.teach(chooser, routers)
            chosen.append(chooser.choose(hashes if self.site.has_key else None, len(hashes)))
        return np.concatenate(chosen)

    def _reports(self, rows: Floats, work: Floats) -> list[LoadReport]:
        speeds = np.array(self.site.cpu)[self.site.slots]
        busy = work / speeds
        task = busy + self.site.fixed_seconds / speeds
        return [
            LoadReport(
                self.site.operator,
                instance,
                int(self.site.slots[instance]),
                int(rows[instance]),
                float(busy[instance]),
                float(task[instance]),
            )
            for instance in range(self.site.parallelism)
        ]

    def _with_buckets(self, reports: Sequence[LoadReport], chosen: Instances, batch: Batch) -> list[LoadReport]:
        """The reports with their rows per bucket: keys that are split are nobody's heavy ones."""
        cells = chosen.astype(np.int64) * BUCKETS + bucket_of(batch.hashes, BUCKETS)
        rows = np.bincount(cells, minlength=self.site.parallelism * BUCKETS).reshape(-1, BUCKETS)
        return [replace(report, bucket_rows=BucketRows.of(rows[report.instance])) for report in reports]

    def reports(
        self, rows: Floats, work: Floats, table: RoutingTable, keys: Sequence[KeysAt], batch: Batch, seen: Hashes
    ) -> list[LoadReport]:
        """The reports of all instances, with the heavy ones of their `keys`, rows per bucket and state."""
        held = self.sums(table.lookup(seen)).astype(np.int64)
        detailed: list[LoadReport] = []
        for report, here in zip(self._reports(rows, work), keys, strict=True):
            heavy, light = _heavy_and_light(here.rows)
            speed = self.site.cpu[report.slot]
            light_keys = batch.keys[here.positions[light]]
            detailed.append(
                replace(
                    report,
                    state_keys=int(held[report.instance]) if self.site.stateful else 0,
                    state_bytes=int(held[report.instance]) * self._state_bytes,
                    heavy_hashes=batch.keys[here.positions[heavy]],
                    heavy_rows=here.rows[heavy],
                    heavy_seconds=here.work[heavy] / speed if batch.times_keys else np.zeros(len(heavy)),
                    heavy_bytes=np.full(len(heavy), self._state_bytes, np.int64),
                    heavy_labels=("",) * len(heavy),
                    bucket_rows=BucketRows.of_keys(light_keys, here.rows[light], BUCKETS),
                )
            )
        return detailed

    def _judge(self, seconds: float, reports: Sequence[LoadReport], seen: Hashes, best_seconds: float) -> None:
        """Let the batch's time pass, and re-route where the controller says so."""
        wanted = self.site.rebalance
        interval = min(wanted.interval_seconds, JUDGED_BATCHES * best_seconds)
        self.controller.configure(replace(wanted, mode="Auto", interval_seconds=interval))
        self._now += seconds
        self._feed.take(CommittedBatch(len(self._played), self._epoch.number, seconds, reports))
        decision = self.controller.step(self._now, self._epoch, self.facts)
        if not isinstance(decision, Reroute):
            return
        before, after = self.route.table, decision.epoch.routes[self.site.operator].table
        if before is not None and after is not None and self._spec.kind == "table":
            self._keys_moved += int(np.count_nonzero(moved(before, after, seen)[0]))
        self._epoch = decision.epoch
        self._rows_given[:] = 0  # as the driver forgets what was given by other shares
        self._rerouted_at.append(len(self._played))


def last_third(values: Sequence[_T]) -> Sequence[_T]:
    """The last third, at least one: when what was to be re-routed has been."""
    return values[-max(1, len(values) // 3) :]


def _heavy_and_light(rows: Counts) -> tuple[Counts, Counts]:
    """An instance's keys (positions in `rows`, int64) divided: the heaviest, in order, and all others."""
    threshold = SEEN_IN_SAMPLE * max(1, int(rows.sum()) // SAMPLE)
    often = np.flatnonzero(rows >= threshold)
    heavy = np.sort(often[np.argsort(-rows[often], kind="stable")[:HEAVY_KEYS]])
    return heavy, np.setdiff1d(np.arange(len(rows)), heavy, assume_unique=True)


def holders(batch: Batch, chosen: Instances, parallelism: int) -> npt.NDArray[np.bool_]:
    """bool[m, parallelism]: the instances that each key of the batch went to."""
    held = np.zeros((len(batch.keys), parallelism), np.bool_)
    held[batch.key_of, chosen] = True
    return held
