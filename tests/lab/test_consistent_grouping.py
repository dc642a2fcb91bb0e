"""Consistent Grouping's experiments in small: the cost model, the sources' agreement, and each row's shape."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.lab.reproduce.experiments import EXPERIMENTS
from streamtopology.lab.reproduce.experiments.consistent import CONSISTENT
from streamtopology.lab.reproduce.experiments.consistent.cluster import Cluster, ConsistentSources, SimulatedConsistent
from streamtopology.lab.reproduce.experiments.consistent.messages import Tally, pieces, wikipedia_like
from streamtopology.lab.reproduce.experiments.consistent.queues import capacities
from streamtopology.lab.reproduce.experiments.consistent.schemes import from_sources
from streamtopology.lab.simulate.streams import zipf_exponent, zipf_probabilities
from streamtopology.routing.planners.consistent import Pairing, Signal
from streamtopology.routing.table.hashing import hash_int64


@settings(max_examples=60)
@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=60),
    st.lists(st.integers(1, 6), min_size=3, max_size=3),
    st.integers(0, 59),
)
def test_queues_are_first_come_first_served(workers: list[int], service: list[int], cut: int) -> None:
    """Against queues of messages that are served step by step; whole service times, so that no rounding enters."""
    cluster = Cluster(1.0 / np.array(service))
    done = [cluster.serve(np.array(part, np.int32)) for part in (workers[:cut], workers[cut:])]
    waiting: list[deque[int]] = [deque() for _ in service]
    left, finished = [0, 0, 0], np.full(len(workers), np.nan)
    for now in range(len(workers) + sum(service) * len(workers)):
        for worker, queue in enumerate(waiting):
            if queue:
                left[worker] -= 1
                if left[worker] == 0:
                    finished[queue.popleft()] = now
                    left[worker] = service[worker]
        if now == len(workers):
            assert cluster.queues.tolist() == [len(queue) for queue in waiting]
        if now < len(workers):
            worker = workers[now]
            if not waiting[worker]:
                left[worker] = service[worker]
            waiting[worker].append(now)
    assert np.concatenate(done).tolist() == finished.tolist()
    assert cluster.latencies.sum() == (finished - np.arange(len(workers))).sum()


def test_a_change_of_capacity_leaves_messages_where_they_wait() -> None:
    cluster = Cluster(np.array([0.1, 1.0]))
    cluster.serve(np.zeros(20, np.int32))
    assert cluster.queues.tolist() == [18, 0]
    cluster.change(np.array([1.0, 0.1]))
    assert cluster.queues.tolist() == [18, 0]
    assert cluster.serve(np.zeros(1, np.int32)).tolist() == [20 + 19]


@pytest.mark.parametrize("n_sources", [1, 7])
def test_sources_become_alike(n_sources: int) -> None:
    """Each hears signals with acknowledgements of its own messages, and moves the same virtual workers in the end."""
    of = capacities(10, 3, 5.0)
    sources = ConsistentSources(10, 20, 0.01, 1, n_sources)
    simulation = SimulatedConsistent(Cluster(of), sources, slot=2_000)
    for _, hashes in pieces(wikipedia_like(20_000, 0.0932), 400_000, 1, 50_000):
        simulation.feed(hashes)
    owners = np.stack([pairing.owner for pairing in sources.pairings])
    assert (owners == owners[0]).mean() > 0.95
    held = np.bincount(owners.ravel(), minlength=10) / n_sources
    assert held.sum() == 200
    # A worker is used at 80 % when it has as many as its share of the capacity asks for.
    assert np.abs(0.8 * held / (200 * of / of.sum()) - 0.8).max() < 0.15
    assert sources.moves >= n_sources * 60


@pytest.mark.parametrize(("faster", "times"), [(5, 10.0), (7, 10.0), (9, 10.0)])
def test_a_worker_that_gives_up_virtual_workers_keeps_the_one_by_which_it_is_heard(faster: int, times: float) -> None:
    """One or two of its ten are all that a slow worker can do; signals that are a slot old used to take the last one, too."""
    of = capacities(10, faster, times)
    sources = ConsistentSources(10, 10, 0.01, 1)
    simulation = SimulatedConsistent(Cluster(of), sources, slot=2_000)
    for number, (_, hashes) in enumerate(pieces(wikipedia_like(20_000, 0.0932), 600_000, 1, 50_000)):
        simulation.feed(hashes)
        used = simulation.cluster.assigned * simulation.cluster.service / len(hashes)
        simulation.cluster.start_window()
        assert used.min() > 0
        if number >= 4:
            assert used.max() < 1.0 + 0.01 / of.min()
    assert np.bincount(sources.pairings[0].owner, minlength=10).min() >= 1


def test_a_source_that_hears_every_worker_may_take_the_last_virtual_worker() -> None:
    planner, source = Pairing(np.array([0, 1, 1])), Pairing(np.array([0, 1, 1]), least=1)
    for each in (planner, source):
        each.hear(0, Signal.BUSY)
        each.hear(1, Signal.IDLE)
    assert len(planner.pair()) == 1
    assert source.pair() == []
    assert source.owner.tolist() == [0, 1, 1]


def test_on_equal_workers_at_80_percent_nothing_moves() -> None:
    sources = ConsistentSources(10, 10, 0.01, 1)
    simulation = SimulatedConsistent(Cluster(capacities(10, 0, 1.0)), sources, slot=5_000)
    for _, hashes in pieces(wikipedia_like(20_000, 0.0932), 200_000, 1):
        simulation.feed(hashes)
    assert sources.moves <= 2


def test_messages_come_to_sources_in_turn() -> None:
    got: list[list[int]] = [[], [], []]

    def source(number: int):
        def route(hashes: np.ndarray) -> np.ndarray:
            got[number].extend(hashes.tolist())
            return np.full(len(hashes), number, np.int32)

        return route

    route = from_sources([source(number) for number in range(3)])
    hashes = np.arange(20, dtype=np.uint64)
    chosen = np.concatenate([route(hashes[:7]), route(hashes[7:8]), route(hashes[8:])])
    assert chosen.tolist() == [i % 3 for i in range(20)]
    assert got == [list(range(number, 20, 3)) for number in range(3)]


def test_a_tally_counts_messages_and_distinct_keys() -> None:
    rng = np.random.default_rng(1)
    keys, workers = rng.integers(0, 50, 900), rng.integers(0, 70, 900).astype(np.int32)
    tally = Tally(50, 70)
    tally.add(keys[:400], workers[:400])
    tally.add(keys[400:], workers[400:])
    assert tally.loads.tolist() == np.bincount(workers, minlength=70).tolist()
    assert tally.replicas == len(set(zip(keys.tolist(), workers.tolist(), strict=True)))


def test_the_stream_has_the_papers_most_frequent_key() -> None:
    assert zipf_probabilities(2_900_000, zipf_exponent(2_900_000, 0.0932))[0] == pytest.approx(0.0932, rel=1e-6)
    keys, hashes = next(pieces(wikipedia_like(1_000, 0.3), 10_000, 4))
    assert np.mean(keys == 0) == pytest.approx(0.3, abs=0.02)
    assert np.array_equal(hashes, hash_int64(keys + (4 << 40)))


SMALL = {
    "cg-eps": {"messages": 200_000, "keys": 20_000},
    "cg-schemes": {"messages": 400_000, "keys": 20_000, "workers": [5, 10, 50, 100]},
    "cg-sources": {"messages": 400_000, "keys": 20_000, "workers": [5, 10], "sources": [1, 10]},
    "cg-skew": {"messages": 200_000, "keys": 5_000, "workers": [10, 100], "exponents": [0.5, 2.0]},
    "cg-equal": {"messages": 300_000, "keys": 20_000, "slot": 1_000},
    "cg-hetero": {"messages": 300_000, "keys": 20_000, "slot": 1_000},
    "cg-virtual": {"messages": 300_000, "keys": 20_000, "slot": 1_000},
    "cg-range": {"messages": 100_000, "keys": 20_000, "slot": 500, "windows": 10, "faster": [9], "times": [10.0]},
    "cg-change": {"messages": 600_000, "keys": 20_000, "slots": {"8 s": 200, "1 minute": 500, "5 minutes": 2_500}},
}


@pytest.mark.parametrize("experiment", CONSISTENT, ids=lambda experiment: experiment.id)
def test_each_experiment_gives_what_its_claims_and_plots_ask_for(experiment) -> None:
    """Streams this small are not the paper's: that claims can be judged is tested here, not that they hold."""
    assert EXPERIMENTS[experiment.id] is experiment
    reported: list[float] = []
    result = experiment.carry_out(SMALL[experiment.id], reported.append, quick=True)
    assert reported[-1] == pytest.approx(1.0)
    columns = set(result["series"][0])
    assert all(set(row) == columns for row in result["series"])
    assert all({plot.x, plot.y, plot.line, *plot.only} <= columns for plot in experiment.plots)
    assert len(result["claims"]) == len(experiment.claims)


def test_few_messages_show_what_grouping_by_key_cannot() -> None:
    result = EXPERIMENTS["cg-hetero"].carry_out(SMALL["cg-hetero"], lambda _: None)
    assert next(claim["holds"] for claim in result["claims"])
    assert result["summary"]["utilisation of CG in the second half"] < 0.3 < result["summary"]["utilisation of SG at the end"]
