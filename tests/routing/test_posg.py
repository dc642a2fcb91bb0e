"""POSG's machines step by step as in the paper's figures, and its choosers against plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.routing.groupings import learning_of, make_chooser
from streamtopology.routing.groupings.earliest_finish import CostKnowledge, LearntPace
from streamtopology.routing.groupings.learning import KnowledgeFormatError, LearningChooser
from streamtopology.routing.groupings.posg import PosgInstance, PosgKnowledge, PosgReport
from streamtopology.routing.groupings.posg.greedy import priced_cells
from streamtopology.routing.groupings.posg.instance import InstanceState
from streamtopology.routing.load.sketches.cost_sketch import CostSketch
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.topology import groupings
from streamtopology.topology.groupings import GroupingError

LEARNING = ("posg", "posg-merged", "earliest-finish")


def pair(*stream: tuple[int, float], columns: int = 64) -> CostSketch:
    sketch = CostSketch.empty(2, columns)
    sketch.update(hash_int64(np.array([key for key, _ in stream])), np.array([seconds for _, seconds in stream]))
    return sketch


def executed(machine: PosgInstance, n: int, seconds: float) -> list[CostSketch]:
    return machine.execute(hash_int64(np.arange(n)), np.full(n, seconds))


def test_an_instance_sends_after_two_windows_of_the_same_and_starts_again() -> None:
    machine = PosgInstance(2, 4, window=10, tolerance=0.05)
    assert machine.state is InstanceState.START
    assert executed(machine, 9, 1.0) == []
    assert (machine.state, machine.until_check) == (InstanceState.START, 1)
    assert executed(machine, 1, 1.0) == []  # A
    assert machine.state is InstanceState.STABILIZING
    (sent,) = executed(machine, 10, 1.0)  # C
    assert machine.state is InstanceState.START
    assert (sent.frequencies.total, sent.times.total) == (20, 20.0)
    (again,) = executed(machine, 25, 1.0)
    assert again.frequencies.total == 20


def test_an_instance_whose_costs_change_takes_a_new_snapshot_instead() -> None:
    machine = PosgInstance(1, 1, window=10, tolerance=0.05)
    executed(machine, 10, 1.0)
    assert executed(machine, 10, 1.2) == []  # W / F: 1 -> 1.1, eta = 0.1: B
    assert machine.state is InstanceState.STABILIZING
    (sent,) = executed(machine, 10, 1.1)  # 1.1 -> 1.1
    assert sent.frequencies.total == 30
    assert sent.times.total == pytest.approx(33.0)


def test_eta_of_exactly_mu_is_stable() -> None:
    machine = PosgInstance(1, 1, window=2, tolerance=0.5)
    executed(machine, 2, 1.0)
    assert len(executed(machine, 2, 2.0)) == 1  # W / F: 1 -> 1.5


@pytest.mark.parametrize(("tolerance", "sends"), [(0.26, True), (0.24, False)])
def test_eta_is_the_sum_of_differences_over_the_sum_of_the_snapshot(tolerance: float, sends: bool) -> None:
    # Equation 1: cells of 1 s and 3 s become 2 s and 3 s, as F and W add up over windows: eta = 1 / 4. The mean of the
    # cells' relative errors would be 1 / 2, and so would be eta of a window by itself (3 s and 3 s).
    items = hash_int64(np.arange(40))
    columns = column_of_each(items)
    two = np.array([items[columns == 0][0], items[columns == 1][0]])
    machine = PosgInstance(1, 2, window=2, tolerance=tolerance)
    assert machine.execute(two, np.array([1.0, 3.0])) == []
    assert len(machine.execute(two, np.array([3.0, 3.0]))) == sends


def column_of_each(items: np.ndarray) -> np.ndarray:
    """The column of each item in a sketch of one row and two columns."""
    columns = []
    for item in items:
        sketch = CostSketch.empty(1, 2)
        sketch.update(np.array([item]), np.ones(1))
        columns.append(int(sketch.frequencies.cells[0].argmax()))
    return np.array(columns)


@settings(max_examples=40)
@given(st.lists(st.integers(1, 8), min_size=1, max_size=60), st.integers(0, 2**32))
def test_an_instance_sends_the_same_however_its_tuples_are_cut(columns_hit: list[int], seed: int) -> None:
    n = 7 * len(columns_hit)
    rng = np.random.default_rng(seed)
    hashes, seconds = hash_int64(rng.integers(0, 20, n)), rng.random(n)
    whole, cut = PosgInstance(2, 5, 6, 0.3), PosgInstance(2, 5, 6, 0.3)
    at_once = whole.execute(hashes, seconds)
    bit_by_bit: list[CostSketch] = []
    start = 0
    while start < n:
        end = start + columns_hit[start % len(columns_hit)]
        bit_by_bit += cut.execute(hashes[start:end], seconds[start:end])
        start = end
    assert [sent.times.cells.tolist() for sent in at_once] == [sent.times.cells.tolist() for sent in bit_by_bit]
    assert whole.state is cut.state


def test_the_papers_example_takes_21_seconds_and_round_robin_29() -> None:
    # Section II: a0 b1 a2, one a second; a takes 10 s, b 1 s; two instances.
    from streamtopology.lab.reproduce.experiments.posg import scheduling
    from streamtopology.lab.reproduce.experiments.posg.queues import Stream

    stream = Stream(
        np.array([0, 1, 0]), hash_int64(np.arange(2)), np.array([10.0, 1.0]), 1.0, np.zeros(1, np.int64), np.ones((1, 2))
    )
    assert scheduling.round_robin(stream).completion_times.tolist() == [10, 1, 18]
    assert scheduling.full_knowledge(stream).completion_times.tolist() == [10, 1, 10]


def learnt(name: str, k: int, stream: int = 4000, seed: int = 1, slowness: list[float] | None = None, **options: object):
    """(knowledge, hashes, costs by key): every instance has executed some tuples of 50 keys and reported."""
    spec, learning = groupings.get(name), learning_of(name)
    assert learning is not None
    checked = spec.check_options({"window": 100, "tolerance": 10.0, **options} if name != "earliest-finish" else options)
    rng = np.random.default_rng(seed)
    costs = rng.integers(1, 20, 50) * 1e-3
    observers = [learning.make_observer(instance, checked) for instance in range(k)]
    knowledge = learning.nothing_known(checked)
    for _ in range(3):
        reports = []
        for instance, observer in enumerate(observers):
            keys = rng.integers(0, 50, stream // k)
            observer.observe(hash_int64(keys), costs[keys] * (slowness or [1.0] * k)[instance])
            reports.append(observer.report())
        rng.shuffle(reports)
        knowledge = knowledge.after([learning.read_report(report.to_wire()) for report in reports])
    keys = rng.integers(0, 55, 600)
    return learning.read_knowledge(knowledge.to_wire()), hash_int64(keys), costs


@settings(max_examples=15)
@given(st.integers(1, 20), st.sampled_from(["posg", "posg-merged"]), st.integers(0, 99))
def test_posg_chooses_as_its_listing_does(k: int, name: str, seed: int) -> None:
    knowledge, hashes, _ = learnt(name, k, seed=seed)
    chooser = make_chooser(name, np.arange(k, dtype=np.int32), np.zeros(k), 0, {})
    chooser.learn(knowledge)
    chosen = np.concatenate([chooser.choose(hashes[:250], 250), chooser.choose(hashes[250:], len(hashes) - 250)])
    estimated = [knowledge.busy_seconds[instance] for instance in range(k)]
    merged = CostSketch.merged(knowledge.pairs.values())
    for instance, one in zip(chosen.tolist(), hashes, strict=True):
        assert estimated[instance] <= min(estimated) + 1e-6  # the kernel counts in nanoseconds
        looked_up = merged if name == "posg-merged" else knowledge.pairs[instance]
        estimated[instance] += looked_up.estimate(np.array([one]))[0]


def test_priced_cells_rank_equal_frequencies_by_row() -> None:
    cells = priced_cells(np.array([[2.0, 1.0], [2.0, 0.0]]), np.array([[0.1, 0.2], [0.3, 0.4]]))
    assert np.argsort(cells.ravel()).tolist() == [3, 1, 0, 2]


def test_posg_goes_round_until_every_instance_has_sent() -> None:
    knowledge, hashes, _ = learnt("posg", 3)
    two = PosgKnowledge({0: knowledge.pairs[0], 1: knowledge.pairs[1]}, {0: 1.0, 1: 2.0})
    chooser = make_chooser("posg", np.arange(3, dtype=np.int32), np.zeros(3), 1, {})
    chooser.learn(two)
    assert chooser.choose(hashes[:7], 7).tolist() == [1, 2, 0, 1, 2, 0, 1]


def test_an_instance_that_comes_later_begins_at_the_least_work_of_the_others() -> None:
    one = pair((1, 1.0))
    knowledge = PosgKnowledge({0: one, 1: one}, {0: 100.0, 1: 90.0}).after([PosgReport(2, 5.0, one), PosgReport(0, 1.0, None)])
    assert knowledge.busy_seconds == {0: 101.0, 1: 90.0, 2: 95.0}
    first = PosgKnowledge().after([PosgReport(1, 7.0, None), PosgReport(0, 3.0, None)])
    assert first.busy_seconds == {0: 3.0, 1: 7.0}


@pytest.mark.parametrize("schedulers", [1, 4])
def test_each_of_several_schedulers_makes_up_its_part_of_the_gap(schedulers: int) -> None:
    one = pair((1, 1.0))
    chooser = make_chooser("posg", np.arange(2, dtype=np.int32), np.zeros(2), 0, {})
    assert isinstance(chooser, LearningChooser)
    chooser.learn(PosgKnowledge({0: one, 1: one}, {0: 20.0, 1: 0.0}), schedulers)
    chosen = chooser.choose(np.full(30, hash_int64(np.array([1]))[0]), 30).tolist()
    assert chosen.index(0) == pytest.approx(20 / schedulers, abs=1)


@settings(max_examples=15)
@given(st.integers(1, 9), st.integers(0, 99))
def test_earliest_finish_is_done_with_each_tuple_first(k: int, seed: int) -> None:
    slowness = [1.0 + 0.3 * i for i in range(k)]
    knowledge, hashes, _ = learnt("earliest-finish", k, seed=seed, slowness=slowness, keys=30)
    chooser = make_chooser("earliest-finish", np.arange(k, dtype=np.int32), np.zeros(k), seed, {})
    chooser.learn(knowledge)
    chosen = np.concatenate([chooser.choose(hashes[:250], 250), chooser.choose(hashes[250:], len(hashes) - 250)])
    paces, costs = [knowledge.slowness(i) for i in range(k)], knowledge.costs.estimate(hashes)
    finish = [0.0] * k
    for instance, cost in zip(chosen.tolist(), costs.tolist(), strict=True):
        done = [finish[i] + cost * paces[i] for i in range(k)]
        assert done[instance] <= min(done) + 1e-6
        finish[instance] = done[instance]


def test_earliest_finish_learns_speeds_apart_from_costs() -> None:
    knowledge, _, costs = learnt("earliest-finish", 3, slowness=[1.0, 1.0, 4.0])
    speeds = np.array([knowledge.slowness(instance) for instance in range(3)])
    assert speeds / speeds[0] == pytest.approx([1.0, 1.0, 4.0], rel=0.05)
    estimated = knowledge.costs.estimate(hash_int64(np.arange(50)))
    assert estimated / estimated.mean() == pytest.approx(costs / costs.mean(), rel=0.15)
    assert knowledge.slowness(7) == 1.0


def test_earliest_finish_follows_an_instance_that_becomes_slow() -> None:
    pace = LearntPace().after(5000, 5.0, 5.0)
    for _ in range(30):
        pace = pace.after(100, 0.2, 0.1)
    assert pace.seconds / pace.expected_seconds == pytest.approx(2.0, abs=0.01)


def test_reports_of_one_batch_may_come_in_any_order() -> None:
    spec, learning = groupings.get("earliest-finish"), learning_of("earliest-finish")
    assert learning is not None
    options = spec.check_options({})
    rng, reports = np.random.default_rng(3), []
    for instance in range(4):
        observer = learning.make_observer(instance, options)
        keys = rng.integers(0, 30, 100)
        observer.observe(hash_int64(keys), rng.random(100))
        reports.append(observer.report())
    asked = hash_int64(np.arange(40))
    one, other = (learning.nothing_known(options).after(order) for order in (reports, reports[::-1]))
    assert isinstance(one, CostKnowledge)
    assert isinstance(other, CostKnowledge)
    assert (one.costs.estimate(asked) == other.costs.estimate(asked)).all()
    assert learning.nothing_known(options).after([]).to_wire() == learning.nothing_known(options).to_wire()


@pytest.mark.parametrize("name", LEARNING)
def test_observers_report_once_and_only_what_is_new(name: str) -> None:
    spec, learning = groupings.get(name), learning_of(name)
    assert learning is not None
    observer = learning.make_observer(2, spec.check_options({}))
    assert observer.report() is None
    observer.observe(hash_int64(np.arange(3)), np.ones(3))
    report = observer.report()
    assert report is not None
    assert report.to_wire()["instance"] == 2
    assert observer.report() is None


@pytest.mark.parametrize("name", LEARNING)
def test_choosers_without_knowledge_are_even_and_need_keys(name: str) -> None:
    chooser = make_chooser(name, np.array([3, 5, 8], np.int32), np.zeros(3), 4, {})
    chosen = chooser.choose(hash_int64(np.arange(300)), 300)
    assert {instance: int((chosen == instance).sum()) for instance in (3, 5, 8)} == {3: 100, 5: 100, 8: 100}
    with pytest.raises(GroupingError, match="5 tuples need 5 key hashes, found none"):
        chooser.choose(None, 5)


@pytest.mark.parametrize("name", LEARNING)
def test_a_scheduler_balances_costs_that_round_robin_does_not(name: str) -> None:
    knowledge, _, costs = learnt(name, 4)
    keys = np.random.default_rng(9).integers(0, 50, 400)
    chooser = make_chooser(name, np.arange(4, dtype=np.int32), np.zeros(4), 0, {})
    if isinstance(knowledge, PosgKnowledge):
        knowledge = PosgKnowledge(knowledge.pairs)
    chooser.learn(knowledge)
    work = np.bincount(chooser.choose(hash_int64(keys), 400), costs[keys], minlength=4)
    turns = np.bincount(np.arange(400) % 4, costs[keys], minlength=4)
    share_left = (work.max() / work.mean() - 1) / (turns.max() / turns.mean() - 1)
    assert share_left < (0.75 if name == "posg" else 0.5)  # the literal one knows each key from one instance at a time


@pytest.mark.parametrize("name", LEARNING)
def test_an_instance_without_capacity_gets_nothing(name: str) -> None:
    knowledge, hashes, _ = learnt(name, 3)
    chooser = make_chooser(name, np.arange(3, dtype=np.int32), np.zeros(3), 0, {"capacities": [1, 0, 1]})
    assert set(chooser.choose(hashes, len(hashes)).tolist()) == {0, 2}
    chooser.learn(knowledge)
    assert set(chooser.choose(hashes, len(hashes)).tolist()) == {0, 2}


@pytest.mark.parametrize("name", LEARNING)
def test_damaged_knowledge_is_refused_with_a_sentence(name: str) -> None:
    learning = learning_of(name)
    assert learning is not None
    with pytest.raises(KnowledgeFormatError, match=f"{name.removesuffix('-merged')} knowledge: .* is missing"):
        learning.read_knowledge({})
    with pytest.raises(KnowledgeFormatError, match="report: "):
        learning.read_report({"instance": "first", "costs": {}, "pair": None})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [({"eps": 0}, "0 < number <= 1"), ({"window": 0.5}, "whole number >= 1"), ({"delta": 2}, "0 < number <= 1")],
)
def test_options_are_checked(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(GroupingError, match=sentence):
        groupings.get("posg").check_options(options)
