"""Steps that are refused or taken back: how often they are repeated, and from when on that is reported."""

from __future__ import annotations

from support.operator_world import World

from streamtopology.k8s.decide.attempts import Refusal, aim_of, allowed, is_repeated, noted, trouble, under
from streamtopology.k8s.decide.steps import Finalizer, MakeSecret

SECRET, FINALIZER = MakeSecret("flow-spark"), Finalizer(present=True)
REFUSED = ("ApplyRefused", "no")


def test_refusal_that_may_pass_is_reported_from_its_third_time_on():
    known = None
    reported = []
    for time in range(4):
        known = noted(known, SECRET, float(time), Refusal(REFUSED, 3))
        reported.append(trouble([SECRET], {aim_of(SECRET): known}, time))
    assert reported == [None, None, REFUSED, REFUSED]
    contested = trouble([SECRET], {aim_of(SECRET): noted(known, SECRET, 5.0)}, 5.0)
    assert contested is not None
    assert contested[0] == "Contested", "it went well, and is wanted once more"


def test_what_went_well_under_another_generation_is_no_fight():
    known = None
    for time in range(6):
        known = noted(known, SECRET, float(time), generation=time)
        assert under({aim_of(SECRET): known}, time + 1) == {}
    again = {aim_of(SECRET): noted(known, SECRET, 6.0, generation=5)}
    assert trouble([SECRET], under(again, 5), 6.0) is not None
    refused = {aim_of(SECRET): noted(None, SECRET, 0.0, Refusal(REFUSED), 1)}
    assert under(refused, 2) == refused, "the cluster refuses it, whatever the edit"


def test_finalizer_has_its_pauses_and_nothing_is_made_before_it():
    known = {aim_of(FINALIZER): noted(None, FINALIZER, 100.0)}
    assert allowed([FINALIZER, SECRET], known, 100.25) == ((), 0.25)
    assert allowed([FINALIZER, SECRET], known, 100.5) == ((FINALIZER, SECRET), None)
    assert allowed([SECRET, FINALIZER], known, 100.25) == ((SECRET,), 0.25)


def test_step_that_was_refused_or_waits_tells_nothing_again():
    refused = noted(None, SECRET, 100.0, Refusal(REFUSED))
    waiting = noted(None, SECRET, 100.0)
    for known, now, repeated in ((refused, 200.0, True), (waiting, 100.25, True), (waiting, 200.0, False)):
        assert is_repeated([FINALIZER, SECRET], {aim_of(SECRET): known}, now) == repeated
    assert not is_repeated([MakeSecret("other")], {aim_of(SECRET): refused}, 100.0)


def test_change_that_the_cluster_refuses_is_told_once(world: World):
    world.change(executors=[{"name": "large", "replicas": 3, "cpu": "400m", "memory": "1Gi"}])
    first = world.decide()
    assert [event.reason for event in first.events] == ["Scaling"]
    for step in first.steps:
        world.attempts[aim_of(step)] = noted(None, step, world.now, Refusal(("ApplyRefused", "it is immutable")))
    for seconds in (0.0, 0.25, 60.0):
        world.now += seconds
        assert "Scaling" not in [event.reason for event in world.decide().events]
