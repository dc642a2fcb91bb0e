"""Reports: merge patches of status, when it is written, durations and stalled tuples."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.operator_world import World, manifest

from streamtopology.contract.reason_text import describe
from streamtopology.contract.reasons import Binding, BindingKind, EpochReason, Hold, HoldReason
from streamtopology.contract.stats import Batch, Rerouting
from streamtopology.k8s.decide import events, status
from streamtopology.k8s.decide.answers import Gain, Judgement
from streamtopology.k8s.io.apply import merge_patch
from streamtopology.k8s.io.metrics import tuples_stalled

unhurried = settings(suppress_health_check=[HealthCheck.too_slow])  # the first draw waits for a busy machine
leaves = st.integers(0, 2) | st.sampled_from(["", "text", [1], [2]])
inner = st.dictionaries(st.sampled_from("ab"), leaves, max_size=2)
statuses = st.dictionaries(st.sampled_from("abc"), leaves | inner, max_size=3)


def merged(body: Any, patch: Any) -> Any:
    """RFC 7386, word by word."""
    if not isinstance(patch, dict):
        return patch
    result = dict(body) if isinstance(body, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result


@unhurried
@given(statuses, statuses)
def test_a_merge_patch_makes_the_new_status_of_the_old(old: dict[str, Any], new: dict[str, Any]):
    assert merged(old, merge_patch(old, new)) == new
    assert merge_patch(new, new) == {}


@unhurried
@given(statuses, statuses, statuses)
def test_merge_patch_leaves_whole_values_after_concurrent_writes(
    old: dict[str, Any], new: dict[str, Any], meanwhile: dict[str, Any]
):
    """Two operators at once: an intent that one takes further as the other ends it must not be left without its beginning."""
    patch = merge_patch(old, new)
    left = merged(meanwhile, patch)
    for name in patch.keys() & new.keys():
        assert left[name] == new[name] or left[name].items() >= new[name].items()


def test_changed_figures_alone_are_not_written():
    world = World(manifest())
    world.settle()
    reported = world.manifest["status"]
    assert not status.is_news(reported, {**reported, "batch": 99, "imbalance": 0.5, "throughput": 7})
    assert status.is_news(reported, {**reported, "epoch": 99})
    other = copy.deepcopy(reported)
    other["conditions"][0]["reason"] = "Other"
    assert status.is_news(reported, other)


def test_only_figures_that_somebody_would_notice_are_noticeable():
    usual = {"throughput": 1000, "bound": 2000, "imbalance": 0.05, "batch": 7}
    for noise in ({"batch": 900}, {"throughput": 950}, {"bound": 2100}, {"imbalance": 0.09}):
        assert not status.is_noticeable(usual, {**usual, **noise}), noise
    for change in ({"throughput": 500}, {"throughput": 1200}, {"bound": 3000}, {"imbalance": 0.2}):
        assert status.is_noticeable(usual, {**usual, **change}), change
    assert status.is_noticeable({}, usual)


def test_a_new_obstacle_under_the_same_reason_is_noticeable():
    world = World(manifest())
    world.settle()
    reported, other = world.manifest["status"], copy.deepcopy(world.manifest["status"])
    by_type = {one["type"]: one for one in other["conditions"]}
    by_type["Balanced"]["message"] += " or so"
    assert not status.is_noticeable(reported, other)
    by_type["Ready"]["message"] += "; no node takes flow-large-0"
    assert not status.is_news(reported, other)
    assert status.is_noticeable(reported, other)


def test_constraint_of_batches_is_written_when_its_subject_changes():
    world = World(manifest())
    world.settle()
    assert "boundBy" not in world.decide().status
    world.binding = Binding(BindingKind.KEY, "counts", 1.27, 0.61, instance=1, key="Berlin", combinable=False)
    first = world.decide().status["boundBy"]
    assert (first["kind"], first["stage"], first["key"], first["text"]) == ("key", "counts", "Berlin", describe(world.binding))
    world.manifest["status"], world.now = {**world.manifest["status"], "boundBy": first}, world.now + 100
    world.binding = replace(world.binding, seconds=1.31)
    assert world.decide().status["boundBy"] == first, "other figures alone are not written"
    world.binding = replace(world.binding, key="Paris")
    assert world.decide().status["boundBy"]["text"] == describe(world.binding)
    world.binding = Binding(BindingKind.INSTANCE, "counts", 1.27, 0.61, instance=1)
    assert world.decide().status["boundBy"]["instance"] == 1
    world.binding = Binding(BindingKind.ELSEWHERE, "counts", 0.2, 0.1, batch_seconds=1.0)
    assert "stage" not in world.decide().status["boundBy"], "which stage is longest says nothing then"


def test_another_constraint_is_noticeable_and_written_no_sooner_than_figures():
    before = {"boundBy": {"kind": "capacity", "stage": "counts"}}
    now = {"boundBy": {"kind": "fixed", "stage": "counts"}}
    assert status.is_noticeable(before, now)
    assert not status.is_news(before, now)


def test_a_condition_keeps_the_time_of_its_last_turn():
    world = World(manifest())
    world.settle()
    before = {one["type"]: one["lastTransitionTime"] for one in world.manifest["status"]["conditions"]}
    world.now += 100
    world.imbalance = 0.5
    after = {one["type"]: one["lastTransitionTime"] for one in world.decide().status["conditions"]}
    assert after["Ready"] == before["Ready"]
    assert after["Balanced"] > before["Balanced"]


def test_a_change_takes_from_its_beginning_to_its_first_batch():
    world = World(manifest())
    world.settle()
    world.change(rebalance={"tolerance": 0.2})
    world.carry_out(world.decide())
    world.now += 3
    world.work()
    decision = world.decide()
    assert events.reconfigured_seconds(world.look(), decision.status) == pytest.approx(2.9), "the batch took 0.1 s"
    assert any(event.reason == "Reconfigured" and "2.9 s" in event.message for event in decision.events)


def test_a_rerouting_is_reported_once_and_its_gain_once_it_is_known():
    world = World(manifest())
    world.settle()
    world.events.clear()
    change = Rerouting(2, 9, "counts", EpochReason.of_text("imbalance 50 %"), 412, 1_200_000, 0.4)
    world.reroutings = (change, replace(change, operator="(source)", keys_moved=0))
    world.settle()
    world.settle()
    world.gains = (Gain(2, predicted=0.38, measured=0.3),)
    world.settle()
    reported = [(reason, message) for reason, message in world.events if reason in ("Rerouted", "GainMeasured")]
    assert [reason for reason, _ in reported] == ["Rerouted", "Rerouted", "GainMeasured"]
    assert "since batch 9: counts moved 412 keys, 1.20 MB; imbalance 50 %" in reported[0][1]
    assert "since batch 9: no keys moved; imbalance 50 %" in reported[1][1]
    assert "gained 30 % of a batch, expected 38 %" in reported[2][1]
    assert world.manifest["status"]["lastRerouting"]["measuredGain"] == 0.3


def batch(number: int, epoch: int, seconds: float) -> Batch:
    return Batch(number=number, epoch=epoch, rows=1000, seconds=seconds, committed_at=0.0)


def test_tuples_stalled_are_the_extra_seconds_of_a_switch_times_the_usual_rate():
    usual = [batch(number, 1, 1.0) for number in range(4)]
    assert tuples_stalled([*usual, batch(4, 2, 1.5)]) == pytest.approx(500)
    assert tuples_stalled([*usual, batch(4, 2, 0.8)]) == 0.0
    assert tuples_stalled(usual) is None
    assert tuples_stalled([batch(4, 2, 1.5)]) is None


def test_balanced_follows_the_last_judgement_not_a_single_batch():
    world = World(manifest(), imbalance=0.01)
    world.judgement = Judgement("hold", Hold(HoldReason.NOT_DUE), 1, verdict=Hold(HoldReason.BALANCED), imbalance=0.5)
    world.settle()
    assert [one["status"] for one in world.manifest["status"]["conditions"] if one["type"] == "Balanced"] == ["False"]
    world.imbalance, world.judgement = 0.9, replace(world.judgement, imbalance=0.05)
    world.settle()
    assert [one["status"] for one in world.manifest["status"]["conditions"] if one["type"] == "Balanced"] == ["True"]
    assert world.manifest["status"]["imbalance"] == 0.05
