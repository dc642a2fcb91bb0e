"""Fields of the API server's answers that are null, empty or missing: no reader falls over one of them.

An operator whose reader did would end, or would leave a topology alone for ever.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from typing import Any

from kubernetes import client
from support.operator_world import World
from support.optional_fields import of_kubernetes, of_ours, variants
from support.reasons import REBALANCED
from support.snapshots import topology

from streamtopology.contract.reasons import Binding, BindingKind, EpochReason
from streamtopology.contract.stats import Rerouting
from streamtopology.k8s import names
from streamtopology.k8s.decide.answers import Judgement
from streamtopology.k8s.decide.listing import listing
from streamtopology.k8s.decide.rivals import rival_of
from streamtopology.k8s.decide.snapshot_events import events_of_snapshot
from streamtopology.k8s.decide.snapshot_figures import by_phase, completed_at
from streamtopology.k8s.decide.snapshots import SnapshotView, decide_snapshot
from streamtopology.k8s.decide.snapshots import rival_of as older_snapshot
from streamtopology.k8s.io.bodies import without_nulls
from streamtopology.k8s.io.cache import Cache
from streamtopology.k8s.io.queue import Queue, TopologyKey
from streamtopology.k8s.io.snapshot_watch import SnapshotWatch

Object = dict[str, Any]
WHEN = "2026-11-28T12:00:00Z"
MODELS = {
    "Pod": client.V1Pod, "StatefulSet": client.V1StatefulSet, "Deployment": client.V1Deployment, "Job": client.V1Job,
    "ConfigMap": client.V1ConfigMap, "Secret": client.V1Secret, "Service": client.V1Service,
    "ServiceAccount": client.V1ServiceAccount, "Role": client.V1Role, "RoleBinding": client.V1RoleBinding,
    "PodDisruptionBudget": client.V1PodDisruptionBudget, "NetworkPolicy": client.V1NetworkPolicy,
}  # fmt: skip
POD_STATUS = {
    "phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory.", "podIP": "10.0.0.7",
    "conditions": [
        {"type": kind, "status": "True", "reason": "Deferred", "message": "later", "lastTransitionTime": WHEN}
        for kind in ("Ready", "PodScheduled", "DisruptionTarget", "PodResizePending", "PodResizeInProgress")
    ],
    "containerStatuses": [
        {
            "name": "executor", "ready": False, "restartCount": 1, "image": "image", "imageID": "id",
            "state": {"waiting": {"reason": "ErrImagePull", "message": "no image"}},
            "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "killed", "finishedAt": WHEN}},
        }
    ],
}  # fmt: skip
STATUSES = {
    "Pod": POD_STATUS,
    "StatefulSet": {"replicas": 2, "observedGeneration": 1, "updateRevision": "flow-large-1"},
    "Deployment": {"conditions": [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}]},
    "Job": {"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "3 tries"}]},
}


def full_bodies(world: World) -> Iterable[Object]:
    """One object of each kind that a topology owns, with all that we read in it."""
    for body in {kind: body for (kind, _), body in world.objects.items()}.values():
        full = copy.deepcopy(body)
        full["metadata"] |= {"creationTimestamp": WHEN, "deletionTimestamp": WHEN, "generation": 1}
        full["metadata"]["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Owner", "name": "owner", "uid": "uid-9", "controller": True}
        ]
        yield full | ({"status": STATUSES[body["kind"]]} if body["kind"] in STATUSES else {})


def test_owned_objects_are_read_whatever_field_is_missing(world: World) -> None:
    read = 0
    for body in full_bodies(world):
        for what, changed in variants(body, of_kubernetes(MODELS[body["kind"]], body)):
            cache = Cache(lambda _: None)
            try:
                cache.note(without_nulls(changed))
                cache.drop(without_nulls(changed))
            except Exception as error:
                raise AssertionError(f"{body['kind']}: {what}") from error
            read += 1
    assert read > 500


def full_topology(world: World) -> Object:
    """The topology with all that its status may say."""
    world.manifest["spec"]["executors"][0].pop("replicas")  # the autoscaler's from now on
    world.change(autoscale={"class": "large", "by": "Operator", "replicas": 1, "maxReplicas": 5})
    world.settle()
    world.reroutings = (Rerouting(1, 2, "counts", EpochReason.of_text("imbalance"), 10, 1000, 0.2),)
    world.judgement = Judgement("recommend", REBALANCED, 1, 9, b"", ("counts",), 0.2, 0.4, 10, 1000)
    world.binding = Binding(BindingKind.KEY, "counts", 1.27, 0.61, instance=1, key="Berlin", combinable=False)
    world.carry_out(world.decide())
    world.change(sparkConf={"spark.hadoop.fs.s3a.endpoint": "http://store"})
    world.carry_out(world.decide(), refuse_resize="not today")
    full = json.loads(json.dumps(world.manifest))
    assert {"intent", "reroutings", "lastRerouting", "autoscale", "recommendation", "boundBy"} <= full["status"].keys()
    full["metadata"] |= {"creationTimestamp": WHEN, "annotations": {names.PAUSE: "false"}}
    return full


def test_topologies_are_decided_and_listed_whatever_field_is_missing(world: World) -> None:
    full, driver = full_topology(world), world.driver
    read = 0
    for what, changed in variants(full, of_ours("streamtopologies", full), ("null", "missing")):
        world.manifest, world.driver = without_nulls(changed), driver
        try:
            world.decide()
            world.driver = None  # its last answer is in the status alone
            world.decide()
            listing([world.manifest], world.now)
            rival_of(world.manifest, lambda _: full, lambda *_: False)
        except Exception as error:
            raise AssertionError(what) from error
        read += 1
    assert read > 100


def full_snapshot() -> Object:
    body = {
        "apiVersion": names.SNAPSHOT.api_version, "kind": names.SNAPSHOT.kind,
        "metadata": {"name": "nightly", "namespace": "space", "uid": "uid-2", "resourceVersion": "7", "generation": 1},
        "spec": {"topology": "flow", "to": "/backup/nightly"},
    }  # fmt: skip
    seen = SnapshotView(body, topology(), "/checkpoint", "image:1", None, (), "", "", 1e9)
    decided = json.loads(json.dumps(decide_snapshot(seen, None).status))
    body["metadata"] |= {"creationTimestamp": WHEN, "labels": {"a": "b"}}
    return {**body, "status": decided | {"batch": 7, "bytes": 4096}}


def test_snapshots_are_decided_and_counted_whatever_field_is_missing() -> None:
    full = full_snapshot()
    read = 0
    for what, changed in variants(full, of_ours("streamtopologysnapshots", full), ("null", "missing")):
        for phase in ("Pending", "Completed"):
            body = without_nulls(changed)
            if "phase" in body.get("status", {}):
                body["status"]["phase"] = phase
            view = SnapshotView(body, topology(), "/checkpoint", "image:1", None, (), "", "", 1e9)
            try:
                watch = SnapshotWatch(Queue(lambda: 0.0))
                watch.took(TopologyKey("space", "nightly"), body)
                events_of_snapshot(view.status, decide_snapshot(view, None).status)
                by_phase([body])
                completed_at([body])
                older_snapshot(body, [full])
            except Exception as error:
                raise AssertionError(f"{phase}: {what}") from error
            read += 1
    assert read > 50
