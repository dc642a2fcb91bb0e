"""The driver's watch of its ConfigMap against a real API server: every content once, whatever happens in between."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kubernetes import client
from support.kube.apiserver import ApiServer

from streamtopology.jobs.pods.configmap_watch import ConfigMapContent, ConfigMapWatch

NAME = "flights-routing"
pytestmark = pytest.mark.timeout(120)


class Watched:
    """A running watch, what it has taken (the text of `generation`, None for no map) and its log."""

    def __init__(self, api: client.CoreV1Api, namespace: str, watch_seconds: int) -> None:
        self.taken: list[str | None] = []
        self.reported: list[str] = []
        self.watch = ConfigMapWatch(api, namespace, NAME, self._take, self.reported.append, watch_seconds)

    def _take(self, content: ConfigMapContent | None) -> None:
        self.taken.append(None if content is None else content.data["generation"])

    def wait_for(self, taken: list[str | None]) -> None:
        """Until exactly this has been taken; what comes too much or in another order fails the test at once."""
        while self.taken != taken:
            assert self.taken == taken[: len(self.taken)]
            time.sleep(0.02)

    def wait_until_reported(self, text: str) -> None:
        while not any(text in reported for reported in self.reported):
            time.sleep(0.02)


@contextmanager
def watching(api_server: ApiServer, namespace: str, watch_seconds: int = 60) -> Iterator[Watched]:
    with api_server.client() as api:
        watched = Watched(client.CoreV1Api(api), namespace, watch_seconds)
        with watched.watch:
            yield watched


@pytest.fixture
def core(api_server: ApiServer) -> Iterator[client.CoreV1Api]:
    with api_server.client() as api:
        yield client.CoreV1Api(api)


def create(core: client.CoreV1Api, namespace: str, generation: str) -> None:
    core.create_namespaced_config_map(namespace, body(generation))


def change(core: client.CoreV1Api, namespace: str, generation: str) -> None:
    core.replace_namespaced_config_map(NAME, namespace, body(generation))


def body(generation: str) -> client.V1ConfigMap:
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=NAME), data={"generation": generation})


def test_existing_configmap_and_each_change_are_taken_once(
    core: client.CoreV1Api, namespace: str, api_server: ApiServer
) -> None:
    with watching(api_server, namespace) as watched:
        watched.wait_for([None])
        create(core, namespace, "1")
        watched.wait_for([None, "1"])
        core.patch_namespaced_config_map(NAME, namespace, {"metadata": {"labels": {"a": "b"}}})  # nothing new for a driver
        change(core, namespace, "2")
        watched.wait_for([None, "1", "2"])
        core.delete_namespaced_config_map(NAME, namespace)
        watched.wait_for([None, "1", "2", None])
        core.create_namespaced_config_map(
            namespace, client.V1ConfigMap(metadata=client.V1ObjectMeta(name="other"), data={"generation": "9"})
        )
        create(core, namespace, "3")
        watched.wait_for([None, "1", "2", None, "3"])
    assert watched.reported == []


def test_a_watch_that_the_server_ends_is_taken_up_without_a_gap(
    core: client.CoreV1Api, namespace: str, api_server: ApiServer
) -> None:
    create(core, namespace, "0")
    with watching(api_server, namespace, watch_seconds=1) as watched:
        expected: list[str | None] = ["0"]
        for generation in range(1, 25):
            watched.wait_for(expected)
            change(core, namespace, str(generation))
            expected.append(str(generation))
            time.sleep(0.15)  # so that the server ends the watch before, during and after changes
        watched.wait_for(expected)
    assert watched.reported == []


def test_a_server_that_is_away_is_reported_and_what_was_missed_is_taken(
    core: client.CoreV1Api, namespace: str, api_server: ApiServer
) -> None:
    create(core, namespace, "1")
    with watching(api_server, namespace) as watched:
        watched.wait_for(["1"])
        api_server.stop()
        watched.wait_until_reported("cannot be watched")
        api_server.start()
        change(core, namespace, "2")
        watched.wait_for(["1", "2"])
    assert watched.reported[-1] == f"ConfigMap {NAME} is watched again"
    pauses = [reported.rpartition("next try in ")[2] for reported in watched.reported[:-1]]
    assert pauses[:3] == ["0.5 s", "1 s", "2 s"][: len(pauses)]


class AnOldList(ConfigMapWatch):
    """Its first list is answered from long ago, as by an API server that lags behind: nobody can watch from there."""

    lists = 0

    def _list(self) -> str:
        version = super()._list()
        self.lists += 1
        return "1" if self.lists == 1 else version


def test_a_version_that_has_expired_leads_to_a_new_list(core: client.CoreV1Api, namespace: str, api_server: ApiServer) -> None:
    create(core, namespace, "1")
    with api_server.client() as api:
        watched = Watched(client.CoreV1Api(api), namespace, 60)
        watched.watch = AnOldList(client.CoreV1Api(api), namespace, NAME, watched._take, watched.reported.append)
        with watched.watch:
            watched.wait_for(["1"])
            while watched.watch.lists < 2:
                time.sleep(0.02)
            change(core, namespace, "2")
            watched.wait_for(["1", "2"])
    assert watched.reported == [], "that is how watches are, and nobody needs to know"


def test_missing_permission_is_reported_and_the_watch_resumes_once_granted(
    core: client.CoreV1Api, namespace: str, api_server: ApiServer
) -> None:
    create(core, namespace, "1")
    core.create_namespaced_service_account(namespace, client.V1ServiceAccount(metadata=client.V1ObjectMeta(name="driver")))
    with api_server.client(api_server.kubeconfig_of(namespace, "driver")) as api:
        watched = Watched(client.CoreV1Api(api), namespace, 60)
        with watched.watch:
            watched.wait_until_reported("403")
            assert watched.taken == []
            api_server.kubectl(
                "create", "role", "driver", "-n", namespace, "--verb=get,list,watch", "--resource=configmaps",
                f"--resource-name={NAME}",
            )  # fmt: skip
            api_server.kubectl(
                "create", "rolebinding", "driver", "-n", namespace, "--role=driver", f"--serviceaccount={namespace}:driver"
            )
            watched.wait_for(["1"])
