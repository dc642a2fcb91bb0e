"""The state store and the hand-over of state against a dictionary, with deaths between any two file operations.

What runs is the real thing: checkpoint, records, retention, leases, copies, the workers' caches, the runs of instances,
the hand-over in stage 0, the driver's rule for when a copy may be used. The driver's loop and Spark are not part of it;
a disk in memory is. A history is a handful of batches, re-routings, copies, compactions and sweeps; a death may come in
any of them.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from support.depth import examples
from support.dying import DyingDisk
from support.reasons import BY_TEST
from support.stages import manifest, random_table

from streamtopology.api import Rows
from streamtopology.jobs.checkpoint import BatchRecord, Checkpoint, CommitRecord, Header, Lease, LocalStore, StateRef
from streamtopology.jobs.checkpoint.records import to_bytes
from streamtopology.jobs.checkpoint.retention import HEADER
from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.driver.commit import state_after
from streamtopology.jobs.exchange.downstream_counts import DownstreamCounts
from streamtopology.jobs.exchange.envelope import EnvelopeKind, sections
from streamtopology.jobs.exchange.outbox import Outbox
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.plan.dag import Dag, compile_dag
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.plan.results import InstanceResult, Results
from streamtopology.jobs.rerouting.gradual import GradualSwitching
from streamtopology.jobs.rerouting.precopy_job import LeaseReleased, migrate
from streamtopology.jobs.state import Ownership, decode
from streamtopology.jobs.state.schema import DELETED
from streamtopology.jobs.worker.attempt_context import AttemptContext
from streamtopology.jobs.worker.cache import WorkerCache
from streamtopology.jobs.worker.handover import send_moving_state
from streamtopology.jobs.worker.instance_run import InstanceRun
from streamtopology.lab.faults.scheduler import Died
from streamtopology.routing.epochs.epoch import Epoch, Route
from streamtopology.routing.epochs.gradual_switch import mixed_epoch
from streamtopology.routing.epochs.switch_progress import GradualSwitch
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.table import RoutingTable
from streamtopology.topology import parse

INSTANCES = 3
KEYS = 12
# A batch is a second.
TTL_BATCHES = 3
ROOT = Path("/checkpoint")
EXPIRING = """
import numpy as np
import pyarrow as pa
from streamtopology.api import Field, Operator

class Expiring(Operator):
    \"\"\"Counts, and forgets a key whose row says so.\"\"\"
    fields = (Field("count", np.int64),)

    def process(self, rows, state):
        np.add.at(state.column("count"), state.slots(rows.keys), 1) if len(rows) else None
        forget = rows.take(np.flatnonzero(rows.column("v").to_numpy() == 0))
        if len(forget):
            state.delete(state.find(forget.keys))
"""


def compiled(folder: Path) -> Dag:
    (folder / "expiring.py").write_text(EXPIRING)
    operator = {"name": "n", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "expiring.py:Expiring",
                "parallelism": INSTANCES, "with": {"ttl": TTL_BATCHES}}  # fmt: skip
    given = manifest([operator], {"s": "k BIGINT, v BIGINT"})
    given["spec"]["sinks"] = []
    return compile_dag(parse(given), {"s": pa.schema({"k": pa.int64(), "v": pa.int64()})}, folder)


class PlannedCache(WorkerCache):
    """A cache whose plans are given; everything else it reads from the life's checkpoint."""

    def __init__(self, life: Life) -> None:
        super().__init__()
        self._life = life

    def checkpoint(self, uri: str) -> Checkpoint:
        return self._life.checkpoint

    def plan_of(self, attempt: Attempt, epoch: int) -> ExecutionPlan:
        return cast(ExecutionPlan, PlanOf(self._life.epochs[epoch]))

    def dag_of(self, attempt: Attempt, epoch: int) -> Dag:
        return self._life.dag


@dataclass
class PlanOf:
    """As much of a plan as is asked for."""

    epoch: Epoch
    forgotten_until: Mapping[str, float] = field(default_factory=dict[str, float])

    def mixed_with(self, before: PlanOf, switch: GradualSwitch | None) -> PlanOf:
        return self if switch is None else PlanOf(mixed_epoch(before.epoch, self.epoch, switch))

    def compile(self) -> Dag:
        return DAG


