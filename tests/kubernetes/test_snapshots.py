"""Snapshots with the whole operator on a real API server: the Job's pod is played, its controller is real."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kubernetes import client
from support.fake_driver import FakeDrivers
from support.kube.apiserver import ApiServer
from support.kube.binaries import binary
from support.kube.fake_kubelet import FakeKubelet
from support.kube.flow import IMAGE, QUIET, an_operator, settled
from support.kube.processes import run
from support.kube.running_operator import OperatorThread, Topologies, manifest
from support.kube.snapshots import Snapshots, install_snapshots, remove_snapshots
from support.waiting import eventually

from streamtopology.k8s.settings import Settings

CHART = Path(__file__).parents[2] / "charts" / "streamtopology"


@pytest.fixture
def snapshots(topologies: Topologies, api_server: ApiServer, kubelet: FakeKubelet) -> Iterator[Snapshots]:
    install_snapshots(api_server)
    yield Snapshots(topologies, kubelet)
    install_snapshots(api_server)


def a_topology(topologies: Topologies, name: str = "flow") -> None:
    """One that has committed a batch."""
    topologies.create(manifest(name, rebalance=QUIET))
    eventually(lambda: "checkpoint" in topologies.status(name), 120)


@pytest.mark.parametrize("everywhere", [True, False], ids=["cluster-wide", "namespaced"])
def test_snapshot_of_a_running_topology_reports_batch_and_size(
    topologies: Topologies, snapshots: Snapshots, api_server: ApiServer, drivers: FakeDrivers, everywhere: bool
) -> None:
    with an_operator(api_server, () if everywhere else (topologies.namespace,), drivers) as operator:
        a_topology(topologies)
        eventually(lambda: settled(topologies, 1), 120)
        before = topologies.uids("flow")
        snapshots.create()
        snapshots.comes_to("Running")
        arguments = snapshots.jobs()["nightly-snapshot"].spec.template.spec.containers[0].args
        assert arguments[2:6] == ["--checkpoint", "file:///checkpoint", "--to", "s3://backup/nightly"]
        snapshots.finish(batch=7)
        status = snapshots.comes_to("Completed")
        assert (status["batch"], status["bytes"], status["uri"]) == (7, 4096, "s3://backup/nightly")
        after = topologies.uids("flow")
        assert {name: uid for name, uid in after.items() if name in before} == before
        assert topologies.condition("flow", "Ready") == ("True", "Running")
        of = {"namespace": topologies.namespace, "topology": "flow"}
        measured = operator.metrics.registry.get_sample_value
        assert measured("streamtopology_operator_snapshots", {**of, "phase": "Completed"}) == 1
        assert measured("streamtopology_operator_snapshot_completed_timestamp_seconds", of) is not None


@pytest.mark.parametrize("everywhere", [True, False], ids=["cluster-wide", "namespaced"])
def test_rights_of_the_chart_are_enough_for_a_snapshot(
    topologies: Topologies, snapshots: Snapshots, api_server: ApiServer, drivers: FakeDrivers, everywhere: bool
) -> None:
    here = topologies.namespace
    rights = rights_of_the_chart(here, () if everywhere else (here,))
    api_server.kubectl("apply", "-f", "-", stdin=rights)
    settings = Settings((here,) if not everywhere else (), IMAGE, namespace=here, driver_url=drivers.url, leader_election=False)
    access = api_server.kubeconfig_of(here, "streamtopology")
    with OperatorThread(api_server, settings, kubeconfig=access):
        a_topology(topologies)
        snapshots.create(to=f"s3://{here}/nightly")  # others' namespaces, with places of theirs, may not be gone yet
        snapshots.finish()
        snapshots.comes_to("Completed")
        eventually(lambda: ("Normal", "Completed") in snapshots.events())
    api_server.kubectl("delete", "-f", "-", stdin=rights)


def test_schedule_makes_snapshots_and_the_oldest_goes_with_its_copy(
    topologies: Topologies, snapshots: Snapshots, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    """With the chart's rights, and a clock that is a minute ahead: a time has passed since the last one, whenever that was."""
    here = topologies.namespace
    api_server.kubectl("apply", "-f", "-", stdin=rights_of_the_chart(here, (here,)))
    settings = Settings((here,), IMAGE, namespace=here, driver_url=drivers.url, leader_election=False)
    access = api_server.kubeconfig_of(here, "streamtopology")
    schedule = {"schedule": "* * * * *", "to": f"s3://{here}/flow/", "keep": 2}
    made: list[str] = []
    with OperatorThread(api_server, settings, lambda: 60.0, access) as operator:
        topologies.create(manifest("flow", rebalance=QUIET, snapshots=schedule))
        for number in range(3):
            topologies.change("flow", rebalance={**QUIET, "interval": f"{301 + number}ms"})  # status gets the batch at once
            made.append(a_new_one(snapshots, made))
            snapshots.finish(made[-1])
            snapshots.comes_to("Completed", made[-1])
        eventually(lambda: made[0] not in snapshots.names(), 120)
        assert set(made[1:]) <= set(snapshots.names())
        assert [list(snapshots.drops(name).values()) for name in made[1:]] == [
            [],
            [f"s3://{here}/flow/{made[0].removeprefix('flow-')}"],
        ]
        of = {"namespace": here, "topology": "flow"}
        assert operator.metrics.registry.get_sample_value("streamtopology_operator_snapshots_missed", of) is not None
        assert topologies.condition("flow", "Ready") == ("True", "Running")


