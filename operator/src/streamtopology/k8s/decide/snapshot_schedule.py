"""The snapshots of a schedule (`spec.snapshots`): the one that is due, and those that are too many. Pure.

They are those whose label has the topology's uid: no other snapshot is counted, and none is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice

from streamtopology.k8s import names
from streamtopology.k8s.decide.fields import mapping_at
from streamtopology.k8s.decide.places import checkpoint_owner, place_of
from streamtopology.k8s.decide.snapshots import SnapshotPhase, is_ended
from streamtopology.k8s.instants import parse_time
from streamtopology.k8s.resources.objects import Object
from streamtopology.topology import SnapshotSchedule
from streamtopology.topology.cron import Cron

# The time is the rest of the name.
_LONGEST_BEGINNING = 38

# Times that have passed are counted up to here.
MOST_MISSED = 100

# Copies that one Job deletes: their names have to fit into the report of its pod.
MOST_DROPPED = 50


def due_snapshot(topology: Object, schedule: SnapshotSchedule, bodies: Iterable[Object], now: float) -> Object | None:
    """The snapshot to create now, if any: one at a time, and none while no batch is known since the newest whole one.

    Copies of a topology that stands still would push out those of before it stopped.
    """
    made = _of_schedule(topology["metadata"]["uid"], bodies)
    if any(not is_ended(each) for each in made):
        return None
    if not _has_news(topology, made):
        return None
    since = max(parse_time(each["metadata"]["creationTimestamp"]) for each in (topology, *made))
    return _snapshot(topology, schedule, now) if Cron.parse(schedule.schedule).newest(since, now) is not None else None


def missed(topology: Object, schedule: SnapshotSchedule, bodies: Iterable[Object], now: float) -> int:
    """The times of the schedule that have passed since the newest whole copy, if there is anything that it has not."""
    made = _of_schedule(topology["metadata"]["uid"], bodies)
    if not _has_news(topology, made):
        return 0
    newest = next(iter(_whole(made)), topology)
    passed = Cron.parse(schedule.schedule).all(parse_time(newest["metadata"]["creationTimestamp"]), now)
    return sum(1 for _ in islice(passed, MOST_MISSED))


def _has_news(topology: Object, made: list[Object]) -> bool:
    """True if a batch is known that the newest whole copy has not."""
    batch = mapping_at(topology, "status").get("batch")
    return batch is not None and all(_batch_before(each) != str(batch) for each in _whole(made)[:1])


def _snapshot(topology: Object, schedule: SnapshotSchedule, now: float) -> Object:
    metadata, moment = topology["metadata"], datetime.fromtimestamp(now, UTC).strftime("%Y%m%d-%H%M%S")
    name, labels = metadata["name"], names.labels(metadata["name"], "snapshot")
    return {
        "apiVersion": names.SNAPSHOT.api_version,
        "kind": names.SNAPSHOT.kind,
        "metadata": {
            "name": f"{name[:_LONGEST_BEGINNING].rstrip('-')}-{moment}",
            "namespace": metadata["namespace"],
            "labels": labels | {names.SCHEDULE: metadata["uid"]},
            "annotations": {names.SCHEDULED_AT_BATCH: str(topology["status"]["batch"])},
        },
        "spec": {"topology": name, "to": f"{schedule.to.rstrip('/')}/{moment}"},
    }


def surplus(body: Object, keep: int | None, bodies: Iterable[Object], topologies: Iterable[Object]) -> tuple[Object, ...]:
    """The whole snapshots of the schedule of `body` that are too many once it is whole, the oldest first.

    Not those whose copy is a topology's checkpoint, or what its `restore` names.
    """
    uid = _schedule_of(body)
    if keep is None or not uid:
        return ()
    others = [each for each in _of_schedule(uid, bodies) if each["metadata"]["uid"] != body["metadata"]["uid"]]
    known = tuple(topologies)
    too_many = _whole(others)[keep - 1 :]
    return tuple(each for each in reversed(too_many) if not _is_in_use(each, known))[:MOST_DROPPED]


def dropped_by(body: Object, runs: Iterable[str], bodies: Iterable[Object]) -> Iterator[Object]:
    """The snapshots of the schedule of `body` whose copies its Job has deleted, by what it reports."""
    gone = set(runs)
    return (each for each in _of_schedule(_schedule_of(body), bodies) if run_of(each) in gone)


def run_of(body: Object) -> str:
    """The identity of a snapshot's copy, which is in its header."""
    return str(body["metadata"]["uid"]).replace("-", "")


def _of_schedule(uid: str, bodies: Iterable[Object]) -> list[Object]:
    return [each for each in bodies if uid and _schedule_of(each) == uid]


def _schedule_of(body: Object) -> str:
    return str(mapping_at(body, "metadata", "labels").get(names.SCHEDULE, ""))


def _batch_before(body: Object) -> str:
    return str(mapping_at(body, "metadata", "annotations").get(names.SCHEDULED_AT_BATCH, ""))


def _whole(bodies: Iterable[Object]) -> list[Object]:
    """Those whose copy is whole, the newest first."""
    whole = (each for each in bodies if mapping_at(each, "status").get("phase") == SnapshotPhase.COMPLETED)
    return sorted(whole, key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["name"]), reverse=True)


def _is_in_use(body: Object, topologies: tuple[Object, ...]) -> bool:
    namespace, spec = str(body["metadata"]["namespace"]), body["spec"]
    by_name = {(each["metadata"].get("namespace"), each["metadata"]["name"]): each for each in topologies}
    copy = place_of(str(spec["to"]), by_name.get((namespace, spec["topology"]), {}), namespace)
    restored = (
        place_of(str(origin), each, str(each["metadata"].get("namespace", "")))
        for each in topologies
        if (origin := mapping_at(each, "spec", "restore").get("from"))
    )
    return bool(checkpoint_owner(copy, topologies)) or any(copy.overlaps(place) for place in restored)
