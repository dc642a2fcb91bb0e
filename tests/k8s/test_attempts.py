"""Steps that are refused or taken back: how often they are repeated, and from when on that is reported."""

from __future__ import annotations

from typing import Any

import pytest
from support.operator_world import World

from streamtopology.k8s import names
from streamtopology.k8s.decide.attempts import MOST_NAMED, Refusal, aim_of, allowed, is_repeated, noted, trouble, under
from streamtopology.k8s.decide.steps import Finalizer, MakeSecret
from streamtopology.k8s.io.apply import NameTakenError
from streamtopology.k8s.io.refusals import LEFT_OVER_TRIES, report_of
from streamtopology.k8s.resources.objects import Owner

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


OWNER = Owner("flow", "space", "uid-2")
FORMER = [{"kind": "StreamTopology", "name": "flow", "uid": "uid-1"}]
HELD = {"deletionTimestamp": "2026-11-28T03:30:00Z", "finalizers": ["example.com/hold", "example.com/other"]}


def taken(name: str, **metadata: Any) -> NameTakenError:
    return NameTakenError(names.SECRET, {"metadata": {"name": name, **metadata}}, OWNER)


@pytest.mark.parametrize("count", [1, 4, MOST_NAMED, MOST_NAMED + 3])
def test_every_object_whose_name_is_taken_is_named_and_the_remedy_once(count: int):
    steps = [MakeSecret(f"flow-{number}") for number in range(count)]
    known = {aim_of(step): noted(None, step, 0.0, report_of(step, taken(step.name))) for step in steps}
    found = trouble([FINALIZER, *steps], known, 1.0)
    assert found is not None
    reason, text = found
    assert reason == "NameTaken"
    assert [step.name in text for step in steps] == [number < MOST_NAMED for number in range(count)]
    assert text.count("give the topology another name, or delete what is in its way") == 1
    assert ("(and 3 more)" in text) == (count > MOST_NAMED)


@pytest.mark.parametrize(
    ("owners", "says"),
    [
        (FORMER, "Secret flow-spark is of a former topology 'flow' and will be deleted with it"),
        ([], "Secret flow-spark exists and is not of this topology"),
        ([{"kind": "Job", "name": "other", "uid": "uid-3"}], "Secret flow-spark exists and belongs to Job other"),
    ],
)
def test_taken_name_whose_object_a_finalizer_keeps_names_the_finalizer(owners: list[dict[str, str]], says: str):
    plain, held = (report_of(SECRET, taken("flow-spark", ownerReferences=owners, **more)) for more in ({}, HELD))
    assert plain.problem == ("NameTaken", says)
    assert held.problem == ("NameTaken", f"{says}; it is being deleted and waits for example.com/hold, example.com/other")
    assert (held.tries == LEFT_OVER_TRIES) == (owners == FORMER), "what is left over mostly goes by itself"
