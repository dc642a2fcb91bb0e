"""The Job that a StreamTopologySnapshot becomes, as a value, and the command that its pod runs."""

from __future__ import annotations

from typing import Any

from support.snapshots import POD, topology

from streamtopology.contract.pods import USER
from streamtopology.jobs.checkpoint.holds import LONGEST_SECONDS
from streamtopology.k8s import names
from streamtopology.k8s.resources import snapshot
from streamtopology.k8s.resources.checkpoint_job import TRIES, container_resources
from streamtopology.k8s.resources.objects import Owner

OWNER = Owner("nightly", "space", "uid-2", names.SNAPSHOT, of="flow")


def made() -> dict[str, Any]:
    return snapshot.job(OWNER, topology(), "image:1", USER, "/checkpoint", "/backup/nightly")


def test_job_belongs_to_the_snapshot_and_is_labelled_with_the_topology() -> None:
    metadata = made()["metadata"]
    [owner] = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("StreamTopologySnapshot", "nightly", "uid-2")
    assert (metadata["name"], metadata["labels"][names.INSTANCE]) == ("nightly-snapshot", "flow")


def test_pod_copies_with_the_drivers_settings_and_no_api_token() -> None:
    pod = made()["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["args"][1:6] == ["snapshot", "--checkpoint", "/checkpoint", "--to", "/backup/nightly"]
    assert container["args"][6:8] == ["--run", "uid2"]
    assert container["resources"] == container_resources(topology().migration)
    assert container["envFrom"] == POD["envFrom"]
    assert {"name": "data", "mountPath": "/data"} in container["volumeMounts"]
    assert pod["securityContext"]["fsGroup"] == 2000
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("flow-driver", False)


def test_pod_is_told_the_copies_to_delete_after_its_own() -> None:
    dropped = [("uid1", "/backup/monday"), ("uid0", "/backup/sunday")]
    job = snapshot.job(OWNER, topology(), "image:1", USER, "/checkpoint", "/backup/nightly", dropped)
    args = job["spec"]["template"]["spec"]["containers"][0]["args"]
    assert args[10:] == ["--drop", "uid1", "/backup/monday", "--drop", "uid0", "/backup/sunday"]
    assert "--drop" not in made()["spec"]["template"]["spec"]["containers"][0]["args"]


def test_job_retries_a_bounded_number_of_times_and_stays() -> None:
    spec = made()["spec"]
    assert spec["backoffLimit"] == TRIES - 1
    assert spec["activeDeadlineSeconds"] <= LONGEST_SECONDS, "the checkpoint keeps the files of a copy for no longer"
    assert "ttlSecondsAfterFinished" not in spec
