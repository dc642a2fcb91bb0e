"""Each place on storage has one owner: a copy goes neither into a checkpoint nor into another copy, by whatever path."""

from __future__ import annotations

from typing import Any

import pytest

from streamtopology.k8s.decide.snapshots import holder_of, rival_of

Object = dict[str, Any]


def claim(name: str, at: str, **mount: str) -> Object:
    """A driver's pod with this claim at this path."""
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
    return {"volumes": [volume], "volumeMounts": [{"name": "data", "mountPath": at, **mount}]}


def share(root: str, at: str) -> Object:
    volume = {"name": "data", "nfs": {"server": "files", "path": root}}
    return {"volumes": [volume], "volumeMounts": [{"name": "data", "mountPath": at}]}


def topology(
    name: str, checkpoint: str | None, pod: Object | None = None, namespace: str = "space", committed: str = ""
) -> Object:
    spec = {"checkpoint": checkpoint, "driver": {"pod": pod}}
    status = {"checkpoint": committed} if committed else None
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec, "status": status}


def snapshot(
    to: str, of: str = "flow", name: str = "nightly", at: str = "2026-01-02T00:00:00Z", namespace: str = "space"
) -> Object:
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": at}
    return {"metadata": metadata, "spec": {"topology": of, "to": to}}


FLOW = topology("flow", "/checkpoint")


@pytest.mark.parametrize("to", ["/other", "/other/deep", "/", "file:///other/", "/other/../other", "file:/oth%65r"])
@pytest.mark.parametrize("other", [topology("other", "/other"), topology("other", None, committed="/other")])
def test_checkpoint_of_any_topology_is_taken_with_all_in_and_around_it(to: str, other: Object) -> None:
    assert holder_of(snapshot(to), [FLOW, other]) == ("flow" if to == "/" else "other")


@pytest.mark.parametrize("to", ["/others", "/oth", "/backup/other", "s3://bucket/other"])
def test_place_next_to_a_checkpoint_is_free(to: str) -> None:
    assert holder_of(snapshot(to), [FLOW, topology("other", "/other")]) == ""


def test_bucket_is_the_same_in_every_namespace_and_a_path_is_not() -> None:
    apart = [topology("other", "s3://bucket/other", namespace="far"), topology("third", "/third", namespace="far")]
    assert holder_of(snapshot("s3://bucket/other/copy"), [FLOW, *apart]) == "far/other"
    assert holder_of(snapshot("s3://bucket/others"), [FLOW, *apart]) == ""
    assert holder_of(snapshot("/third"), [FLOW, *apart]) == ""


def test_one_claim_at_two_paths_is_one_place() -> None:
    flow = topology("flow", "/mine/flow", claim("data", "/mine"))
    other = topology("other", "/theirs/other", claim("data", "/theirs"))
    assert holder_of(snapshot("/mine/other"), [flow, other]) == "other"
    assert holder_of(snapshot("/mine/copies"), [flow, other]) == ""
    inside = topology("other", "/theirs", claim("data", "/theirs", subPath="jobs/other"))
    assert holder_of(snapshot("/mine/jobs/other/copy"), [flow, inside]) == "other"


def test_one_path_on_two_volumes_is_two_places() -> None:
    flow = topology("flow", "/data/flow", claim("first", "/data"))
    other = topology("other", "/data/other", claim("second", "/data"))
    assert holder_of(snapshot("/data/other"), [flow, other]) == ""
    private = {"volumes": [{"name": "data", "emptyDir": {}}], "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    assert (
        holder_of(snapshot("/data/other"), [topology("flow", "/c", private), topology("other", "/data/other", private)]) == ""
    )


def test_share_of_a_server_is_one_place_in_every_namespace() -> None:
    flow = topology("flow", "/nfs/flow", share("/export", "/nfs"))
    other = topology("other", "/c/other", share("/export/team", "/c"), namespace="far")
    assert holder_of(snapshot("/nfs/team/other"), [flow, other]) == "far/other"


def test_own_checkpoint_under_another_path_is_taken() -> None:
    pod = claim("data", "/data")
    pod["volumeMounts"].append({"name": "data", "mountPath": "/again"})
    assert holder_of(snapshot("/again/flow/copy"), [topology("flow", "/data/flow", pod)]) == "flow"


def test_place_of_an_older_snapshot_is_taken_whatever_topology_it_is_of() -> None:
    first = snapshot("/backup/a", of="other", name="first", at="2026-01-01T00:00:00Z")
    second = snapshot("/backup")
    assert rival_of(second, [first, second], [FLOW]) == "first"
    assert rival_of(first, [first, second], [FLOW]) == ""
    far = snapshot("s3://bucket/x", name="first", at="2026-01-01T00:00:00Z", namespace="far")
    assert rival_of(snapshot("s3://bucket/x/y"), [far]) == "far/first"
    failed = {**first, "status": {"phase": "Failed"}}
    assert rival_of(second, [failed, second], [FLOW]) == ""


def test_snapshots_on_two_volumes_do_not_meet() -> None:
    topologies = [topology("flow", "/d/c", claim("first", "/d")), topology("other", "/d/c", claim("second", "/d"))]
    first = snapshot("/d/backup", of="other", name="first", at="2026-01-01T00:00:00Z")
    assert rival_of(snapshot("/d/backup"), [first], topologies) == ""
