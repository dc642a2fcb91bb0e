"""The constraint that bounds a batch: three instances of 100,000 rows/s and one of 30,000, fixed seconds 0.05."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.four_instances import INSTANCES, counting, model, report
from support.observed import BASE, SLOTS, Stream
from support.rerouted import FACTS, Run

from streamtopology.contract.reason_text import describe
from streamtopology.contract.reasons import SOURCE, Binding, BindingKind
from streamtopology.routing.control.binding import binding
from streamtopology.routing.control.decisions import PartCosts
from streamtopology.routing.control.stages import ShareStage, TableStage
from streamtopology.routing.load.key_label import with_label


def bound(stage: TableStage | ShareStage, measured: float = 1.0, batch_seconds: float = 1.0, **known: bool) -> Binding:
    found = binding([stage], model(), {stage.name: measured}, batch_seconds, 0.08, known)
    assert found is not None
    return found


def test_key_that_alone_takes_longer_than_all_together_is_named():
    """120,000 rows last 1.25 s at the fastest instance; 200,000 + 0.05 s * 330,000 of 330,000 rows/s last 0.656 s."""
    found = bound(counting((30_000, 120_000, 30_000, 20_000), key_rows=120_000), count=False)
    assert found.kind is BindingKind.KEY
    assert (found.seconds, found.bound_seconds) == (pytest.approx(1.25), pytest.approx(216_500 / 330_000))
    assert describe(found) == (
        "count is bounded by one key: 00000000deadbeef alone takes 1.2 s at instance 0, all together would take 656 ms, "
        "the state of count cannot be combined"
    )


@pytest.mark.parametrize(
    ("known", "ends"), [({"count": True}, "a policy that splits keys would divide it"), ({}, "all together would take 656 ms")]
)
def test_advice_on_a_heavy_key_follows_what_is_known(known: dict[str, bool], ends: str):
    assert describe(bound(counting((30_000, 120_000, 30_000, 20_000), key_rows=120_000), **known)).endswith(ends)


@pytest.mark.parametrize(("splitting", "kind"), [(PartCosts(2e-5, apart=False), BindingKind.CAPACITY), (None, BindingKind.KEY)])
def test_key_that_routers_divide_does_not_bound_its_operator(splitting: PartCosts | None, kind: BindingKind):
    """Its 156,000 of 198,000 rows are dealt to all instances, so that these finish together."""
    reports = [report(0, 60_000, 50_000), report(1, 60_000, 50_000), report(2, 60_000, 50_000), report(3, 18_000, 6_000)]
    stage = replace(counting((60_000, 60_000, 60_000, 18_000)), reports=reports, present=reports, splitting=splitting)
    assert bound(stage, count=True).kind is kind


def test_label_of_the_key_comes_from_reports_that_have_it():
    found = bound(counting((30_000, 120_000, 30_000, 20_000), key_rows=120_000))
    whole = report(1, 120_000, 120_000)
    assert with_label(found, [report(0, 10, 0), whole]).key == "Berlin"
    assert with_label(found, [replace(whole, heavy_labels=("",))]).key == "00000000deadbeef"
    assert with_label(found, []).key == "00000000deadbeef"


def test_balanced_instances_are_bounded_by_capacity():
    found = bound(counting((60_600, 60_600, 60_600, 18_200)))
    assert (found.kind, found.bound_seconds) == (BindingKind.CAPACITY, pytest.approx(216_500 / 330_000))
    assert found.fixed_share == pytest.approx(0.05 / (216_500 / 330_000))
    assert describe(found) == (
        "count is bounded by capacity: its instances finish together after 656 ms, fixed seconds are 8 % of it"
    )


def test_instance_behind_the_others_is_named():
    found = bound(counting((50_000, 50_000, 50_000, 50_000)))
    assert (found.kind, found.instance, found.seconds) == (BindingKind.INSTANCE, 3, pytest.approx(0.05 + 50 / 30))
    assert describe(found) == "count is bounded by instance 3: it takes 1.7 s, all together would take 656 ms"


def test_fixed_seconds_bound_small_batches():
    """3,300 rows last 10 ms of 60."""
    found = bound(counting((1_000, 1_000, 1_000, 300)), measured=0.06, batch_seconds=0.1)
    assert describe(found) == "count is bounded by fixed seconds: 83 % of its 60 ms, larger batches would help"


def test_batch_that_mostly_runs_elsewhere_is_not_routings():
    found = bound(counting((60_600, 60_600, 60_600, 18_200)), measured=0.66, batch_seconds=2.0)
    assert found.kind is BindingKind.ELSEWHERE
    assert describe(found) == "routing is not the bound: tasks take 660 ms of a batch, the driver and waiting 1.3 s"


def test_source_is_a_stage_and_the_longest_one_counts():
    reading = ShareStage(SOURCE, INSTANCES, 330_000.0, np.array([0.0, 0.5, 0.5, 0.0]))
    found = binding([counting((60_600, 60_600, 60_600, 18_200)), reading], model(), {"count": 0.66, SOURCE: 1.7}, 2.4, 0.08, {})
    assert found is not None
    assert (found.stage, found.kind, found.seconds) == (SOURCE, BindingKind.INSTANCE, pytest.approx(1.7))
    assert describe(found) == "the source is bounded by executor slot 1: it takes 1.7 s, all together would take 1.1 s"


def test_nothing_measured_has_no_bound():
    assert binding([], model(), {}, 1.0, 0.08, {}) is None


def test_operator_that_no_planner_routes_is_not_judged():
    assert binding([counting((1, 1, 1, 1))], model(), {"count": 0.2, "posg": 0.7}, 1.0, 0.08, {}) is None


def test_controller_knows_the_bound_of_what_it_observed():
    run = Run(Stream(7, zipf=2.5, speeds=np.ones(SLOTS)))
    assert run.controller.binding(run.epoch, FACTS) is None
    found = run.go(40).controller.binding(run.epoch, replace(FACTS, combinable={"count": False}))
    assert found is not None
    assert (found.kind, found.stage, found.combinable) == (BindingKind.KEY, "count", False)
    heaviest = int(run.stream.hashes[0])
    assert found.key == f"{heaviest:016x}"
    alone = run.stream.shares[0] * run.stream.rows / BASE["count"] + run.stream.fixed
    assert found.seconds == pytest.approx(alone, rel=0.1)
