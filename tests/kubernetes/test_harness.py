"""Promises of the tests' own Kubernetes to the tests that use it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
from kubernetes import client, watch
from support.kube.apiserver import ApiServer
from support.kube.binaries import VERSION, find_go
from support.kube.fake_kubelet import NODE, FakeKubelet
from support.kube.metrics_api import MetricsApi
from support.waiting import eventually

TESTS = Path(__file__).parents[1]
SMALL = {"cpu": "100m", "memory": "64Mi"}


@pytest.fixture
def core(api_server: ApiServer) -> Iterator[client.CoreV1Api]:
    with api_server.client() as api:
        yield client.CoreV1Api(api)


def pod(name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"requests": SMALL, "limits": SMALL}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def resize(core: client.CoreV1Api, namespace: str, name: str, cpu: str) -> None:
    resources = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
    core.patch_namespaced_pod_resize(name, namespace, {"spec": {"containers": [{"name": "main", "resources": resources}]}})


def test_it_is_the_version_that_was_built(api_server: ApiServer):
    with api_server.client() as api:
        assert client.VersionApi(api).get_code().git_version == f"v{VERSION}"


def test_a_service_account_may_do_what_its_role_says_and_no_more(api_server: ApiServer, namespace: str, core: client.CoreV1Api):
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
    with api_server.client() as api:
        rbac = client.RbacAuthorizationV1Api(api)
        rbac.create_namespaced_role(namespace, {"metadata": {"name": "reader"}, "rules": [rule]})
        reader = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
        subject = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
        rbac.create_namespaced_role_binding(
            namespace, {"metadata": {"name": "reader"}, "roleRef": reader, "subjects": [subject]}
        )
    with api_server.client(api_server.kubeconfig_of(namespace, "default")) as api:
        limited = client.CoreV1Api(api)
        assert limited.list_namespaced_config_map(namespace).items == []
        with pytest.raises(client.ApiException) as refused:
            limited.list_namespaced_secret(namespace)
    assert refused.value.status == 403


def test_a_pod_of_an_unknown_service_account_is_refused(namespace: str, core: client.CoreV1Api):
    with pytest.raises(client.ApiException, match=r"serviceaccount .*nobody.* not found"):
        core.create_namespaced_pod(namespace, pod("lost", serviceAccountName="nobody"))


def test_frozen_api_server_answers_nothing_and_recovers(api_server: ApiServer, core: client.CoreV1Api):
    with api_server.frozen(), pytest.raises(urllib3.exceptions.HTTPError):
        core.list_namespace(_request_timeout=0.5)
    assert core.list_namespace(_request_timeout=5).items


def test_stopped_it_refuses_and_started_it_has_kept_everything_but_old_watches(
    api_server: ApiServer, namespace: str, core: client.CoreV1Api
):
    old = core.list_namespaced_config_map(namespace).metadata.resource_version
    core.create_namespaced_config_map(namespace, {"metadata": {"name": "kept"}, "data": {"a": "b"}})
    api_server.stop()
    with pytest.raises(urllib3.exceptions.HTTPError):
        core.list_namespace(_request_timeout=2)
    api_server.start()
    assert core.read_namespaced_config_map("kept", namespace).data == {"a": "b"}
    with pytest.raises(client.ApiException, match="too old resource version"):
        list(watch.Watch().stream(core.list_namespaced_config_map, namespace, resource_version=old, timeout_seconds=3))


def test_the_fake_kubelet_runs_pods_and_lets_go_of_deleted_ones(api_server: ApiServer, namespace: str, core: client.CoreV1Api):
    with FakeKubelet(api_server):
        core.create_namespaced_pod(namespace, pod("one"))
        eventually(lambda: core.read_namespaced_pod("one", namespace).status.phase == "Running")
        running = core.read_namespaced_pod("one", namespace)
        assert running.spec.node_name == NODE
        assert {each.type for each in running.status.conditions if each.status == "True"} >= {"Ready", "PodScheduled"}
        core.delete_namespaced_pod("one", namespace)
        eventually(lambda: not core.list_namespaced_pod(namespace).items)


def test_fake_kubelet_survives_an_api_server_restart(api_server: ApiServer, namespace: str, core: client.CoreV1Api):
    with FakeKubelet(api_server):
        core.create_namespaced_pod(namespace, pod("before"))
        eventually(lambda: core.read_namespaced_pod("before", namespace).status.phase == "Running")
        api_server.stop()
        api_server.start()
        core.create_namespaced_pod(namespace, pod("after"))
        eventually(lambda: core.read_namespaced_pod("after", namespace).status.phase == "Running")


def test_the_fake_kubelet_finishes_pods_and_leaves_those_pending_that_find_no_room(
    api_server: ApiServer, namespace: str, core: client.CoreV1Api
):
    with FakeKubelet(api_server) as kubelet:
        kubelet.unschedulable = lambda pod: pod["metadata"]["name"] == "large"
        core.create_namespaced_pod(namespace, pod("large"))
        core.create_namespaced_pod(namespace, pod("job"))
        eventually(lambda: core.read_namespaced_pod("job", namespace).status.phase == "Running")
        kubelet.finish(namespace, "job", exit_code=3)
        eventually(lambda: core.read_namespaced_pod("job", namespace).status.phase == "Failed")
        ended = core.read_namespaced_pod("job", namespace).status.container_statuses[0].state.terminated
        assert ended.exit_code == 3
        large = core.read_namespaced_pod("large", namespace)
        assert large.status.phase == "Pending"
        assert [each.reason for each in large.status.conditions if each.type == "PodScheduled"] == ["Unschedulable"]
        kubelet.unschedulable = lambda pod: False
        eventually(lambda: core.read_namespaced_pod("large", namespace).status.phase == "Running")


def test_resizes_are_carried_out_or_wait_with_a_reason(api_server: ApiServer, namespace: str, core: client.CoreV1Api):
    def cpu_in_force() -> str:
        return core.read_namespaced_pod("sized", namespace).status.container_statuses[0].resources.limits["cpu"]

    def waiting() -> list[str]:
        conditions = core.read_namespaced_pod("sized", namespace).status.conditions
        return [each.reason for each in conditions if each.type == "PodResizePending"]

    with FakeKubelet(api_server) as kubelet:
        core.create_namespaced_pod(namespace, pod("sized"))
        eventually(lambda: core.read_namespaced_pod("sized", namespace).status.phase == "Running")
        resize(core, namespace, "sized", "300m")
        eventually(lambda: cpu_in_force() == "300m")
        for switch, reason in (("deferred", "Deferred"), ("infeasible", "Infeasible")):
            kubelet.resizes = switch
            resize(core, namespace, "sized", "700m")
            eventually(lambda reason=reason: waiting() == [reason])
            assert cpu_in_force() == "300m"
        kubelet.resizes = "done"
        eventually(lambda: cpu_in_force() == "700m" and waiting() == [])


def test_the_real_controllers_make_pods_and_collect_what_lost_its_owner(
    api_server: ApiServer, namespace: str, core: client.CoreV1Api
):
    labels = {"app": "pair"}
    template = {"metadata": {"labels": labels}, "spec": pod("unnamed")["spec"]}
    spec = {"replicas": 2, "serviceName": "none", "selector": {"matchLabels": labels}, "template": template}
    with api_server.controllers(), FakeKubelet(api_server), api_server.client() as api:
        apps = client.AppsV1Api(api)
        made = apps.create_namespaced_stateful_set(namespace, {"metadata": {"name": "pair"}, "spec": spec})
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "pair", "uid": made.metadata.uid}
        core.create_namespaced_config_map(namespace, {"metadata": {"name": "owned", "ownerReferences": [owner]}})
        eventually(lambda: apps.read_namespaced_stateful_set("pair", namespace).status.ready_replicas == 2)
        assert {each.metadata.name for each in core.list_namespaced_pod(namespace).items} == {"pair-0", "pair-1"}
        apps.delete_namespaced_stateful_set("pair", namespace)
        eventually(lambda: not core.list_namespaced_pod(namespace).items)
        eventually(lambda: "owned" not in {each.metadata.name for each in core.list_namespaced_config_map(namespace).items})


def test_a_real_autoscaler_scales_by_the_cpu_that_the_test_says(api_server: ApiServer, namespace: str):
    labels = {"app": "busy"}
    template = {"metadata": {"labels": labels}, "spec": pod("unnamed")["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "busy"}
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
    scaler = {"metadata": {"name": "busy"}, "spec": {"scaleTargetRef": target, "maxReplicas": 8, "metrics": [cpu]}}
    with api_server.controllers(), FakeKubelet(api_server), api_server.client() as api:
        client.AppsV1Api(api).create_namespaced_deployment(namespace, {"metadata": {"name": "busy"}, "spec": spec})
        with MetricsApi(api_server, cpu=lambda pod: 0.15):
            client.AutoscalingV2Api(api).create_namespaced_horizontal_pod_autoscaler(namespace, scaler)
            # 0.15 of the 0.1 cores that a pod asks for is three times the target, whatever their number: up to the most.
            eventually(lambda: client.AppsV1Api(api).read_namespaced_deployment("busy", namespace).spec.replicas == 8)


OWNER = """
import sys, time
from support.kube.apiserver import ApiServer
with ApiServer() as server:
    print(server.folder, flush=True)
    time.sleep(600)
