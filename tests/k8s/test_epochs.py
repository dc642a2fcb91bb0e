"""Epochs that are proposed, copied ahead, refused and withdrawn, and recommendations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.operator_world import World, condition, reasons, routing
from support.reasons import REBALANCED

from streamtopology.contract.stats import DriverRefusal
from streamtopology.k8s import names
from streamtopology.k8s.decide.answers import Judgement
from streamtopology.k8s.decide.rollout import LONGEST_PAUSE_SECONDS, STARTING_SECONDS
from streamtopology.k8s.instants import format_time

CUT = {"epoch": "H4sIAAAAAAAC"}
COUNTS = {"name": "counts", "inputs": ["rows"], "grouping": {"policy": "mixed", "key": "key"}, "run": "count"}


def proposal(number: int, moved_bytes: int = 1000) -> Judgement:
    return Judgement("reroute", REBALANCED, 1, number, b"packed", ("counts",), 0.2, 0.4, 10, moved_bytes)


def test_a_proposal_is_published_once_and_waited_for(world: World):
    assert world.driver is not None
    number = world.driver.newest + 1
    world.judgement = proposal(number)
    assert reasons(world.decide().steps) == ["apply ConfigMap flow-routing"]
    world.carry_out(world.decide())
    assert routing(world)["epochNumber"] == str(number)
    assert routing(world)["epochState"] == "ready"
    assert world.decide().steps == ()
    asked = world.decide().target.request
    assert (asked.may_judge, [one.name for one in asked.operators]) == (False, ["counts"])
    world.settle()
    assert world.driver.epoch == number
    assert [reason for reason, _ in world.events if reason == "Rerouting"] == ["Rerouting"]


def test_a_proposal_for_another_generation_is_not_published(world: World):
    world.change(rebalance={"interval": "3s"})
    world.settle()
    world.judgement = proposal(world.driver.newest + 1)
    assert world.decide().steps == ()


def test_large_state_is_copied_ahead_by_a_job(world: World):
    number = world.driver.newest + 1
    world.judgement = proposal(number, moved_bytes=2**30)
    world.carry_out(world.decide())
    assert routing(world)["epochState"] == "prepared"
    job = world.objects["Job", f"flow-migrate-{number}"]
    assert job["spec"]["template"]["spec"]["containers"][0]["args"][-1] == str(number)
    world.work()
    assert world.driver.epoch == number - 1
    is_complete(world, number)
    world.settle()
    assert world.driver.epoch == number


def migrate_ahead(world: World) -> int:
    """The number of an epoch whose migration Job has been made, and that nobody asks for any more."""
    number = world.driver.newest + 1
    world.now += LONGEST_PAUSE_SECONDS
    world.judgement = proposal(number, moved_bytes=2**30)
    world.carry_out(world.decide())
    world.judgement = None
    return number


def is_complete(world: World, number: int) -> None:
    """The epoch's migration Job has done."""
    world.objects["Job", f"flow-migrate-{number}"]["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}


def test_a_migration_that_fails_withdraws_its_epoch(world: World):
    number = migrate_ahead(world)
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too often"}
    world.objects["Job", f"flow-migrate-{number}"]["status"] = {"conditions": [failed]}
    world.settle()
    assert "epochNumber" not in routing(world)
    assert ("Job", f"flow-migrate-{number}") not in world.objects
    assert "MigrationFailed" in dict(world.events)


def copying(world: World, number: int, **status: Any) -> None:
    """The epoch's migration Job has a pod."""
    job = world.objects["Job", f"flow-migrate-{number}"]["metadata"]
    job["creationTimestamp"] = format_time(world.now)
    owner = {"kind": "Job", "name": job["name"], "uid": job["uid"], "controller": True}
    labels = names.labels("flow", "migration")
    metadata = {"name": f"{job['name']}-x", "uid": "uid-pod", "labels": labels, "ownerReferences": [owner]}
    pod = {"kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "migrate"}]}, "status": status}
    world.objects["Pod", metadata["name"]] = pod


def test_a_migration_that_does_not_start_is_reported_and_given_up(world: World):
    number = migrate_ahead(world)
    world.not_created = {("Job", f"flow-migrate-{number}"): "exceeded quota: team"}
    world.carry_out(world.decide())
    assert condition(world, "Degraded") == ("True", "MigrationNotStarted")
    world.not_created = {}
    spec = world.objects["Job", f"flow-migrate-{number}"]["spec"]
    spec["suspend"] = True
    conditions = world.decide().status["conditions"]
    assert "it is suspended (spec.suspend)" in next(one["message"] for one in conditions if one["type"] == "Degraded")
    spec["suspend"] = False
    no_room = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    copying(world, number, phase="Pending", conditions=[no_room])
    world.now += STARTING_SECONDS - 1
    world.carry_out(world.decide())
    assert routing(world)["epochState"] == "prepared"
    assert condition(world, "Degraded") == ("True", "MigrationNotStarted")
    world.now += 1
    world.settle()
    assert "epochNumber" not in routing(world)
    assert "no pod of it has started in 5 min 00 s: no node takes" in dict(world.events)["MigrationFailed"]


def test_a_migration_whose_pod_runs_has_its_time(world: World):
    copying(world, migrate_ahead(world), phase="Running")
    world.now += 2 * STARTING_SECONDS
    world.carry_out(world.decide())
    assert routing(world)["epochState"] == "prepared"
    assert condition(world, "Degraded") == ("False", "AsExpected")


def test_state_moves_with_the_batches_after_three_failed_migrations(world: World):
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too often"}
    for _ in range(3):
        number = migrate_ahead(world)
        assert routing(world)["epochState"] == "prepared"
        world.objects["Job", f"flow-migrate-{number}"]["status"] = {"conditions": [failed]}
        world.settle()
    assert "state moves in portions" in dict(world.events)["MigrationFailed"]
    number = migrate_ahead(world)
    assert routing(world)["epochState"] == "ready"
    assert ("Job", f"flow-migrate-{number}") not in world.objects
    world.settle()
    world.change(migration={"resources": {"memory": "2Gi"}})
    world.settle()
    number = world.driver.newest + 1
    world.judgement = replace(proposal(number, moved_bytes=2**30), generation=2)
    world.carry_out(world.decide())
    assert routing(world)["epochState"] == "prepared", "the manifest may have mended it"
    limits = world.objects["Job", f"flow-migrate-{number}"]["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert limits == {"requests": {"cpu": "100m", "memory": "2Gi"}, "limits": {"cpu": "500m", "memory": "2Gi"}}


def test_a_successful_migration_forgets_those_that_failed(world: World):
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too often"}
    number = migrate_ahead(world)
    world.objects["Job", f"flow-migrate-{number}"]["status"] = {"conditions": [failed]}
    world.settle()
    assert routing(world)["failedMigrations"] == "1"
    is_complete(world, migrate_ahead(world))
    world.settle()
    assert "failedMigrations" not in routing(world)


def test_a_migration_is_stopped_by_an_operator_killed_as_it_gave_up_the_epoch(world: World):
    number = migrate_ahead(world)
    world.change(rebalance={"tolerance": 0.3})
    world.carry_out(world.decide(), steps=1)
    assert "epochNumber" not in routing(world)
    world.settle()
    assert ("Job", f"flow-migrate-{number}") not in world.objects


def test_a_migration_that_has_done_is_no_migration_of_the_next_epoch_of_that_number(world: World):
    number = migrate_ahead(world)
    is_complete(world, number)
    world.change(migration={"threshold": "1Mi"})
    world.settle()
    assert world.driver.newest == number - 1
    assert ("Job", f"flow-migrate-{number}") not in world.objects


def test_the_migration_of_an_epoch_that_was_active_stays_to_be_looked_at(world: World):
    number = migrate_ahead(world)
    is_complete(world, number)
    world.settle()
    world.change(operators=[{**COUNTS, "run": "own.module:Class"}])
    world.settle()
    assert ("Job", f"flow-migrate-{number}") in world.objects


def test_an_epoch_that_the_driver_refuses_is_withdrawn(world: World):
    number = world.driver.newest + 1
    world.judgement, world.refused = proposal(number), DriverRefusal(number, None, "another generation")
    world.carry_out(world.decide())
    world.judgement = None
    world.settle()
    assert "epochNumber" not in routing(world)
    (reported,) = [message for reason, message in world.events if reason == "EpochRefused"]
    assert world.refused.why in reported


def test_an_epoch_that_is_refused_again_and_again_is_tried_less_and_less_often(world: World):
    """It was published every 12 seconds for ever, with "Recovered" and "Reconfigured" in between, 43 writes a minute."""
    number = world.driver.newest + 1
    world.judgement = proposal(number)
    world.refused = DriverRefusal(number, None, "another checkpoint")
    world.events.clear()
    published, writes, reasons = 0, 0, set[str]()
    for _ in range(360):
        before, status = routing(world), world.manifest["status"]
        world.carry_out(world.decide())
        world.work()
        published += "epochNumber" in routing(world) and "epochNumber" not in before
        writes += (routing(world) != before) + (world.manifest["status"] != status)
        reasons.add(condition(world, "Degraded")[1])
        world.now += 10
    assert 7 <= published <= 13, "pauses of 10 s to 10 min in an hour"
    assert writes <= 6 * published
    assert reasons <= {"AsExpected", "EpochRefused"}
    assert {reason for reason, _ in world.events} == {"Rerouting", "EpochRefused"}
    world.refused = None
    world.now += LONGEST_PAUSE_SECONDS
    world.carry_out(world.decide())
    world.judgement = None
    world.settle()
    assert world.driver.epoch == number
    assert condition(world, "Degraded") == ("False", "AsExpected")


@pytest.mark.parametrize("runs", [True, False], ids=["running", "starting"])
def test_an_epoch_whose_number_somebody_damaged_is_taken_out(world: World, runs: bool):
    """They hold the fields of the epoch from then on: to leave them out of what is applied does not remove them."""
    world.settle()
    if not runs:
        world.driver.epoch = None
    world.held_by_others = {"epochNumber": "many", "epochState": "prepared", "generation": "first"}
    world.objects["ConfigMap", "flow-routing"]["data"] |= world.held_by_others
    for _ in range(6):
        world.carry_out(world.decide())
    assert "epochNumber" not in routing(world)
    assert "epochState" not in routing(world)
    assert not [name for kind, name in world.objects if kind == "Job"]
    assert not [step for step in world.decide().steps if "flow-routing" in str(step)]


@pytest.mark.parametrize("runs", [True, False], ids=["running", "starting"])
def test_an_epoch_whose_content_somebody_damaged_is_taken_out(world: World, runs: bool):
    """A driver that starts waits for a ConfigMap that it can read, and has nothing to refuse."""
    world.judgement = proposal(world.driver.newest + 1)
    world.settle()
    assert "epochNumber" in routing(world)
    if not runs:
        world.driver.epoch = None
    assert_taken_out(world, CUT)


def test_bytes_of_an_epoch_that_somebody_wrote_where_none_was_are_taken_out(world: World):
    world.settle()
    assert "epochNumber" not in routing(world)
    assert_taken_out(world, CUT)


def assert_taken_out(world: World, damage: dict[str, str]) -> None:
    world.judgement, world.bytes_held_by_others = None, dict(damage)
    world.objects["ConfigMap", "flow-routing"].setdefault("binaryData", {}).update(damage)
    for _ in range(6):
        world.carry_out(world.decide())
    assert "epochNumber" not in routing(world)
    assert not world.objects["ConfigMap", "flow-routing"].get("binaryData")
    assert not [step for step in world.decide().steps if "flow-routing" in str(step)]


def test_a_recommendation_is_reported_and_left(world: World):
    world.judgement = Judgement("recommend", REBALANCED, 1, 9, b"", ("counts",), 0.2, 0.4, 10, 1000)
    decision = world.decide()
    assert decision.steps == ()
    assert decision.status["recommendation"]["stages"] == ["counts"]
    assert "saves 200 ms a batch" in decision.status["recommendation"]["text"]
    world.carry_out(decision)
    assert condition(world, "Balanced") == ("False", "Recommended")
    assert [event.reason for event in world.decide().events] == [], "the same advice once"