def a_new_one(snapshots: Snapshots, known: list[str]) -> str:
    """The snapshot that is made next."""
    eventually(lambda: set(snapshots.names()) - set(known), 120)
    (name,) = set(snapshots.names()) - set(known)
    return name


def test_operator_without_the_new_rights_works_and_takes_them_up_when_they_come(
    topologies: Topologies, snapshots: Snapshots, api_server: ApiServer, drivers: FakeDrivers, caplog: pytest.LogCaptureFixture
) -> None:
    here = topologies.namespace
    rights = rights_of_the_chart(here, (here,))
    api_server.kubectl("apply", "-f", "-", stdin=rights.replace("streamtopologysnapshots", "others"))
    settings = Settings((here,), IMAGE, namespace=here, driver_url=drivers.url, leader_election=False)
    access = api_server.kubeconfig_of(here, "streamtopology")
    with OperatorThread(api_server, settings, kubeconfig=access):
        a_topology(topologies)
        eventually(lambda: settled(topologies, 1), 120)
        eventually(lambda: logged(caplog, "no snapshots are made") == 1)
        api_server.kubectl("apply", "-f", "-", stdin=rights)
        snapshots.create()
        snapshots.finish()
        snapshots.comes_to("Completed")
    assert logged(caplog, "no snapshots are made") == 1