"""


def command_of(process: Path) -> str:
    """Its command line; empty if it has just ended."""
    try:
        return (process / "cmdline").read_text(errors="replace")
    except OSError:
        return ""


def test_an_owner_that_is_killed_leaves_nothing_behind():
    def mentions() -> list[str]:
        return [line for line in map(command_of, Path("/proc").glob("[0-9]*")) if folder in line]

    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    with subprocess.Popen([sys.executable, "-c", OWNER], env=environment, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        folder = owner.stdout.readline().strip()
        assert folder
        assert len(mentions()) == 3  # etcd, kube-apiserver, keeper
        owner.kill()
    eventually(lambda: not Path(folder).exists() and not mentions())


BUILDER = "from support.kube.binaries import build; print(build(['pause']) / 'pause')"


def test_parallel_builders_build_once_and_find_it_complete(tmp_path: Path):
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "XDG_CACHE_HOME": str(tmp_path)}
    # The compiler's own cache stays where it is.
    for name in ("GOCACHE", "GOMODCACHE"):
        output = subprocess.run([str(find_go()), "env", name], capture_output=True, text=True, check=True).stdout
        environment[name] = output.strip()
    command = [sys.executable, "-c", BUILDER]
    builders = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    output = [builder.communicate(timeout=120)[0] for builder in builders]
    assert [builder.returncode for builder in builders] == [0, 0, 0]
    assert sum("building pause" in each for each in output) == 1
    (built,) = {Path(each.splitlines()[-1]) for each in output}
    assert os.access(built, os.X_OK)
    assert sorted(path.name for path in built.parents[1].iterdir()) == ["bin", "lock"]
