"""More or fewer executors, planned: what a new slot gets before anything was measured of it, and shares over others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.observed import BASE, Stream
from support.reasons import BY_TEST

from streamtopology.routing.control.controller import Controller
from streamtopology.routing.control.decisions import TopologyFacts
from streamtopology.routing.control.feed import CommittedBatch
from streamtopology.routing.epochs.epoch import Epoch, Route
from streamtopology.routing.epochs.placement import Placement
from streamtopology.routing.epochs.rescaling import instances_of, rescaled_shares, slot_names, with_replicas
from streamtopology.routing.load.load_report import LoadReport
from streamtopology.routing.table.table import moved
from streamtopology.topology import Rebalance, Topology, parse, to_manifest

NAMES = ("large-0", "large-1", "large-2", "small-0")


def topology(parallelism: int | None = None) -> Topology:
    operators = [{"name": "plain", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "count"}]
    if parallelism is not None:
        operators.append({**operators[0], "name": "told", "parallelism": parallelism})
    return parse(
        {
            "apiVersion": "streamtopology.dev/v1alpha1",
            "kind": "StreamTopology",
            "metadata": {"name": "scaled"},
            "spec": {
                "sources": [{"name": "s", "format": "parquet", "schema": "k BIGINT", "options": {"path": "data"}}],
                "operators": operators,
                "executors": [{"name": "large", "replicas": 3}, {"name": "small", "replicas": 1, "cpu": "300m"}],
            },
        }
    )


def test_slots_are_named_by_class_and_ordinal() -> None:
    assert slot_names(topology()) == NAMES


def test_operators_that_name_no_parallelism_follow_the_executors() -> None:
    scaled = with_replicas(topology(parallelism=6), "large", 5)
    assert scaled.replicas == 6
    assert [operator.parallelism for operator in scaled.operators] == [6, 6]
    shrunk = with_replicas(topology(parallelism=6), "large", 1)
    assert [operator.parallelism for operator in shrunk.operators] == [2, 6]
    assert instances_of(scaled.operator("plain"), executors=4) == 4, "two of six have not come yet"
    again = parse(to_manifest(shrunk))
    assert [operator.parallelism for operator in with_replicas(again, "large", 3).operators] == [4, 6], "nor does a file forget"
    named = with_replicas(topology(parallelism=4), "large", 1)
    assert [operator.parallelism for operator in named.operators] == [2, 4], "as many as replicas, but named"


@pytest.mark.parametrize(
    ("name", "replicas", "found"), [("huge", 1, "there are: large, small"), ("large", -1, "0 executors or more")]
)
def test_a_scaling_that_cannot_be_is_refused(name: str, replicas: int, found: str) -> None:
    with pytest.raises(ValueError, match=found):
        with_replicas(topology(), name, replicas)
    with pytest.raises(ValueError, match="none at all"):
        with_replicas(with_replicas(topology(), "small", 0), "large", 0)


@settings(max_examples=200)
@given(
    st.lists(st.just(0.0) | st.floats(0.01, 1.0), min_size=4, max_size=4).filter(sum),
    st.sets(st.sampled_from([*NAMES, "large-3", "small-1"]), min_size=1),
)
def test_shares_of_slots_that_stay_keep_their_proportion(weights: list[float], names: set[str]) -> None:
    before = Placement.first(NAMES, 4)
    after = before.rescaled(sorted(names), len(names))
    shares = [weight / sum(weights) for weight in weights]
    rescaled = rescaled_shares(shares, before, after)
    if not rescaled:
        assert not any(shares[slot] for slot in after.present if slot in before.present)
        return
    assert sum(rescaled) == pytest.approx(1.0)
    assert all(share == 0 for slot, share in enumerate(rescaled) if slot not in after.present)
    staying = [slot for slot in after.present if slot in before.present]
    unit = 1 / sum(shares[slot] if slot in before.present else 0.25 for slot in after.present)
    assert [rescaled[slot] for slot in staying] == pytest.approx([shares[slot] * unit for slot in staying])


SPEEDS = np.array([1.0, 1.0, 0.3, 1.0])


def observed(controller: Controller, stream: Stream, epoch: Epoch) -> None:
    for number in range(6):
        seconds, reports, sources = stream.batch(epoch)
        controller.observe(
            CommittedBatch(number, epoch.number, seconds, [r for r in reports if r.instance < 3], sources[:3]).observed()
        )


def loads(stream: Stream, route: Route) -> np.ndarray:
    assert route.table is not None
    return np.bincount(route.table.lookup(stream.hashes), stream.rows * stream.shares, 4)


def test_new_slot_counts_by_declared_cpu_and_others_as_measured() -> None:
    stream = Stream(5, speeds=SPEEDS, noise=0.01)
    three = Placement.first(("large-0", "large-1", "small-0"), 3)
    table = stream.first_epoch().routes["count"].table
    assert table is not None
    route = Route("mixed", table.rescaled([0, 1, 2]), (0, 1, 2))
    first = Epoch(1, {"count": route}, (), BY_TEST, three)
    controller = Controller(Rebalance(), lambda: 0.0)
    observed(controller, stream, first)
    four = three.rescaled(("large-0", "large-1", "large-2", "small-0"), 4)
    wider = Epoch(
        2,
        {"count": replace(route, table=table.rescaled([0, 1, 2, 3]), instances=(0, 1, 2, 3))},
        (),
        BY_TEST,
        four,
    )
    fitted = controller.fit_epoch(wider, TopologyFacts((1.0, 1.0, 0.3, 1.0), {"count": "mixed"}))
    planned = fitted.routes["count"].table
    assert planned is not None
    finish = loads(stream, fitted.routes["count"]) / (BASE["count"] * SPEEDS)
    assert finish.max() <= 1.05 * finish.mean()
    assert np.array(fitted.source_shares)[[0, 3]] == pytest.approx([0.3, 0.3], abs=0.05)

    two = four.rescaled(("large-0", "small-0"), 2)
    narrow = replace(fitted.routes["count"], table=planned.rescaled([0, 2]), instances=(0, 2))
    shares = rescaled_shares(fitted.source_shares, four, two)
    shrunk = controller.fit_epoch(
        Epoch(3, {"count": narrow}, shares, BY_TEST, two),
        TopologyFacts((1.0, 1.0, 0.3, 1.0), {"count": "mixed"}),
    )
    after = shrunk.routes["count"]
    assert after.table is not None
    assert set(after.table.lookup(stream.hashes).tolist()) == {0, 2}
    done = loads(stream, after)[[0, 2]] / (BASE["count"] * SPEEDS[[0, 2]])
    assert done.max() <= 1.05 * done.mean()
    assert len(shrunk.source_shares) == 4
    assert shrunk.source_shares[1] == shrunk.source_shares[3] == 0.0
    changed, was, _ = moved(planned, after.table, stream.hashes)
    assert changed[np.isin(was, [1, 3])].all()
    assert changed[np.isin(was, [0, 2])].mean() < 0.2, "keys of instances that stay hardly move"


def test_rescaling_with_mode_off_moves_only_what_it_must() -> None:
    stream = Stream(5, speeds=SPEEDS)
    controller = Controller(Rebalance(mode="Off"), lambda: 0.0)
    observed(controller, stream, stream.first_epoch())
    wider = replace(stream.first_epoch(), placement=Placement.first(NAMES, 4))
    assert controller.fit_epoch(wider, TopologyFacts((1.0,) * 4, {"count": "mixed"})) is wider


def test_nothing_is_planned_for_a_slot_that_is_gone() -> None:
    placement = Placement.first(NAMES, 4).rescaled(NAMES[:2], 2)
    route = Route("shuffle", None, (0, 1))
    epoch = Epoch(2, {"count": route}, (0.5, 0.5, 0.0, 0.0), BY_TEST, placement)
    controller = Controller(Rebalance(), lambda: 0.0)
    stream = Stream(1, policy="shuffle")
    for number in range(6):
        _, _, sources = stream.batch(replace(epoch, source_shares=(), routes={"count": Route("shuffle", None, (0, 1, 2, 3))}))
        reports = [LoadReport("count", i, i, 1000, 0.2 * (1 + 3 * i), 0.21 + 0.6 * i) for i in range(2)]
        controller.observe(CommittedBatch(number, 2, 1.0, reports, sources[:2]).observed())
    fitted = controller.fit_epoch(epoch, TopologyFacts((1.0,) * 4, choosers=frozenset({"count"})))
    capacities = fitted.routes["count"].options["capacities"]
    assert isinstance(capacities, list)
    assert len(capacities) == 2
    assert capacities[0] > 2 * capacities[1]
    assert fitted.source_shares[2:] == (0.0, 0.0)
