"""Choosers that learn from instances (POSG, earliest-finish) in the data plane: reports, knowledge, and their effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from support.stages import SLOTS, Flow, Loss, manifest
from support.stories import played, some_rows, stories

from streamtopology.jobs.exchange.learning import messages, rehearse_learning
from streamtopology.jobs.operators import load
from streamtopology.jobs.rerouting.port import CommittedAttempt
from streamtopology.jobs.worker.observers import tuple_seconds
from streamtopology.routing.control.decisions import TopologyFacts
from streamtopology.routing.groupings import learning_of
from streamtopology.topology import groupings

FEW = settings(max_examples=4, phases=[Phase.explicit, Phase.reuse, Phase.generate])

POLICIES = [name for name in groupings.GROUPINGS if learning_of(name) is not None]

COSTLY = '''
from collections.abc import Iterable
from typing import Any
import numpy as np
from streamtopology.api import Field, Operator, TupleOperator

class Timed(TupleOperator):
    """Counts tuple by tuple; each one is timed."""
    combinable = True
    fields = (Field("count", np.dtype(np.int64), merge="sum"),)

    def process_tuple(self, row, state):
        state["count"] += 1
        return None

class Costly(Operator):
    """Counts, and says that a tuple took as many seconds as its column `cost` has."""
    combinable = True
    fields = (Field("count", np.dtype(np.int64), merge="sum"),)

    def process(self, rows, state):
        np.add.at(state.column("count"), state.slots(rows.keys), 1)
        return None

    def accept(self, rows, state, dead_letter=False):
        emitted = super().accept(rows, state, dead_letter)
        self.last_tuple_seconds = rows.column("cost").to_numpy()
        return emitted
'''


def topology(folder: Path, policy: str, run: str = "Costly", **options: object) -> dict[str, Any]:
    (folder / "costly.py").write_text(COSTLY)
    grouping = {"policy": policy, "key": "k", "options": options}
    operator = {"name": "counts", "inputs": ["s"], "grouping": grouping, "run": f"costly.py:{run}"}
    return manifest([operator], {"s": "k BIGINT, g STRING, v BIGINT, cost DOUBLE"})


def rows_of(keys: Sequence[int], cost: Mapping[int, float]) -> pa.Table:
    return pa.table({"k": keys, "g": ["g"] * len(keys), "v": [0] * len(keys), "cost": [cost.get(key, 0.001) for key in keys]})


def counts(flow: Flow) -> dict[int, int]:
    """Partials that have handed over everything, and the one merged count of each key."""
    assert flow.state("counts.partial") == []
    held = flow.state("counts")
    assert len({row["k"] for row in held}) == len(held)
    return {row["k"]: row["count"] for row in held}


def seconds_given(done: CommittedAttempt) -> np.ndarray:
    """float64[SLOTS]: the work that each partial got in a batch, as its instances reported it."""
    given = np.zeros(SLOTS)
    for result in done.results.instances:
        if result.report.operator == "counts.partial":
            given[result.report.instance] = result.report.heavy_seconds.sum()
    return given


@pytest.mark.parametrize("policy", POLICIES)
@FEW
@given(stories)
def test_keys_are_counted_whatever_is_lost_forgotten_or_tried_again(
    policy: str, story: tuple[int, Sequence[Mapping[str, Any]]]
) -> None:
    options = {} if policy == "earliest-finish" else {"window": 8, "tolerance": 10.0}
    with TemporaryDirectory() as folder:
        given = topology(Path(folder), policy, "Timed", **options)
        flow = Flow(Path(folder), given)
        seen: Counter[int] = Counter()
        for random in played(flow, *story, given):
            table = some_rows(random)
            flow.batch(s=table.append_column("cost", pa.array(np.zeros(table.num_rows))))
            seen.update(table.column("k").to_pylist())
            assert counts(flow) == seen


def test_dear_keys_are_spread_once_their_costs_are_known(tmp_path: Path) -> None:
    flow = Flow(tmp_path, topology(tmp_path, "earliest-finish"))
    keys = np.tile([0, 1, 2, 3, 0, 9, 9, 9], 100).tolist()
    cost = {0: 0.1, 1: 0.05}
    for _ in range(3):
        flow.batch(s=rows_of(keys, cost))
    first, *_, last = (seconds_given(done) for done in flow.router.done)
    assert first.max() / first.mean() > 1.2, "this stream does not need what is tested here"
    assert last.max() / last.mean() < 1.05


def test_choosers_learn_what_committed_batches_reported_and_nothing_else(tmp_path: Path) -> None:
    flow = Flow(tmp_path, topology(tmp_path, "earliest-finish"))
    learns = learning_of("earliest-finish")
    assert learns is not None
    known = learns.nothing_known(groupings.get("earliest-finish").check_options({}))
    flow.losses = [Loss(2, 1)]  # its partials have observed and reported, but the attempt is lost
    for batch in range(3):
        flow.batch(s=rows_of([batch, batch + 1, 7] * 50, {7: 0.5}))
        attempt, reports = flow.router.done[-1].attempt, flow.router.done[-1].results.learning_reports
        assert attempt.knowledge == ({} if batch == 0 else {"counts.partial": known.to_wire()})
        assert sorted(report["instance"] for _, report in reports) == list(range(SLOTS))
        known = known.after([learns.read_report(report) for _, report in reports])
    assert flow.router.done[0].attempt.attempt == 2
    costs = known.costs
    assert sorted(costs.costs.round(6).tolist()) == [0.001, 0.001, 0.001, 0.001, 0.5]


def test_a_new_policy_or_other_options_begin_from_nothing(tmp_path: Path) -> None:
    flow = Flow(tmp_path, topology(tmp_path, "earliest-finish", keys=64))
    flow.batch(s=rows_of([1, 2, 3], {}))
    assert flow.driver.progress.knowledge.learned.to_wire(flow.router.plan.epoch).keys() == {"counts.partial"}
    for policy, options in (("posg", {}), ("earliest-finish", {"keys": 32})):
        flow.start(topology(tmp_path, policy, **options))
        flow.batch(s=rows_of([1, 2, 3], {}))
        assert flow.router.done[-1].attempt.knowledge == {}
        flow.batch(s=rows_of([1, 2, 3], {}))
        assert flow.router.done[-1].attempt.knowledge.keys() == {"counts.partial"}


def with_partials_at(flow: Flow, instances: tuple[int, ...]) -> None:
    """The next batch runs under an epoch whose partials are these."""
    plan = flow.router.plan
    routes = {**plan.epoch.routes, "counts.partial": replace(plan.epoch.routes["counts.partial"], instances=instances)}
    flow.router.plan = replace(plan, epoch=replace(plan.epoch, routes=routes))
    flow.router.reroute({})


def test_an_instance_that_comes_back_starts_again(tmp_path: Path) -> None:
    flow = Flow(tmp_path, topology(tmp_path, "posg", window=1000, tolerance=10.0))
    everywhere = tuple(range(SLOTS))
    keys = list(range(20)) * SLOTS
    flow.batch(s=rows_of(keys, {}))
    flow.losses = [Loss(SLOTS, 0)]  # what the others observed in an attempt that is lost is not counted either
    with_partials_at(flow, everywhere[:-1])
    flow.batch(s=rows_of(keys, {}))
    with_partials_at(flow, everywhere)
    flow.batch(s=rows_of(keys, {}))
    observers = {
        instance: observer
        for worker in flow.workers.values()
        for (_, node, instance), (_, observer) in worker.observers._observers.items()
        if node == "counts.partial"
    }
    given = {
        report["instance"]: round(report["busy_seconds"], 3) for _, report in flow.router.done[-1].results.learning_reports
    }
    assert sorted(observers) == sorted(given) == list(everywhere)
    seen = {instance: observer._machine.window - observer._machine.until_check for instance, observer in observers.items()}
    assert seen == {instance: round(seconds / 0.001) for instance, seconds in given.items()}, "as much as it got since"


def test_posg_leaves_round_robin_when_every_instance_has_sent_its_sketches(tmp_path: Path) -> None:
    flow = Flow(tmp_path, topology(tmp_path, "posg", window=150, tolerance=0.5))
    for _ in range(6):
        flow.batch(s=rows_of(np.tile([0, 9, 9, 9], 200).tolist(), {0: 0.1}))
    sent = [sum(report["pair"] is not None for _, report in done.results.learning_reports) for done in flow.router.done]
    assert sent[0] == 0, "no instance has seen its second window yet"
    assert sum(sent[:5]) >= SLOTS
    knowledge = flow.router.done[-1].attempt.knowledge["counts.partial"]
    assert sorted(knowledge["pairs"]) == [str(instance) for instance in range(SLOTS)]
    totals = sum(seconds_given(done) for done in flow.router.done)
    assert totals.max() - totals.min() < 0.1 * (SLOTS + 1), "C is even but for a dear tuple of each scheduler"


@pytest.mark.parametrize("policy", POLICIES)
def test_warm_up_learns_and_chooses_once_and_leaves_nothing_behind(tmp_path: Path, policy: str) -> None:
    flow = Flow(tmp_path, topology(tmp_path, policy))
    known = rehearse_learning(flow.router.plan.epoch.routes["counts.partial"])
    assert known is not None
    assert len(known["pairs"] if "pairs" in known else known["paces"]) == SLOTS, "choosers are as in the middle of a run"
    flow.warm_up()
    flow.batch(s=rows_of([1, 2, 3] * 20, {}))
    assert flow.router.done[-1].attempt.knowledge == {}
    busy = [report.get("busy_seconds", 0.0) for _, report in flow.router.done[-1].results.learning_reports]
    assert sum(busy) == pytest.approx(0.0 if policy == "earliest-finish" else 0.06)


def test_messages_are_counted_by_operator_with_their_size(tmp_path: Path) -> None:
    flow = Flow(tmp_path, topology(tmp_path, "earliest-finish"))
    flow.batch(s=rows_of([1, 2, 3, 4] * 20, {}))
    sent = messages(flow.router.done[-1].results.learning_reports)
    assert sent.keys() == {"counts.partial"}
    assert sent["counts.partial"].count == SLOTS
    assert 0 < sent["counts.partial"].bytes < 100_000


def test_a_batch_operator_gives_every_tuple_the_same_part_of_its_time(tmp_path: Path) -> None:
    topology(tmp_path, "posg")
    plain = load("count", tmp_path)()
    assert tuple_seconds(plain, 4, 2.0).tolist() == [0.5] * 4
    assert tuple_seconds(plain, 0, 2.0).tolist() == []
    plain.last_tuple_seconds = np.array([1.0, 3.0])
    assert tuple_seconds(plain, 2, 9.0).tolist() == [1.0, 3.0]


def test_the_controller_leaves_capacities_to_choosers_that_learn(tmp_path: Path) -> None:
    for policy, is_given_capacities in (("earliest-finish", False), ("posg", False), ("shuffle", True)):
        flow = Flow(tmp_path / policy, _made(tmp_path / policy, policy))
        facts = TopologyFacts.of(flow.router.plan.epoch.routes, [1.0] * SLOTS, source_by_share=True)
        assert ("counts.partial" in facts.choosers) == is_given_capacities


def _made(folder: Path, policy: str) -> dict[str, Any]:
    folder.mkdir()
    return topology(folder, policy)