def rights_of_the_chart(release_namespace: str, watched: tuple[str, ...]) -> str:
    """The ServiceAccount, the roles and their bindings."""
    chart = [str(binary("helm")), "template", "streamtopology", str(CHART), f"--namespace={release_namespace}"]
    made = run([*chart, "--kube-version=1.30.0", f"--set-json=watchNamespaces={json.dumps(watched)}"], 60)
    kinds = ("ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
    return yaml.safe_dump_all([each for each in yaml.safe_load_all(made) if each and each["kind"] in kinds])


def test_snapshot_waits_for_its_topology_and_its_first_batch(
    topologies: Topologies, snapshots: Snapshots, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    with an_operator(api_server, (topologies.namespace,), drivers):
        snapshots.create()
        assert "no StreamTopology 'flow'" in snapshots.is_refused_by("NoTopology")
        a_topology(topologies)
        snapshots.finish()
        snapshots.comes_to("Completed")


def test_pod_beyond_the_quota_is_reported_and_made_once_there_is_room(
    topologies: Topologies, snapshots: Snapshots, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    with an_operator(api_server, (topologies.namespace,), drivers):
        a_topology(topologies)
        eventually(lambda: settled(topologies, 1), 120)
        set_quota(topologies, "pods", 4)
        snapshots.create()
        assert "exceeded quota: team" in snapshots.is_refused_by("JobNotStarted")
        set_quota(topologies, "pods", 9)
        snapshots.finish()
        snapshots.comes_to("Completed")


def test_job_beyond_the_quota_is_reported_and_made_once_there_is_room(
    topologies: Topologies, snapshots: Snapshots, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    with an_operator(api_server, (topologies.namespace,), drivers):
        a_topology(topologies)
        set_quota(topologies, "count/jobs.batch", 0)
        snapshots.create()
        assert "exceeded quota: team" in snapshots.is_refused_by("JobRefused")
        assert snapshots.status()["phase"] == "Pending"
        set_quota(topologies, "count/jobs.batch", 9)
        snapshots.finish()
        snapshots.comes_to("Completed")


def set_quota(topologies: Topologies, resource: str, count: int) -> None:
    hard = {resource: str(count)}
    if count and topologies.core.list_namespaced_resource_quota(topologies.namespace).items:
        topologies.core.patch_namespaced_resource_quota("team", topologies.namespace, {"spec": {"hard": hard}})
    else:
        body = client.V1ResourceQuota(metadata={"name": "team"}, spec=client.V1ResourceQuotaSpec(hard=hard))
        topologies.core.create_namespaced_resource_quota(topologies.namespace, body)
    eventually(lambda: in_force(topologies) == hard)


def in_force(topologies: Topologies) -> dict[str, str]:
    status = topologies.core.read_namespaced_resource_quota("team", topologies.namespace).status
    return (status.hard or {}) if status is not None and status.used else {}


def test_failed_copy_says_why_and_stays_failed(
    topologies: Topologies, snapshots: Snapshots, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    with an_operator(api_server, (topologies.namespace,), drivers):
        a_topology(topologies)
        snapshots.create()
        snapshots.fail("s3://backup/nightly is not empty")
        status = snapshots.comes_to("Failed")
        assert "s3://backup/nightly is not empty" in status["message"]
        assert {one["type"]: one["status"] for one in status["conditions"]}["Stalled"] == "True"
        eventually(lambda: ("Warning", "JobFailed") in snapshots.events())
        assert topologies.condition("flow", "Degraded") == ("False", "AsExpected")


def test_deleted_snapshot_takes_its_job_and_pod_and_nothing_else(
    topologies: Topologies, snapshots: Snapshots, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    with an_operator(api_server, (topologies.namespace,), drivers):
        a_topology(topologies)
        snapshots.create()
        eventually(lambda: len(snapshots.running()) == 1, 120)
        snapshots.delete()
        eventually(lambda: not snapshots.jobs() and not snapshots.running(), 120)
        assert "flow-driver" in topologies.left_of("flow")
        snapshots.create()
        snapshots.finish()
        snapshots.comes_to("Completed")


def test_place_in_the_checkpoint_is_refused_before_a_job_is_made(
    topologies: Topologies, snapshots: Snapshots, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    with an_operator(api_server, (topologies.namespace,), drivers):
        a_topology(topologies)
        snapshots.create("inside", "/checkpoint/copies/nightly")
        snapshots.create("same", "file:///checkpoint/")
        for name in ("inside", "same"):
            snapshots.is_refused_by("SamePlace", name)
            assert snapshots.status(name)["phase"] == "Failed"
        assert not snapshots.jobs()


def test_job_of_somebody_else_keeps_its_name_and_is_reported(
    topologies: Topologies, snapshots: Snapshots, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    theirs = {"name": "theirs", "image": "busybox"}
    template = {"spec": {"containers": [theirs], "restartPolicy": "Never"}}
    body = {"metadata": {"name": "nightly-snapshot"}, "spec": {"suspend": True, "template": template}}
    topologies.batch.create_namespaced_job(topologies.namespace, body)
    with an_operator(api_server, (topologies.namespace,), drivers):
        a_topology(topologies)
        snapshots.create()
        assert "give the snapshot another name, or delete what is in its way" in snapshots.is_refused_by("NameTaken")
        topologies.batch.delete_namespaced_job("nightly-snapshot", topologies.namespace, propagation_policy="Background")
        snapshots.finish()
        snapshots.comes_to("Completed")


def test_snapshot_of_a_topology_that_another_release_serves_is_left_alone(
    topologies: Topologies, snapshots: Snapshots, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    first, second = (
        an_operator(api_server, (topologies.namespace,), drivers, namespace=release, image=image, leader_election=False)
        for release, image in (("default", "registry.example/spark:1"), ("kube-public", "registry.example/spark:2"))
    )
    with first:
        a_topology(topologies)
        with second:
            eventually(lambda: "ServedByAnother" in topologies.reasons("flow"), 120)
            for name in ("one", "two", "three"):
                snapshots.create(name, f"s3://backup/{name}")
                snapshots.finish(name)
                snapshots.comes_to("Completed", name)
            images = {job.spec.template.spec.containers[0].image for job in snapshots.jobs().values()}
            assert images == {"registry.example/spark:1"}


def test_operator_that_starts_again_takes_up_the_copy_that_has_ended_meanwhile(
    topologies: Topologies, snapshots: Snapshots, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    with an_operator(api_server, (topologies.namespace,), drivers):
        a_topology(topologies)
        snapshots.create()
        snapshots.comes_to("Running")
    snapshots.finish(batch=9)
    with an_operator(api_server, (topologies.namespace,), drivers):
        assert snapshots.comes_to("Completed")["batch"] == 9
    assert len(snapshots.jobs()) == 1


def test_job_that_somebody_deletes_is_made_again_until_the_copy_is_whole(
    topologies: Topologies, snapshots: Snapshots, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    with an_operator(api_server, (topologies.namespace,), drivers):
        a_topology(topologies)
        snapshots.create()
        snapshots.comes_to("Running")
        first = snapshots.jobs()["nightly-snapshot"].metadata.uid
        topologies.batch.delete_namespaced_job("nightly-snapshot", topologies.namespace, propagation_policy="Background")
        eventually(lambda: {job.metadata.uid for job in snapshots.jobs().values()} not in (set(), {first}), 120)
        eventually(lambda: len(snapshots.running()) == 1, 120)
        snapshots.finish()
        snapshots.comes_to("Completed")
        topologies.batch.delete_namespaced_job("nightly-snapshot", topologies.namespace, propagation_policy="Background")
        snapshots.create("later", "s3://backup/later")
        snapshots.finish("later")
        snapshots.comes_to("Completed", "later")
        assert list(snapshots.jobs()) == ["later-snapshot"]
        assert snapshots.status()["phase"] == "Completed"


def test_status_that_somebody_empties_is_written_again_from_the_job(
    topologies: Topologies, snapshots: Snapshots, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    with an_operator(api_server, (topologies.namespace,), drivers):
        a_topology(topologies)
        snapshots.create()
        snapshots.finish(batch=3)
        snapshots.comes_to("Completed")
        emptied = ("patch", "stosnap", "nightly", "--subresource=status", "--type=merge", "-p", '{"status":null}')
        api_server.kubectl(f"--namespace={topologies.namespace}", *emptied)
        assert snapshots.comes_to("Completed")["batch"] == 3
        assert len(snapshots.jobs()) == 1


def test_copy_continues_when_its_topology_is_deleted_in_the_middle(
    topologies: Topologies, snapshots: Snapshots, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    with an_operator(api_server, (topologies.namespace,), drivers):
        a_topology(topologies)
        snapshots.create()
        eventually(lambda: len(snapshots.running()) == 1, 120)
        topologies.delete("flow")
        eventually(lambda: not topologies.exists("flow"), 120)
        snapshots.finish()
        assert snapshots.comes_to("Completed")["bytes"] == 4096


def test_job_that_never_had_a_pod_is_given_up_when_its_topology_is_deleted(
    topologies: Topologies, snapshots: Snapshots, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    with an_operator(api_server, (topologies.namespace,), drivers):
        a_topology(topologies)
        eventually(lambda: settled(topologies, 1), 120)
        set_quota(topologies, "pods", 4)
        snapshots.create()
        snapshots.is_refused_by("JobNotStarted")
        topologies.delete("flow")
        eventually(lambda: snapshots.status().get("phase") == "Failed", 120)
        assert snapshots.reason() == "TopologyGone"
        eventually(lambda: not snapshots.jobs())


def test_two_snapshots_at_once_have_places_of_their_own(
    topologies: Topologies, snapshots: Snapshots, api_server: ApiServer, drivers: FakeDrivers
) -> None:
    longest = "n" * 54
    with an_operator(api_server, (topologies.namespace,), drivers):
        a_topology(topologies)
        snapshots.create("first", "s3://backup/one")
        snapshots.create(longest, "s3://backup/two")
        snapshots.create("second", "s3://backup/one/deeper")
        eventually(lambda: len(snapshots.running("first")) == len(snapshots.running(longest)) == 1, 120)
        snapshots.comes_to("Failed", "second")
        for name in ("first", longest):
            snapshots.finish(name)
            snapshots.comes_to("Completed", name)


def test_operator_works_without_the_definition_and_takes_it_up_when_it_comes(
    topologies: Topologies, snapshots: Snapshots, api_server: ApiServer, drivers: FakeDrivers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="streamtopology.k8s.io.snapshot_watch")
    remove_snapshots(api_server)
    with an_operator(api_server, (topologies.namespace, "default"), drivers) as operator:
        a_topology(topologies)
        eventually(lambda: settled(topologies, 1), 120)
        for times, name in enumerate(("one", "two"), 1):
            eventually(lambda expected=times: logged(caplog, "no snapshots are made") == expected, 120)
            install_snapshots(api_server)
            snapshots.create(name, f"s3://backup/{name}")
            snapshots.finish(name)
            snapshots.comes_to("Completed", name)
            assert logged(caplog, "snapshots are made:") == times
            remove_snapshots(api_server)
        assert not operator.is_dead
        assert topologies.condition("flow", "Ready") == ("True", "Running")


def logged(caplog: pytest.LogCaptureFixture, text: str) -> int:
    """The number of lines with this text."""
    return sum(text in record.getMessage() for record in caplog.records)
