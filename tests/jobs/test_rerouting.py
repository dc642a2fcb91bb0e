"""The control loop in the driver's process: when an epoch is ready, active, waiting, and its reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.stages import SLOTS, Flow, manifest

from streamtopology.contract.reasons import SOURCE, EpochCause, EpochReason, HoldReason, RemedyKind, StageReason
from streamtopology.contract.stats import read_stats
from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.stats import build_stats
from streamtopology.jobs.plan.dag import compile_dag
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.plan.initial_routes import first_routes
from streamtopology.jobs.plan.results import Results, SourceResult
from streamtopology.jobs.plan.span import Span
from streamtopology.jobs.rerouting.port import CommittedAttempt
from streamtopology.jobs.rerouting.router import InProcessRouter, predicted_gains
from streamtopology.jobs.runtime.topology_run import new_history
from streamtopology.routing.control.controller import Controller
from streamtopology.routing.control.decisions import Reroute
from streamtopology.routing.control.part_seconds import ENOUGH
from streamtopology.routing.epochs.epoch import Epoch, Route
from streamtopology.routing.epochs.placement import Placement
from streamtopology.routing.epochs.rescaling import slot_names
from streamtopology.routing.load.bucket_rows import BucketRows
from streamtopology.routing.load.load_report import SourceReport
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.table import RoutingTable
from streamtopology.topology import parse

ROWS = pa.table({"k": np.arange(40) % 10})


def given(policy: str = "mixed", every: int = 3, mode: str = "Off") -> dict[str, Any]:
    counts: dict[str, Any] = {
        "name": "counts", "inputs": ["s"], "grouping": {"policy": policy, "key": "k"}, "run": "count",
    }  # fmt: skip
    if policy == "partial-key":
        counts["aggregateEvery"] = every
    return manifest([counts], {"s": "k BIGINT"}, rebalance={"mode": mode})


class Listening(InProcessRouter):
    """Keeps the batch it heard of last, as a model for batches that the test makes up."""

    def committed(self, done: CommittedAttempt) -> None:
        self.heard = done
        super().committed(done)


class Routed:
    """A flow under the real router; `now` is its clock."""

    def __init__(self, folder: Path, spec: dict[str, Any], decides: bool = True) -> None:
        self.now, self.decides = 0.0, decides
        self.flow = Flow(folder, spec, router=self._router)

    @property
    def router(self) -> Listening:
        assert isinstance(self.flow.router, Listening)
        return self.flow.router

    def _router(self, plan: ExecutionPlan, checkpoint: Checkpoint) -> Listening:
        self.history: History = new_history(plan.topology)
        controller = Controller(plan.topology.rebalance, self._clock)
        return Listening(plan, checkpoint, controller, self.history, dict, self._clock, self.decides)

    def _clock(self) -> float:
        return self.now

    def apply(self, spec: dict[str, Any]) -> int:
        return self.router.apply(parse(spec), ["the test says so"])

    def batch(self, meanwhile: Callable[[], object] = lambda: None) -> tuple[int, bool]:
        """One batch of ROWS: its epoch, and whether its partials were asked to hand over."""
        self.flow.meanwhile = [meanwhile]
        flush = self.router.must_flush()
        return self.flow.batch(s=ROWS).epoch, flush

    def counted(self) -> dict[int, int]:
        """Rows of every key, merged or still with a partial."""
        total: Counter[int] = Counter()
        nodes = {node.name for node in self.flow._plan().compile().nodes}
        for row in (row for node in nodes for row in self.flow.state(node)):
            total[row["k"]] += row["count"]
        return dict(total)


@pytest.fixture
def mixed(tmp_path: Path) -> Routed:
    return Routed(tmp_path, given("mixed"))


@pytest.fixture
def split(tmp_path: Path) -> Routed:
    return Routed(tmp_path, given("partial-key"))


def test_a_policy_changes_under_way_and_back_with_every_tuple_counted_once(mixed: Routed) -> None:
    policies = {2: "partial-key", 5: "mixed", 8: "partial-key", 9: "fields"}
    for number in range(13):
        if number in policies:
            mixed.apply(given(policies[number]))
        mixed.batch()
        assert mixed.counted() == dict.fromkeys(range(10), 4 * (number + 1))
    assert [node.name for node in mixed.router.ready().compile().nodes] == ["counts"]


def test_published_plan_is_ready_at_once_and_active_with_its_first_batch(mixed: Routed) -> None:
    mixed.batch()
    number = mixed.apply(given("partial-key"))
    assert ExecutionPlan.from_json(mixed.flow.checkpoint.read_epoch(number)) == mixed.router.ready()
    assert (mixed.router.ready().epoch.number, mixed.router.epoch.number) == (number, 1)
    mixed.batch()
    assert mixed.router.epoch.number == number


def test_a_plan_without_partials_waits_for_one_batch_that_flushes(split: Routed) -> None:
    split.batch()
    split.batch()
    number = split.apply(given("mixed"))
    assert split.batch() == (1, True)
    assert split.flow.state("counts.partial") == []
    assert split.batch() == (number, False)


def test_plan_published_during_a_batch_waits_for_the_next_to_flush(split: Routed) -> None:
    split.batch()
    assert split.batch(meanwhile=lambda: split.apply(given("mixed"))) == (1, False)
    assert split.batch() == (1, True)
    assert split.batch() == (2, False)
    assert split.counted() == dict.fromkeys(range(10), 16)


def test_a_newer_plan_takes_the_place_of_one_that_waits(split: Routed) -> None:
    split.batch()
    split.apply(given("mixed"))
    kept = split.apply(given("partial-key", mode="Recommend"))
    assert [split.batch(), split.batch()] == [(kept, False), (kept, False)]
    assert split.counted() == dict.fromkeys(range(10), 12)


def test_a_restart_that_would_lose_what_partials_hold_is_refused(split: Routed) -> None:
    split.batch()
    split.batch()
    with pytest.raises(TopologyFailed, match="hold tuples back"):
        split.flow.start(given("mixed"))
    split.flow.start(given("partial-key"))
    split.batch()
    split.batch()  # batch 3 flushes
    split.flow.start(given("mixed"))
    split.batch()
    assert split.counted() == dict.fromkeys(range(10), 20)


def skewed(routed: Routed, number: int, busy: list[float]) -> CommittedAttempt:
    """A batch under the active epoch whose instances were busy for so long, with three heavy keys each."""
    heard, epoch = routed.router.heard, routed.router.epoch
    buckets = epoch.routes["counts"].table.buckets
    instances = []
    for result in heard.results.instances:
        instance = result.report.instance
        seconds = busy[instance]
        report = replace(
            result.report, rows=int(1000 * seconds), busy_seconds=seconds, task_seconds=seconds + 0.01,
            heavy_hashes=np.sort(hash_int64(np.arange(3) + 10 * instance)), heavy_rows=np.full(3, int(200 * seconds)),
            heavy_seconds=np.zeros(3), heavy_bytes=np.full(3, 50), heavy_labels=("a", "b", "c"),
            bucket_rows=BucketRows.of(np.where(buckets == instance, int(400 * seconds / 1024), 0)),
        )  # fmt: skip
        instances.append(replace(result, report=report))
    source_tasks = [
        SourceResult(SourceReport(slot, 1000, 0.05, 0.06, {}), Span("boot", 0.0, routed.now)) for slot in range(SLOTS)
    ]
    attempt = replace(heard.attempt, number=number, epoch=epoch.number, previous_epoch=epoch.number)
    return CommittedAttempt(attempt, Results(instances, source_tasks), 4000, max(busy) + 0.1, routed.now)


SKEWED = [2.0, 0.5, 0.5, 0.5]


@pytest.mark.parametrize(("mode", "recommendations"), [("Recommend", 1), ("Off", 0)])
def test_imbalance_changes_nothing_unless_rebalance_is_auto(tmp_path: Path, mode: str, recommendations: int) -> None:
    routed = Routed(tmp_path, given("mixed", mode=mode))
    routed.batch()
    for number in range(1, 12):
        routed.now += 2.0
        routed.router.committed(skewed(routed, number, SKEWED))
    assert routed.flow.checkpoint.epochs() == [1]
    assert (routed.history.hold is not None and routed.history.hold.reason is HoldReason.OFF) == (mode == "Off")
    assert routed.history.batches[-1].bound == routed.router.bound() > 0
    reported = [event for event in routed.history.events if event.text.startswith("recommended")]
    assert len(reported) == recommendations


def test_imbalance_becomes_an_epoch_and_what_it_did_is_reported(tmp_path: Path) -> None:
    routed = Routed(tmp_path, given("mixed", mode="Auto"))
    routed.batch()
    for number in range(1, 12):  # long enough for a second judgement, were it not for the epoch that is not active yet
        routed.now += 2.0
        routed.router.committed(skewed(routed, number, SKEWED))
    ready = routed.router.ready().epoch
    assert routed.flow.checkpoint.epochs() == [1, 2]
    assert ExecutionPlan.from_json(routed.flow.checkpoint.read_epoch(2)).epoch == ready
    assert ready.routes["counts"].table != routed.router.epoch.routes["counts"].table
    routed.router.active(2, 12)
    first = skewed(routed, 12, [1.0, 0.9, 0.9, 0.9])
    moved = replace(first.results, keys_moved={"counts": 12}, bytes_moved={"counts": 600})
    routed.router.committed(replace(first, attempt=replace(first.attempt, previous=(11, 1), previous_epoch=1), results=moved))
    (reported,) = [reported for reported in routed.history.reconfigurations if reported.operator == "counts"]
    assert (reported.epoch, reported.batch, reported.keys_moved, reported.bytes_moved) == (2, 12, 12, 600)
    assert 0 < reported.published_to_active_seconds < 22
    assert reported.predicted_gain > 0


@pytest.mark.parametrize("decides", [True, False])
def test_bound_of_the_batches_is_known_wherever_they_are_judged(tmp_path: Path, decides: bool) -> None:
    routed = Routed(tmp_path, given("mixed", mode="Recommend"), decides)
    routed.batch()
    for number in range(1, 12):
        routed.now += 2.0
        routed.router.committed(skewed(routed, number, SKEWED))
    bound = routed.history.binding
    assert bound is not None
    assert bound.stage == "counts"
    routed.apply(given("mixed", mode="Off"))
    assert routed.history.binding is None


def test_measured_merging_reaches_paces_and_stats(tmp_path: Path) -> None:
    routed = Routed(tmp_path, given("auto"))
    for _ in range(2):
        routed.flow.batch(s=pa.table({"k": np.arange(4000)}))
    heard, plan = routed.router.heard, routed.router.ready()
    assert (routed.history.part_seconds, build_stats(routed.history).get("part_seconds")) == ({}, None)

    def scouts_beyond() -> float:
        return routed.router.paces(plan)["counts"].scouts_beyond

    before = scouts_beyond()
    for _ in range(ENOUGH):
        slow = [replace(one, report=replace(one.report, parts_merged=1, merge_seconds=0.5)) for one in heard.results.instances]
        routed.router.committed(replace(heard, results=replace(heard.results, instances=slow)))
    seconds = build_stats(routed.history)["part_seconds"]["counts"]
    assert read_stats(build_stats(routed.history)).part_seconds == {"counts": seconds}
    assert 0.1 < seconds <= 1.0
    assert routed.router._facts().splitting["counts"].seconds == seconds
    assert scouts_beyond() > 2 * before


@pytest.mark.parametrize("rate", [0.0, np.nan, np.inf])
def test_rows_go_to_their_homes_where_a_capacity_is_no_number(tmp_path: Path, rate: float) -> None:
    routed = Routed(tmp_path, given("auto"))
    for _ in range(2):
        routed.flow.batch(s=pa.table({"k": np.arange(4000)}))
    model, plan = routed.router._model, routed.router.ready()
    assert model is not None
    assert "counts" in routed.router.paces(plan)
    rates = model.rates["counts"].copy()
    rates[2] = rate
    routed.router._model = replace(model, rates={**model.rates, "counts": rates})
    assert not routed.router.paces(plan)


def test_gain_that_no_plan_has_is_of_stages_with_rows_in_other_shares() -> None:
    shares = tuple(StageReason(RemedyKind.SHARES, name, 0.3) for name in (SOURCE, "counts.partial"))
    epoch = Epoch(2, {}, (), EpochReason(EpochCause.REBALANCED, shares))
    gains = predicted_gains(Reroute(epoch, {}, predicted_gain_seconds=0.4, cost_seconds=0.3), usual_seconds=2.0)
    assert gains == pytest.approx({SOURCE: 0.1, "counts.partial": 0.1})
    assert predicted_gains(Reroute(replace(epoch, reason=EpochReason(EpochCause.TAKEN_BACK)), {}, 0.4, 0.3), 2.0) == {}


def test_a_judgement_never_takes_the_number_of_a_plan_that_was_applied_meanwhile(tmp_path: Path) -> None:
    routed = Routed(tmp_path, given("mixed", mode="Auto"))
    routed.batch()
    number = routed.apply(given("mixed", mode="Auto"))
    for batch in range(1, 12):  # the running batches are still under the former epoch
        routed.now += 2.0
        routed.router.committed(skewed(routed, batch, SKEWED))
    assert routed.router.ready().epoch.number == number
    assert routed.flow.checkpoint.epochs() == [1, number]


def routes_after(known: dict[str, Route]) -> dict[str, Route]:
    topology = parse(given("mixed"))
    dag = compile_dag(topology, {"s": pa.schema([("k", pa.int64())])}, Path())
    return first_routes(dag, topology, known, Placement.first(slot_names(topology), SLOTS), SLOTS)


def test_first_routes_keep_tables_that_still_fit() -> None:
    table = RoutingTable.uniform([0, 1, 2, 3], seed=5)
    known = {"counts": Route("fields", table, (0, 1, 2, 3), {})}
    assert routes_after(known)["counts"].table == table
    assert routes_after(known)["counts"].policy == "mixed"
    narrower = RoutingTable.uniform([0, 1])
    widened = routes_after({"counts": Route("mixed", narrower, (0, 1), {})})["counts"].table
    assert widened == narrower.rescaled([0, 1, 2, 3])