class Life:
    """A driver and its workers, from the checkpoint as the last ones left it, until they die."""

    def __init__(self, disk: DyingDisk, dag: Dag, epochs: dict[int, Epoch]) -> None:
        store = LocalStore(ROOT, disk)
        self.checkpoint = Checkpoint(store, Header("flow", "run"))
        store.create(HEADER, to_bytes(Header("flow", "run")))
        self.dag, self.node = dag, dag.node("n")
        self.epochs = epochs
        self.last = self.checkpoint.resume()
        self.workers = [PlannedCache(self) for _ in range(INSTANCES)]
        self.active = self.last.epoch if self.last else 1
        self.switching = SomePortions(self.checkpoint, lambda text: None)
        self.waiting: tuple[StateRef, str, int] | None = None

    def batch(self, rows: Sequence[tuple[int, int]]) -> None:
        """One attempt at the next batch, to its commit."""
        number = 0 if self.last is None else self.last.batch + 1
        tried = self.checkpoint.batch_records(number)
        asked = self.epochs[tried[-1].epoch if tried else self.active]
        attempt = self._attempt(number, 1 + max((record.attempt for record in tried), default=0), asked)
        epoch = self.epoch_of(attempt.epoch, attempt.switch)
        self.checkpoint.record(BatchRecord(number, attempt.attempt, epoch.number, number, None, {}, {}))
        moved = self._hand_over(attempt, epoch)
        instances = [
            self._run_instance(attempt, epoch, instance, rows, moved.get(instance, [])) for instance in range(INSTANCES)
        ]
        state = self._adopt(state_after(self.last, Results(instances=instances), epoch, self.dag.stateful))
        commit = CommitRecord(
            number, attempt.attempt, epoch.number, number, state, {}, None, {}, len(rows), switch=attempt.switch
        )
        assert self.checkpoint.commit(commit)
        self.last, self.active = commit, epoch.number
        self.checkpoint.precopies.release_up_to(commit.epochs[0])

    def epoch_of(self, number: int, switch: GradualSwitch | None) -> Epoch:
        """The routing of a batch at this point of the switch to the epoch of this number."""
        return self.epochs[number] if switch is None else mixed_epoch(self.epochs[switch.follows], self.epochs[number], switch)

    def compact(self, instance: int) -> None:
        """As compaction does in the background: a snapshot of what the newest commit names, for a later one to name."""
        if self.last is None or self.checkpoint.precopies.leases():
            return
        reference = self.last.state.get("n", {}).get(instance)
        if reference is not None and reference.deltas:
            assert self.node.state is not None
            self.waiting = reference, self.checkpoint.compact(reference, self.node.state), instance

    def _adopt(self, state: dict[str, dict[int, StateRef]]) -> dict[str, dict[int, StateRef]]:
        if self.waiting is not None:
            covered, snapshot, instance = self.waiting
            state["n"][instance] = state["n"][instance].compacted(snapshot, covered)
            self.waiting = None
        return state

    def _attempt(self, number: int, attempt: int, epoch: Epoch) -> Attempt:
        plan = cast(ExecutionPlan, PlanOf(epoch))
        before = None if self.last is None else cast(ExecutionPlan, PlanOf(self.epochs[self.last.epoch]))
        self.switching.pace.portions = 1 + number % 2
        switch = self.switching.of_batch(self.last, before, plan)
        previous = None if self.last is None else (self.last.batch, self.last.attempt)
        partitions = tuple(range(INSTANCES))
        return Attempt(
            "run", self.checkpoint.uri, number, attempt, epoch.number, self.last.epoch if self.last else None, previous,
            partitions, partitions, recorded_at=1_000.0 + number,
            precopied_at=self.switching.copied_at(self.last, plan), switch=switch,
            previous_switch=self.last.switch if self.last else None,
        )  # fmt: skip

    def _hand_over(self, attempt: Attempt, epoch: Epoch) -> dict[int, list[pa.RecordBatch]]:
        """Stage 0 at every partition: the state handed over to each instance."""
        moved: dict[int, list[pa.RecordBatch]] = {}
        for partition, cache in enumerate(self.workers if attempt.hands_over else ()):
            outbox = Outbox(attempt, epoch, self.dag, order=partition)
            send_moving_state(AttemptContext(attempt, partition, cache), outbox)
            for section in itertools.chain.from_iterable(sections(envelope) for envelope in outbox.envelopes()):
                if section.kind is EnvelopeKind.MOVED:
                    moved.setdefault(section.instance, []).append(section.batch())
        return moved

    def _run_instance(
        self, attempt: Attempt, epoch: Epoch, instance: int, rows: Sequence[tuple[int, int]], moved: list[pa.RecordBatch]
    ) -> InstanceResult:
        table = epoch.routes["n"].table
        assert table is not None
        owners = table.lookup(hash_int64(np.array([key for key, _ in rows], np.int64)))
        mine = [row for row, owner in zip(rows, owners, strict=True) if owner == instance]
        batch = pa.record_batch(
            {"k": pa.array([k for k, _ in mine], pa.int64()), "v": pa.array([v for _, v in mine], pa.int64())}
        )
        return InstanceRun(
            AttemptContext(attempt, instance, self.workers[instance]).instance(self.node, instance),
            arrivals=[Rows(batch, "s", KeyColumns.from_arrow(batch, ["k"]))],
            moved_in=moved,
            route_on=lambda emitted: None,
            downstream=DownstreamCounts(self.dag, self.node),
        ).run()


