"""POSG's evaluation in small: the queues against a slow simulation, and what each experiment says of itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.lab.reproduce import experiments
from streamtopology.lab.reproduce.experiment import ExperimentError
from streamtopology.lab.reproduce.experiments.posg import POSG, scheduling
from streamtopology.lab.reproduce.experiments.posg.queues import Stream
from streamtopology.lab.reproduce.experiments.posg.row_over import SYNTHETIC
from streamtopology.lab.reproduce.experiments.posg.scheduling import Schedule
from streamtopology.lab.reproduce.experiments.posg.shift import recovers_at
from streamtopology.lab.reproduce.experiments.posg.workloads import mentions, synthetic
from streamtopology.lab.simulate.streams import zipf_exponent, zipf_probabilities
from streamtopology.routing.groupings.posg import PosgInstance
from streamtopology.routing.load.sketches.count_min import column_of
from streamtopology.routing.table.hashing import hash_int64

SMALL = {
    "n": 200,
    "m": 3000,
    "wn": 10,
    "wmin": 1.0,
    "wmax": 10.0,
    "alpha": 1.0,
    "k": 3,
    "provisioning": 100.0,
    "window": 64,
    "tolerance": 0.2,
    "eps": 0.1,
    "delta": 0.1,
    "keys": 100,
    "tolerated_drift": 2.0,
}


def stream(seed: int, **others: object) -> Stream:
    return synthetic({**SMALL, **others}, np.random.default_rng(seed))


def slow_full_knowledge(given: Stream) -> list[float]:
    k = given.slowness.shape[1]
    loads, free, completion = [0] * k, [0.0] * k, []
    for i, item in enumerate(given.items.tolist()):
        slowness = given.slowness[np.flatnonzero(given.starts <= i)[-1]]
        instance = loads.index(min(loads))
        seconds = given.costs[item] * slowness[instance]
        loads[instance] += round(seconds * 1e9)
        free[instance] = max(free[instance], i * given.interval) + seconds
        completion.append(free[instance] - i * given.interval)
    return completion


@settings(max_examples=20)
@given(k=st.integers(1, 7), provisioning=st.sampled_from([90.0, 100.0, 130.0]), seed=st.integers(0, 99))
def test_full_knowledge_is_the_greedy_scheduler_with_exact_times(k, provisioning, seed) -> None:
    slowness = np.random.default_rng(seed).uniform(0.5, 2, (2, k)).tolist()
    short = stream(seed, m=200, k=k, provisioning=provisioning, slowness=slowness)
    assert scheduling.full_knowledge(short).completion_times == pytest.approx(slow_full_knowledge(short))


def slow_posg(given: Stream, window: int, tolerance: float, eps: float) -> tuple[list[float], int]:
    """Tuple by tuple, message by message, with the machines but without kernels."""
    from streamtopology.lab.reproduce.experiments.posg.scheduler_machine import PosgScheduler, SchedulerState
    from streamtopology.routing.groupings.posg.greedy import packed, to_seconds
    from streamtopology.routing.load.sketches.count_min import dimensions

    k = given.slowness.shape[1]
    scheduler, instances = PosgScheduler(k), [PosgInstance(*dimensions(eps, 0.1), window, tolerance) for _ in range(k)]
    free, busy, completion, inbox = [0.0] * k, [0.0] * k, [], []
    for i, item in enumerate(given.items.tolist()):
        now, key = i * given.interval, given.hashes[[item]]
        for message in sorted(message for message in inbox if message[0] <= now):
            inbox.remove(message)
            _, _, instance, body = message
            (scheduler.receive_reply if hasattr(body, "delta") else scheduler.receive_pair)(instance, body)
        in_turn = scheduler.state in (SchedulerState.ROUND_ROBIN, SchedulerState.SEND_ALL)
        loads = to_seconds(scheduler.loads).tolist()
        instance = i % k if in_turn else loads.index(min(loads))
        request = None
        if scheduler.state is SchedulerState.SEND_ALL:
            request = scheduler.request(instance, scheduler.pairs[instance].estimate(key)[0])
        elif scheduler.state is not SchedulerState.ROUND_ROBIN:
            scheduler.loads[instance] += packed(scheduler.pairs[instance].estimate(key))[0]
        seconds = given.costs[item] * given.slowness[0, instance]
        free[instance] = max(free[instance], now) + seconds
        busy[instance] += seconds
        completion.append(free[instance] - now)
        if request is not None:
            inbox.append((free[instance], 2 * i, instance, request.answered(busy[instance])))
        for pair in instances[instance].execute(key, np.array([seconds])):
            inbox.append((free[instance], 2 * i + 1, instance, pair))
    return completion, scheduler.messages


@pytest.mark.parametrize("seed", range(4))
def test_posg_is_its_machines_tuple_by_tuple(seed: int) -> None:
    short = stream(seed, m=1500, k=3, alpha=1.5)
    fast = scheduling.posg(short, eps=0.1, delta=0.1, window=40, tolerance=0.3)
    completion, messages = slow_posg(short, 40, 0.3, 0.1)
    assert fast.completion_times == pytest.approx(completion)
    assert fast.messages == messages > 10
    assert fast.runs_from


@pytest.mark.parametrize(("tolerance", "windows"), [(0.05, {3, 4}), (0.2, {2})])
def test_with_the_papers_mu_an_instance_does_not_send_after_two_windows(tolerance: float, windows: set[int]) -> None:
    """RUN begins at some 20,000 tuples (section V-C: 20,978) and not at 10,690 (V-B): eta after two windows is over mu.

    "The START state lasts until instance op has executed N tuples", then "each time instance op has executed N tuples, it
    checks": F, W and S in plain numpy, and the same from the instance machine.
    """
    for seed in range(3):
        given = synthetic(SYNTHETIC, np.random.default_rng(seed))
        items = given.items[seed :: SYNTHETIC["k"]]
        machine = PosgInstance(4, 55, SYNTHETIC["window"], tolerance)
        sent = machine.execute(given.hashes[items], given.costs[items])
        assert sent[0].frequencies.total / SYNTHETIC["window"] in windows
        assert sent[0].frequencies.total / SYNTHETIC["window"] == windows_until_stable(given, items, tolerance)


def windows_until_stable(given: Stream, items: np.ndarray, tolerance: float) -> int:
    """Equation 1 over four rows of 55 cells, from all tuples since the start each time."""
    snapshot = None
    for windows in range(1, 9):
        so_far = items[: windows * SYNTHETIC["window"]]
        costs = []
        for row in range(4):
            columns = column_of.py_func(given.hashes[so_far], row, 55).astype(np.int64)
            counted = np.bincount(columns, minlength=55)
            times = np.bincount(columns, given.costs[so_far], 55)
            costs.append(np.where(counted > 0, times / np.maximum(counted, 1), given.costs[so_far].mean()))
        now = np.array(costs)
        if snapshot is not None and np.abs(snapshot - now).sum() / snapshot.sum() <= tolerance:
            return windows
        snapshot = now
    raise AssertionError("not stable after eight windows")


def test_posg_has_recovered_when_all_affected_instances_have_sent_again() -> None:
    given = stream(1, m=100, k=3, slowness=[[1.0, 1.0, 1.0], [1.0, 1.1, 0.9]])
    pairs = ((10, 1), (20, 2), (49, 1), (60, 0), (65, 1), (70, 1), (80, 2), (90, 0))
    assert recovers_at(Schedule(np.zeros(100), 0, (30, 61, 66, 79, 83, 91), pairs), given) == 83
    assert recovers_at(Schedule(np.zeros(100), 0, (30, 61, 66, 79), pairs), given) == 100
    assert recovers_at(Schedule(np.zeros(100), 0, (30, 61, 66, 83), pairs[:5]), given) == 100


def test_with_one_instance_all_schedulers_are_the_same() -> None:
    one = stream(1, k=1)
    expected = scheduling.round_robin(one).completion_times
    assert scheduling.posg(one, 0.1, 0.1, 64, 0.2).completion_times == pytest.approx(expected)
    assert scheduling.earliest_finish(one, 100, 0.1, 0.1, 64, 2.0).completion_times == pytest.approx(expected)


@settings(max_examples=10)
@given(seed=st.integers(0, 999), k=st.integers(2, 6))
def test_every_scheduler_executes_all_the_work(seed: int, k: int) -> None:
    given = stream(seed, k=k)
    shortest = given.costs[given.items]
    for schedule in (
        scheduling.round_robin(given),
        scheduling.full_knowledge(given),
        scheduling.posg(given, 0.1, 0.1, 64, 0.2, merged=True),
        scheduling.earliest_finish(given, 100, 0.1, 0.1, 64, 2.0),
    ):
        assert (schedule.completion_times >= shortest - 1e-9).all()
    again = scheduling.earliest_finish(given, 100, 0.1, 0.1, 64, 2.0)
    assert (again.completion_times == schedule.completion_times).all()


def test_earliest_finish_needs_no_more_messages_once_it_knows_all_costs() -> None:
    known = Stream(
        np.random.default_rng(2).integers(0, 8, 20_000),
        hash_int64(np.arange(8)),
        np.arange(1, 9) * 1e-3,
        1e-3,
        np.zeros(1, np.int64),
        np.ones((1, 4)),
    )
    schedule = scheduling.earliest_finish(known, 100, 0.1, 0.1, 1_000_000, 2.0)
    assert schedule.messages < 40


def test_earliest_finish_follows_instances_that_change_their_speed() -> None:
    periods = [[1.05, 1.025, 1.0, 0.975, 0.95], [0.90, 0.95, 1.0, 1.05, 1.10]]
    given = stream(3, k=5, m=20_000, slowness=periods, provisioning=105.0)
    ours = scheduling.earliest_finish(given, 200, 0.1, 0.1, 1024, 2.0).completion_times
    exact = scheduling.full_knowledge(given).completion_times
    assert ours[12_000:].mean() < 1.5 * exact[12_000:].mean()
    assert ours.mean() < 0.5 * scheduling.round_robin(given).mean


def test_the_mention_stream_is_as_described() -> None:
    parameters = {**SMALL, "n": 3000, "m": 40_000, "p1": 0.065, "class_ms": [25.0, 5.0, 1.0], "class_shares": [0.1, 0.3, 0.6]}
    given = mentions({**parameters, "trace": ""}, np.random.default_rng(1))
    counts = np.bincount(given.items, minlength=3000)
    assert counts.max() / 40_000 == pytest.approx(0.065, abs=0.005)
    assert given.costs[counts.argmax()] == 0.005
    assert set(given.costs.tolist()) == {0.025, 0.005, 0.001}
    assert zipf_probabilities(35_000, zipf_exponent(35_000, 0.065))[0] == pytest.approx(0.065, abs=1e-6)


@pytest.mark.parametrize("experiment", POSG, ids=lambda experiment: experiment.id)
def test_every_row_runs_and_says_what_it_claims(experiment) -> None:
    assert experiments.get(experiment.id) is experiment
    small = {"m": 2000, "n": 128, "window": 64}
    reported: list[float] = []
    result = experiment.carry_out(small, reported.append, quick=True, runs=1)
    assert reported[-1] == pytest.approx(1.0)
    assert len({tuple(row) for row in result["series"]}) == 1
    assert set(result["paper"]) <= set(result["summary"])
    again = experiment.carry_out(small, reported.append, quick=True, runs=1)
    assert again["series"] == result["series"]


def test_a_grid_without_the_points_of_the_claims_is_refused() -> None:
    with pytest.raises(ExperimentError, match=r"posg-load: values: its claims need \[95.0, .*\], too; found \[101\]"):
        experiments.get("posg-load").carry_out({"values": [101], "m": 100}, lambda share: None)


def test_several_schedulers_cost_nothing_when_each_makes_up_its_part_only() -> None:
    result = experiments.get("posg-schedulers").carry_out({}, lambda share: None, quick=True, runs=3)
    assert [claim["sentence"] for claim in result["claims"] if not claim["holds"]] == []
    assert result["summary"]["earliest_finish_over_one"] < result["summary"]["whole_c_over_one"]
