"""The snapshots of a schedule, by the whole operator in virtual time: when they are made, which go, and that no other does."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_api import NAME, NAMESPACE, FakeCluster
from support.operator_world import manifest
from support.virtual_operator import VirtualRelease
from support.virtual_time import run_virtual

from streamtopology.k8s import names
from streamtopology.k8s.decide.snapshot_schedule import MOST_MISSED, due_snapshot, missed, surplus
from streamtopology.k8s.instants import format_time
from streamtopology.k8s.resources.objects import Object
from streamtopology.topology import SnapshotSchedule


def scheduled(keep: int) -> Object:
    return manifest(NAME, snapshots={"schedule": "*/10 * * * *", "to": "s3://backups/flow/", "keep": keep})


def snapshots(cluster: FakeCluster) -> list[Object]:
    return [body for (kind, _), body in cluster.objects.items() if kind == names.SNAPSHOT.kind]


def drops(job: Object) -> dict[str, str]:
    """Identity and place of the copies that a Job deletes."""
    args = job["spec"]["template"]["spec"]["containers"][0]["args"]
    return {args[at + 1]: args[at + 2] for at, word in enumerate(args) if word == "--drop"}


def pod_of(job: Object, report: Object) -> Object:
    """The pod of a Job that has copied."""
    metadata, ended = job["metadata"], {"exitCode": 0, "message": json.dumps(report)}
    owner = {"kind": "Job", "name": metadata["name"], "uid": metadata["uid"], "controller": True}
    container = {"name": "snapshot", "state": {"terminated": ended}}
    names_of = {"name": f"{metadata['name']}-x", "namespace": NAMESPACE, "labels": metadata["labels"]}
    status = {"phase": "Succeeded", "containerStatuses": [container]}
    return {"kind": "Pod", "metadata": names_of | {"ownerReferences": [owner]}, "status": status}


def whole(number: int, uid: str = "uid-1", phase: str = "Completed") -> Object:
    return {
        "kind": names.SNAPSHOT.kind,
        "metadata": {
            "name": f"flow-{number:02}", "namespace": NAMESPACE, "uid": f"of-{number}", "labels": {names.SCHEDULE: uid},
            "creationTimestamp": format_time(1e9 + number),
        },
        "spec": {"topology": NAME, "to": f"s3://backups/flow/{number}"},
        "status": {"phase": phase},
    }  # fmt: skip


async def copying(cluster: FakeCluster) -> None:
    """The pods of snapshots, whose copies are whole after half a minute, and a driver that commits batches."""
    while True:
        await asyncio.sleep(30)
        cluster.world.batch += 1
        for (kind, _), job in list(cluster.objects.items()):
            if kind == names.JOB.kind and not job.get("status"):
                cluster.put(pod_of(job, {"batch": cluster.world.batch, "bytes": 1, "dropped": list(drops(job))}))
                cluster.put({**job, "status": {"conditions": [{"type": "Complete", "status": "True"}]}})


def test_schedule_makes_copies_and_deletes_its_oldest_and_no_others() -> None:
    """An operator is killed and started again meanwhile; at the end the schedule is taken away."""
    others: list[Object] = []

    async def story(cluster: FakeCluster, release: VirtualRelease) -> None:
        for number, labels in enumerate(({}, {names.SCHEDULE: "uid-of-an-earlier-topology"})):
            other = whole(number)
            other["metadata"]["labels"] = labels
            others.append(cluster.put(other))
        cluster.create(scheduled(keep=1))
        await asyncio.sleep(1200)
        await release.stop()
        release.start()
        await asyncio.sleep(600)
        assert sum("create StreamTopologySnapshot" in call for _, _, call in cluster.writes) == 3
        cluster.edit({"spec": {"snapshots": None}})
        await asyncio.sleep(700)

    async def played() -> FakeCluster:
        cluster = FakeCluster()
        running = [asyncio.create_task(each) for each in (cluster.run(), copying(cluster))]
        release = VirtualRelease(cluster, "operators")
        release.start()
        try:
            await story(cluster, release)
            assert not release.has_ended
            assert release.mistakes == 0
        finally:
            await release.stop()
            for task in running:
                task.cancel()
        return cluster

    cluster = run_virtual(played())
    left = {body["metadata"]["name"]: body for body in snapshots(cluster)}
    assert all(left.pop(other["metadata"]["name"]) == other for other in others)
    (newest,) = left.values()
    assert newest["status"]["phase"] == "Completed"
    assert int(newest["metadata"]["creationTimestamp"][14:16]) % 10 == 0, "within a minute of the time"
    deleted = [call for _, _, call in cluster.writes if call.startswith("delete StreamTopologySnapshot")]
    assert len(deleted) == len(set(deleted)) == 2
    jobs = [body for (kind, _), body in cluster.objects.items() if kind == names.JOB.kind]
    dropped = [place for job in jobs for place in drops(job).values()]
    assert len(dropped) == len(set(dropped)) == 2
    assert all(re.fullmatch(r"s3://backups/flow/20231114-\d{6}", place) for place in [*dropped, newest["spec"]["to"]])
    assert newest["spec"]["to"] not in dropped


SCHEDULE = SnapshotSchedule("30 3 * * *", "s3://backups/flow")
MIDNIGHT = 1_700_006_400.0  # of 2023-11-15


def running(batch: int | None) -> Object:
    body = manifest(NAME)
    body["metadata"]["creationTimestamp"] = format_time(MIDNIGHT)
    return body | {"status": {} if batch is None else {"batch": batch}}


def made(hours: float, phase: str, batch: int) -> Object:
    body = whole(1, phase=phase)
    body["metadata"]["creationTimestamp"] = format_time(MIDNIGHT + hours * 3600)
    body["metadata"]["annotations"] = {names.SCHEDULED_AT_BATCH: str(batch)}
    return body


@pytest.mark.parametrize(
    ("hours", "batch", "known", "is_due"),
    [
        (3.4, 7, [], False),
        (3.5, 7, [], True),
        (3.5, None, [], False),
        (3.6, 7, [made(3.5, "Completed", 5)], False),
        (27.5, 7, [made(3.5, "Completed", 5)], True),
        (27.5, 7, [made(3.5, "Completed", 7)], False),
        (27.5, 7, [made(3.5, "Completed", 5), made(20, "Completed", 7)], False),
        (27.5, 3, [made(3.5, "Completed", 5)], True),
        (27.5, 7, [made(3.5, "Running", 5)], False),
        (27.5, 7, [made(3.5, "Failed", 7)], True),
        (3.6, 7, [made(3.5, "Failed", 5)], False),
        (500, 7, [made(3.5, "Completed", 5)], True),
    ],
    ids=[
        "before the time", "at the time", "nothing committed", "made at that time", "a day later", "no batch since",
        "no batch since the newest", "rolled back since", "one is under way", "the last one failed", "failed just now",
        "after weeks away",
    ],
)  # fmt: skip
def test_snapshot_is_due_once_at_each_time(hours: float, batch: int | None, known: list[Object], is_due: bool) -> None:
    due = due_snapshot(running(batch), SCHEDULE, known, MIDNIGHT + hours * 3600)
    assert (due is not None) == is_due


@pytest.mark.parametrize(
    ("hours", "batch", "known", "times"),
    [
        (3.4, 7, [], 0),
        (3.6, 7, [], 1),
        (30, 7, [], 2),
        (30, None, [], 0),
        (30, 7, [made(3.5, "Completed", 5)], 1),
        (52, 7, [made(3.5, "Completed", 5)], 2),
        (52, 7, [made(3.5, "Completed", 7)], 0),
        (52, 7, [made(3.5, "Completed", 5), made(27.5, "Failed", 6), made(51.5, "Running", 7)], 2),
        (10_000, 7, [], MOST_MISSED),
    ],
    ids=[
        "before the first time", "one", "two", "nothing to copy", "none for the second", "none since", "has the last batch",
        "failed and unfinished ones are none", "as many as are counted",
    ],
)  # fmt: skip
def test_missed_times_are_those_since_the_newest_whole_copy(
    hours: float, batch: int | None, known: list[Object], times: int
) -> None:
    assert missed(running(batch), SCHEDULE, known, MIDNIGHT + hours * 3600) == times


def test_long_name_of_a_topology_leaves_room_for_the_time() -> None:
    body = running(7)
    body["metadata"]["name"] = f"{'a' * 37}-{'b' * 8}"
    due = due_snapshot(body, SCHEDULE, [], MIDNIGHT + 86_400)
    assert due is not None
    assert due["metadata"]["name"] == f"{'a' * 37}-20231116-000000"
    assert due["spec"]["topology"] == body["metadata"]["name"]


@given(
    st.permutations(range(8)),
    st.lists(st.sampled_from(["Completed", "Failed", "Running"]), min_size=8, max_size=8),
    st.lists(st.sampled_from(["uid-1", "uid-2", ""]), min_size=8, max_size=8),
    st.none() | st.integers(1, 4),
    st.sets(st.integers(0, 7)),
)
def test_surplus_is_what_is_whole_of_this_schedule_older_than_the_newest_and_not_in_use(
    order: list[int], ends: list[str], uids: list[str], keep: int | None, used: set[int]
) -> None:
    bodies = [whole(number, uids[number], ends[number]) for number in order]
    restoring = [manifest(f"r{number}", restore={"from": f"s3://backups/flow/{number}"}) for number in used if number % 2]
    running = [manifest(f"c{number}", checkpoint=f"s3://backups/flow/{number}/") for number in used if number % 2 == 0]
    found = surplus(whole(8), keep, [*bodies, whole(8)], [*restoring, *running])
    mine = [number for number in range(8) if ends[number] == "Completed" and uids[number] == "uid-1"]
    too_many = [] if keep is None else mine[: max(len(mine) - (keep - 1), 0)]
    assert [each["metadata"]["name"] for each in found] == [f"flow-{number:02}" for number in too_many if number not in used]


@pytest.mark.parametrize("labels", [{}, None])
def test_snapshot_of_nobodys_schedule_deletes_nothing(labels: dict[str, str] | None) -> None:
    body = whole(8)
    body["metadata"]["labels"] = labels
    others = [{**whole(1), "metadata": {**whole(1)["metadata"], "labels": labels}}, whole(2)]
    assert surplus(body, 1, [*others, body], []) == ()