# Of each key its count, and the newest batch that had a row of it.
Counts = Mapping[int, tuple[int, int]]


def after(counts: Counts, rows: Sequence[tuple[int, int]], batch: int) -> Counts:
    """The dictionary's batch: all rows are counted; then keys with a zero are forgotten, and those that had no row for long."""
    counted = dict(counts)
    for key, _ in rows:
        counted[key] = counted.get(key, (0, 0))[0] + 1, batch
    for key in {key for key, value in rows if value == 0}:
        del counted[key]
    return {key: (count, last) for key, (count, last) in counted.items() if last > batch - TTL_BATCHES}


# The file operation at which a process dies, and the seed of a power loss (None: the power stays on).
deaths = st.one_of(st.none(), st.none(), st.tuples(st.integers(0, 60), st.one_of(st.none(), st.integers(0, 9))))

some_rows = st.lists(st.tuples(st.integers(0, KEYS - 1), st.integers(0, 3)), max_size=6)

FIRST_ROWS = [(key, 1) for key in range(0, KEYS, 2)]

# Different first epochs; what follows has more of them.
BEGINNINGS = 60


def portions_of_epoch(number: int) -> int:
    """One to four."""
    return 1 + number * 7 % 4


class SomePortions(GradualSwitching):
    """As many as the epoch's number says, however much moves."""

    def _portions(self, before: ExecutionPlan, plan: ExecutionPlan, last: CommitRecord) -> int:
        copied = self.copied_at(last, plan) is not None
        return portions_of_epoch(plan.epoch.number) if copied or last.switch is None else 1


def random_epoch(random: np.random.Generator, number: int) -> Epoch:
    table = random_table(random, INSTANCES, hash_int64(np.arange(KEYS)))
    return Epoch(number, {"n": Route("mixed", table, tuple(range(INSTANCES)))}, (), BY_TEST)


@functools.cache
def _begun(seed: int) -> tuple[DyingDisk, Epoch, np.random.Generator]:
    disk, random = DyingDisk(), np.random.default_rng(seed)
    first = random_epoch(random, 1)
    Life(disk, DAG, {1: first}).batch(FIRST_ROWS)
    return disk, first, random


def begun(seed: int) -> tuple[DyingDisk, Epoch, np.random.Generator]:
    """The disk after a first batch, its epoch, and chance, all one's own: to run that batch in every history would take a sixth
    of all time."""
    disk, first, random = _begun(seed)
    return disk.copy(), first, copy.deepcopy(random)


@functools.lru_cache(maxsize=20_000)
def read_plainly(files: tuple[bytes, ...]) -> Mapping[int, int]:
    """The counts that a chain of state files says, read without the state store: row by row, each file once."""
    if not files:
        return {}
    counts = dict(read_plainly(files[:-1]))
    rows = decode(files[-1], "a file")
    ownership = Ownership.of(rows)
    if ownership is not None:
        strangers = ownership.strangers(hash_int64(np.array(list(counts), np.int64)))
        counts = {key: count for (key, count), gone in zip(counts.items(), strangers.tolist(), strict=True) if not gone}
    output = rows.to_pydict()
    dead = output.get(DELETED, [False] * rows.num_rows)
    for key in (key for key, gone in zip(output["k"], dead, strict=True) if gone):
        counts.pop(key, None)
    counts.update((key, count) for key, count, gone in zip(output["k"], output["count"], dead, strict=True) if not gone)
    return counts


# The content of all of them together.
HISTORIES = Counter[str]()


