"""Executors come and go, instances are activated and drained, and no result depends on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from support.depth import deep
from support.reasons import BY_TEST
from support.stages import Flow, Loss, manifest

from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.driver.compaction import Compaction
from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.rerouting.precopy import Precopy
from streamtopology.jobs.rerouting.precopy_job import migrate
from streamtopology.jobs.rerouting.router import InProcessRouter
from streamtopology.jobs.runtime.preflight.checks import check_before_start
from streamtopology.jobs.runtime.topology_run import new_history
from streamtopology.routing.control.controller import Controller
from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.routing.epochs.placement import Placement
from streamtopology.topology import ManifestError, parse

MOST = 5


def spec(replicas: int, parallelism: int | None = None, every: int = 1, mode: str = "Auto") -> dict[str, Any]:
    """Counts by key (mixed), their groups (fields) and sums on a split edge; `parallelism` is that of the counts."""
    keyed = {"policy": "mixed", "key": "k"}
    counts: dict[str, Any] = {"name": "counts", "inputs": ["s"], "grouping": keyed, "run": "count", "with": {"emit": "tuples"}}
    if parallelism is not None:
        counts["parallelism"] = parallelism
    groups = {"name": "groups", "inputs": ["counts"], "grouping": {"policy": "fields", "key": "g"}, "run": "count"}
    sums = {
        "name": "sums", "inputs": ["s"], "grouping": {"policy": "partial-key", "key": "k"}, "aggregateEvery": every,
        "run": "aggregate", "with": {"aggregates": {"n": "count()", "total": "sum(v)"}},
    }  # fmt: skip
    executors = [{"name": "slot", "replicas": replicas, "cpu": "1"}]
    return manifest(
        [counts, groups, sums],
        {"s": "k BIGINT, g BIGINT, v BIGINT"},
        executors=executors,
        rebalance={"mode": mode},
        migration={"threshold": "64"},
    )


class Copying:
    """Stands for the pre-copy process; it copies on request."""

    def __init__(self, uri: str, epoch: int) -> None:
        self.uri, self.epoch = uri, epoch

    def copy(self) -> None:
        migrate(Checkpoint.attach(self.uri), self.epoch, lambda text: None)

    def failure(self) -> str | None:
        return None

    def stop(self) -> None:
        pass


class Scaled(Flow):
    """A flow under the real router, whose executors come when the test lets them.

    If it `copies`, whatever moves state is prepared, and waits until `copy` has copied it.
    """

    def __init__(self, folder: Path, given: Mapping[str, Any], copies: bool = False, **options: Any) -> None:
        self.copies = copies
        self.copying: list[Copying] = []
        super().__init__(folder, given, router=self._in_process, **options)

    @property
    def real(self) -> InProcessRouter:
        assert isinstance(self.router, InProcessRouter)
        return self.router

    def _in_process(self, plan: ExecutionPlan, checkpoint: Checkpoint) -> InProcessRouter:
        self.history = new_history(plan.topology)
        controller = Controller(plan.topology.rebalance, lambda: 0.0)
        precopy = Precopy(checkpoint, self._begin, self.reported.append, lambda: 0.0) if self.copies else None
        return InProcessRouter(plan, checkpoint, controller, self.history, dict, lambda: 0.0, precopy=precopy)

    def _begin(self, uri: str, epoch: int) -> Copying:
        self.copying.append(Copying(uri, epoch))
        return self.copying[-1]

    def copy(self) -> None:
        """Copy what the newest plan moves, if it waits for that."""
        if self.copying and self.checkpoint.precopies.lease(self.copying[-1].epoch) is not None:
            self.copying[-1].copy()

    def apply(self, given: Mapping[str, Any]) -> None:
        """The manifest changes; executors that are to go stay until they are needed no more."""
        self.topology = parse(dict(given))
        self.real.apply(self.topology, ["the test says so"])

    def arrive(self) -> None:
        """All executors that the topology wants are there."""
        self.slots = tuple(sorted({*self.slots, *range(self.topology.replicas)}))

    @property
    def epoch(self) -> Epoch:
        return ExecutionPlan.from_json(self.checkpoint.read_epoch(self.last.epoch)).epoch


def rows(seed: int, n: int = 150) -> pa.Table:
    random = np.random.default_rng(seed)
    keys = np.where(random.random(n) < 0.3, 3, random.integers(0, 40, n))
    return pa.table({"k": keys, "g": keys % 7, "v": random.integers(0, 100, n)})


def check(flow: Scaled, seen: Sequence[dict[str, Any]]) -> None:
    """All tuples are counted once, each key at its owner, and nothing is kept for an instance that is no more."""
    counted = flow.state("counts")
    assert {row["k"]: row["count"] for row in counted} == Counter(row["k"] for row in seen)
    assert len({row["k"] for row in counted}) == len(counted)
    assert {row["g"]: row["count"] for row in flow.state("groups")} == Counter(row["g"] for row in seen)
    totals: Counter[int] = Counter()
    for row in [*flow.state("sums.partial"), *flow.state("sums")]:
        totals[row["k"]] += row["agg_sum_v"]
    expected: Counter[int] = Counter()
    for row in seen:
        expected[row["k"]] += row["v"]
    assert totals == expected
    epoch = flow.epoch
    for node, route in epoch.routes.items():
        assert set(flow.last.state[node]) <= set(route.instances), node


steps = st.fixed_dictionaries(
    {
        "change": st.none() | st.tuples(st.integers(1, MOST), st.none() | st.integers(1, 6)),
        "late": st.booleans(),
        "copied": st.booleans(),
        "restart": st.booleans(),
        "loss": st.none() | st.tuples(st.integers(0, 3), st.integers(0, MOST - 1)),
        "forget": st.sets(st.integers(0, MOST - 1), max_size=2),
    }
)


@deep(gate=4, long=8, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.booleans(), st.sampled_from([1, 3]), st.integers(0, 1000), st.lists(steps, min_size=4, max_size=7))
def test_counts_and_sums_are_those_of_a_group_by_however_it_is_scaled(
    copies: bool, every: int, seed: int, story: Sequence[Mapping[str, Any]]
) -> None:
    with TemporaryDirectory() as folder:
        given = spec(2, every=every)
        flow, seen = Scaled(Path(folder), given, copies), list[dict[str, Any]]()
        for number, step in enumerate(story):
            if step["change"] is not None:
                given = spec(step["change"][0], step["change"][1], every)
                if not step["restart"]:
                    flow.apply(given)
            if step["restart"]:  # with the manifest as it is now, changed or not
                flow.start(given)
            if not step["late"]:
                flow.arrive()
            if step["copied"]:
                flow.copy()
            for slot in step["forget"]:
                flow.forget(slot)
            lost = step["loss"]
            flow.losses = [Loss(*lost)] if lost is not None and lost[1] in flow.slots else []
            table = rows(seed + number)
            flow.batch(s=table)
            seen += table.to_pylist()
            check(flow, seen)
        flow.arrive()
        table = rows(seed + 500)
        for _ in range(4):  # batches may have to flush and to be copied for before the plan is what was asked for
            flow.copy()
            flow.batch(s=table)
            seen += table.to_pylist()
        check(flow, seen)
        assert flow.epoch.placement is not None
        assert set(flow.epoch.placement.names) == {f"slot-{slot}" for slot in range(flow.topology.replicas)}
        flow.drain()
        assert flow.state("sums.partial") == []
        check(flow, seen)


def test_an_executor_with_much_state_goes_when_that_has_been_copied(tmp_path: Path) -> None:
    flow = Scaled(tmp_path, spec(3, mode="Off"), copies=True)
    flow.batch(s=rows(0))
    flow.apply(spec(1, mode="Off"))
    flow.batch(s=rows(1))
    assert slots_in_use(flow) == {0, 1, 2}
    flow.copy()
    flow.batch(s=rows(2))
    assert slots_in_use(flow) == {0}
    assert flow.slots == (0,)
    check(flow, [row for seed in range(3) for row in rows(seed).to_pylist()])


def slots_in_use(flow: Scaled) -> set[int]:
    return {report.slot for report in flow.history.batches[-1].reports}


def test_an_executor_that_joins_gets_work_with_the_first_batch_after_it_has_come(tmp_path: Path) -> None:
    flow = Scaled(tmp_path, spec(2, mode="Off"))
    flow.batch(s=rows(0))
    flow.apply(spec(3, mode="Off"))
    flow.batch(s=rows(1))
    assert slots_in_use(flow) == {0, 1}
    assert flow.real.awaited() == ("slot-2",)
    flow.arrive()
    flow.batch(s=rows(2))
    assert slots_in_use(flow) == {0, 1, 2}
    assert {report.instance for report in flow.history.batches[-1].reports if report.operator == "counts"} == {0, 1, 2}
    before, after = (ExecutionPlan.from_json(flow.checkpoint.read_epoch(number)).epoch for number in (1, flow.last.epoch))
    for node in ("counts", "groups", "sums"):
        old, new = before.routes[node].table, after.routes[node].table
        assert old is not None
        assert new is not None
        changed = new.buckets != old.buckets
        assert 0.3 < changed.mean() < 0.35
        assert set(new.buckets[changed].tolist()) == {2}, "only what the new instance takes moves"


def test_an_executor_goes_only_when_a_batch_without_it_is_committed(tmp_path: Path) -> None:
    flow = Scaled(tmp_path, spec(3))
    flow.batch(s=rows(0))
    flow.apply(spec(1))
    assert flow.slots == (0, 1, 2)
    flow.losses = [Loss(3, 0)]
    flow.batch(s=rows(1))
    assert slots_in_use(flow) == {0}
    assert flow.slots == (0,)
    (reported,) = [change for change in flow.history.reconfigurations if change.operator == "counts"]
    assert reported.keys_moved > 0
    check(flow, [*rows(0).to_pylist(), *rows(1).to_pylist()])


def test_partials_are_merged_before_their_executor_leaves(tmp_path: Path) -> None:
    flow = Scaled(tmp_path, spec(3, every=3))
    flow.batch(s=rows(0))
    flow.batch(s=rows(1))
    flow.apply(spec(1, every=3))
    flow.batch(s=rows(2))
    assert slots_in_use(flow) == {0, 1, 2}
    assert flow.state("sums.partial") == []
    flow.batch(s=rows(3))
    assert slots_in_use(flow) == {0}
    check(flow, [row for seed in range(4) for row in rows(seed).to_pylist()])


def test_partials_are_merged_after_a_restart_with_fewer_executors(tmp_path: Path) -> None:
    flow = Scaled(tmp_path, spec(3, every=3))
    flow.batch(s=rows(0))
    flow.batch(s=rows(1))
    assert len([row for row in flow.state("sums.partial") if row["k"] == 3]) > 1
    flow.start(spec(1, every=3))
    flow.batch(s=rows(2))
    assert flow.state("sums.partial") == []
    flow.batch(s=rows(4))
    assert flow.epoch.routes["sums.partial"].instances == (0,)
    check(flow, [row for seed in (0, 1, 2, 4) for row in rows(seed).to_pylist()])


def test_parallelism_shrinks_live_and_across_a_restart(tmp_path: Path) -> None:
    flow, seen = Scaled(tmp_path, spec(2, parallelism=6)), list[dict[str, Any]]()
    for number, (parallelism, restarts) in enumerate([(6, False), (4, False), (1, True), (5, True), (2, False)]):
        if restarts:
            flow.start(spec(2, parallelism))
        elif number:
            flow.apply(spec(2, parallelism))
        flow.batch(s=rows(number))
        seen += rows(number).to_pylist()
        assert len(flow.last.state["counts"]) == parallelism
        check(flow, seen)


def test_a_new_instance_is_not_flooded_by_choosers_that_remember_the_others_rows(tmp_path: Path) -> None:
    flow = Scaled(tmp_path, spec(2, mode="Off"))
    for number in range(3):
        flow.batch(s=rows(number, 600))
    flow.apply(spec(3, mode="Off"))
    flow.arrive()
    flow.batch(s=rows(9, 600))
    given = {r.instance: r.rows for r in flow.history.batches[-1].reports if r.operator == "sums.partial"}
    assert max(given.values()) <= 1.1 * min(given.values())


def test_a_snapshot_of_a_drained_instance_is_dropped(tmp_path: Path) -> None:
    flow, seen = Scaled(tmp_path, spec(2), compaction=partial(Compaction, most_deltas=2)), list[dict[str, Any]]()
    for number, replicas in enumerate([2, 2, 2, 1, 2, 1, 2, 2]):
        if replicas != flow.topology.replicas:
            flow.apply(spec(replicas))
            flow.arrive()
        flow.batch(s=rows(number))
        seen += rows(number).to_pylist()
        check(flow, seen)


def test_a_lost_executors_instances_are_back_on_it_when_it_is(tmp_path: Path) -> None:
    flow = Scaled(tmp_path, spec(3))
    flow.batch(s=rows(0))
    flow.losses = [Loss(1, 2, returns=False)]
    flow.batch(s=rows(1))
    assert slots_in_use(flow) == {0, 1}
    flow.arrive()
    flow.batch(s=rows(2))
    assert slots_in_use(flow) == {0, 1, 2}
    assert flow.checkpoint.epochs() == [1], "the placement had not changed"
    check(flow, [row for seed in range(3) for row in rows(seed).to_pylist()])


def test_an_epoch_for_another_placement_and_capacities_for_others_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("unused").mkdir()
    flow = Scaled(tmp_path, spec(3))
    flow.batch(s=rows(0))
    now = flow.real.ready().epoch
    other = Placement.first(["slot-0"], 3)
    with pytest.raises(ValueError, match="was planned for"):
        flow.real.publish(Epoch(now.number + 1, now.routes, (), BY_TEST, other))
    given = spec(3)
    given["spec"]["operators"][2]["grouping"]["options"] = {"capacities": [1, 2, 1]}
    check_before_start(parse(given), tmp_path)
    given["spec"]["executors"][0]["replicas"] = 4
    with pytest.raises(ManifestError, match="found 3 numbers for 4 instances; give one for each"):
        check_before_start(parse(given), tmp_path)


def test_capacities_for_executors_that_are_still_starting_wait_for_them(tmp_path: Path) -> None:
    flow = Scaled(tmp_path, spec(2))
    flow.batch(s=rows(0))
    given = spec(3)
    given["spec"]["operators"][2]["grouping"]["options"] = {"capacities": [1, 2, 1]}
    flow.apply(given)
    flow.batch(s=rows(1))
    assert "capacities" not in flow.epoch.routes["sums.partial"].options
    flow.arrive()
    flow.batch(s=rows(2))
    assert flow.epoch.routes["sums.partial"].options == {"capacities": [1, 2, 1]}


def test_a_policy_that_would_lose_what_partials_hold_is_still_refused_at_a_restart(tmp_path: Path) -> None:
    flow = Scaled(tmp_path, spec(2, every=3))
    flow.batch(s=rows(0))
    flow.batch(s=rows(1))
    together = spec(2)
    together["spec"]["operators"][2] |= {"grouping": {"policy": "mixed", "key": "k"}, "aggregateEvery": 1}
    with pytest.raises(TopologyFailed, match="hold tuples back"):
        flow.start(together)