class StateAgainstADictionary(RuleBasedStateMachine):
    """`expected` is what every committed batch made of the dictionary, by batch number."""

    @initialize(seed=st.integers(0, BEGINNINGS - 1))
    def begin(self, seed: int) -> None:
        """A batch is committed, and everything has stopped."""
        HISTORIES["histories"] += 1
        self.disk, first, self.random = begun(seed)
        self.epochs = {1: first}
        self.expected: dict[int, Counts] = {-1: {}, 0: after({}, FIRST_ROWS, 0)}
        self.life = Life(self.disk, DAG, self.epochs)
        self.prepared: int | None = None
        self.check(1)

    def epoch(self, number: int) -> Epoch:
        return random_epoch(self.random, number)

    def may_prepare(self) -> bool:
        last = self.life.last
        return last is not None and self.life.active == last.epoch and last.switch is None and not self.prepared

    def new_epoch(self) -> int:
        number = 1 + max(self.epochs)
        self.epochs[number] = self.epoch(number)
        return number

    def facing(self, death: tuple[int, int | None] | None, act: Callable[[], object]) -> bool:
        """True if `act` was survived; else the next life begins with the content of the disk."""
        self.disk.die_after(None if death is None else death[0])
        try:
            act()
        except Died:
            HISTORIES["deaths"] += 1
            self.disk.die_after(None)
            if death is not None and death[1] is not None:
                self.disk.cut_power(death[1])
            self.restart()
            return False
        self.disk.die_after(None)
        return True

    def restart(self) -> None:
        self.life = Life(self.disk, DAG, self.epochs)
        if self.prepared is not None and self.life.checkpoint.precopies.lease(self.prepared) is None:
            self.prepared = None

    @rule(rows=some_rows, death=deaths)
    def batch(self, rows: list[tuple[int, int]], death: tuple[int, int | None] | None) -> None:
        before = -1 if self.life.last is None else self.life.last.batch
        self.expected[before + 1] = after(self.expected[before], rows, before + 1)
        survived = self.facing(death, lambda: self.life.batch(rows))
        now = -1 if self.life.last is None else self.life.last.batch
        assert now == before + 1 if survived else now in (before, before + 1)
        HISTORIES["batches"] += 1
        if not survived:
            self.check(1)

    @rule()
    def reroute(self) -> None:
        self.life.active = self.new_epoch()
        self.prepared = None

    @precondition(lambda self: self.may_prepare())
    @rule(death=deaths)
    def prepare(self, death: tuple[int, int | None] | None) -> None:
        last = self.life.last
        assert last is not None
        number = self.new_epoch()
        lease = Lease(number, last.batch, last.epoch, portions_of_epoch(number))
        if self.facing(death, lambda: self.life.checkpoint.precopies.take(lease)):
            self.prepared = number

    @precondition(lambda self: self.prepared)
    @rule(death=deaths)
    def copy(self, death: tuple[int, int | None] | None) -> None:
        number = self.prepared
        assert number is not None
        self.facing(death, lambda: self.copied(number))

    def copied(self, number: int) -> None:
        plan = cast(ExecutionPlan, PlanOf(self.epochs[number]))
        try:
            migrate(self.life.checkpoint, number, lambda text: None, lambda checkpoint, epoch: plan)
            HISTORIES["copies"] += 1
        except LeaseReleased:
            assert self.life.checkpoint.precopies.lease(number) is None

    @precondition(lambda self: self.may_prepare())
    @rule(between=st.lists(some_rows, max_size=3), when=st.integers(0, 3), rows=some_rows, at=st.integers(0, 5), death=deaths)
    def move_by_copy(
        self,
        between: list[list[tuple[int, int]]],
        when: int,
        rows: list[tuple[int, int]],
        at: int,
        death: tuple[int, int | None] | None,
    ) -> None:
        """From the lease to the first batch under the new epoch; a death may come in one of the steps."""
        steps: list[Callable[[tuple[int, int | None] | None], object]] = [self.prepare]
        steps += [lambda death, rows=rows: self.batch(rows, death) for rows in between]
        steps.insert(1 + min(when, len(between)), self.copy)
        steps += [lambda death: self.switch(), lambda death: self.batch(rows, death)]
        for number, step in enumerate(steps):
            if number and not self.prepared and number < len(steps) - 1:
                continue  # a death has ended it
            step(death if number == at else None)

    @precondition(lambda self: self.prepared)
    @rule()
    def switch(self) -> None:
        """The prepared epoch runs from the next batch on, with as much of its copy as there is."""
        assert self.prepared is not None
        self.life.active, self.prepared = self.prepared, None

    @precondition(lambda self: self.prepared)
    @rule(death=deaths)
    def give_up(self, death: tuple[int, int | None] | None) -> None:
        number, self.prepared = self.prepared, None
        assert number is not None
        self.facing(death, lambda: self.life.checkpoint.precopies.release(number))

    @rule(instance=st.integers(0, INSTANCES - 1), death=deaths)
    def compact(self, instance: int, death: tuple[int, int | None] | None) -> None:
        self.facing(death, lambda: self.life.compact(instance))

    @rule(death=deaths)
    def sweep(self, death: tuple[int, int | None] | None) -> None:
        self.facing(death, lambda: self.life.checkpoint.collect_garbage(keep_commits=2))
        self.check(2)

    @rule(instance=st.integers(0, INSTANCES - 1))
    def a_worker_forgets(self, instance: int) -> None:
        self.life.workers[instance] = PlannedCache(self.life)

    @rule(cut=st.one_of(st.none(), st.integers(0, 9)))
    def everything_stops(self, cut: int | None) -> None:
        if cut is not None:
            self.disk.cut_power(cut)
        self.restart()

    def check(self, newest: int) -> None:
        """The files of the `newest` commits say what the dictionary says, each key at its owner.

        Not after every batch: what goes wrong in one stays wrong in all that follow. Read plainly: what the store itself makes
        of them is seen in a worker's next turn, and at the end of every history.
        """
        for number in self.life.checkpoint.commits()[-newest:]:
            commit = self.life.checkpoint.read_commit(number)
            table = self.life.epoch_of(commit.epoch, commit.switch).routes["n"].table
            found = dict(self.counts(commit, table, self.plainly))
            assert found == self.counts_expected(number), f"after batch {number}"

    def counts_expected(self, batch: int) -> Mapping[int, int]:
        return {key: count for key, (count, _) in self.expected[batch].items()}

    def counts(
        self, commit: CommitRecord, table: RoutingTable | None, read: Callable[[StateRef], Mapping[int, int]]
    ) -> Iterator[tuple[int, int]]:
        assert table is not None
        for instance, reference in commit.state.get("n", {}).items():
            counts = read(reference)
            assert (table.lookup(hash_int64(np.array(list(counts), np.int64))) == instance).all()
            yield from counts.items()

    def plainly(self, reference: StateRef) -> Mapping[int, int]:
        return read_plainly(tuple(map(self.life.checkpoint.read, reference.paths)))

    def by_the_store(self, reference: StateRef) -> Mapping[int, int]:
        assert self.life.node.state is not None
        rows = self.life.checkpoint.load_state(reference, self.life.node.state).snapshot()
        return dict(zip(rows["k"].to_pylist(), rows["count"].to_pylist(), strict=True))

    def teardown(self) -> None:
        """The content is right. In every sixth history: after a sweep, only the files of the last two commits are left."""
        if not hasattr(self, "life") or self.life.last is None:
            return
        self.check(1)
        last = self.life.checkpoint.read_commit(self.life.last.batch)
        table = self.life.epoch_of(last.epoch, last.switch).routes["n"].table
        assert dict(self.counts(last, table, self.by_the_store)) == self.counts_expected(last.batch)
        if HISTORIES["histories"] % 6:
            return
        for lease in self.life.checkpoint.precopies.leases():
            self.life.checkpoint.precopies.release(lease.epoch)
        for _ in range(3):
            batch = self.life.last.batch
            self.expected[batch + 1] = after(self.expected[batch], [], batch + 1)
            self.life.batch([])
        self.check(2)
        self.life.checkpoint.collect_garbage(keep_commits=2)
        kept = [self.life.checkpoint.read_commit(number) for number in self.life.checkpoint.commits()]
        needed = set[str]().union(*(commit.paths() for commit in kept))
        state = {path for path in self.life.checkpoint.files("state") if path.endswith(".delta")}
        assert state <= needed


@pytest.mark.deep
def test_state_against_a_dictionary(tmp_path_factory: Any) -> None:
    global DAG
    DAG = compiled(tmp_path_factory.mktemp("operator"))
    run_state_machine_as_test(
        StateAgainstADictionary, settings=settings(max_examples=examples(gate=200, long=900), stateful_step_count=10)
    )
    print(dict(HISTORIES))


DAG: Dag
