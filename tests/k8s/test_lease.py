"""The Lease of a namespace has one owner, a release: replicas of another one are told, and a released Lease is free."""

from __future__ import annotations

import asyncio
import copy
import logging
import socket
from typing import Any

import aiohttp
import pytest
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection

from streamtopology.k8s import names
from streamtopology.k8s.app import serving
from streamtopology.k8s.install_check import NotInstalled, installed
from streamtopology.k8s.io.api import Api, ApiError
from streamtopology.k8s.io.bodies import ListPart
from streamtopology.k8s.io.health import Health
from streamtopology.k8s.io.leader import LEASE_NAME, LeaderLock, release_lease
from streamtopology.k8s.io.metrics import OperatorMetrics
from streamtopology.k8s.io.ownership import GONE_SECONDS, RELEASED_SECONDS, TopologyClaims
from streamtopology.k8s.io.page_app import Listed
from streamtopology.k8s.io.queue import TopologyKey
from streamtopology.k8s.settings import Settings, read_settings

LEASE_SECONDS = 600.0
Object = dict[str, Any]


class LeaseApi(Api):
    """An API server that has a Lease at most, and topologies with a status. `renewing`: each look finds it renewed.
    `refused`: the verbs that we may not use on it.
    """

    def __init__(self, lease: Object | None = None, renewing: bool = False) -> None:
        self.lease = lease
        self.refused: set[str] = set()
        self.renewing = renewing
        self.looks = 0

    async def get(self, kind: names.Kind, namespace: str, name: str) -> Object | None:
        if kind is names.TOPOLOGY:
            return {"status": {"conditions": [{"type": "Ready"}]}}
        self.looks += 1
        self._may("get")
        if self.lease is not None and self.renewing:
            self.lease["spec"]["renewTime"] = f"2026-01-01T00:00:{self.looks % 60:02}.000000Z"
        return copy.deepcopy(self.lease)

    async def create(self, kind: names.Kind, namespace: str, body: Object) -> Object:
        if kind is names.TOPOLOGY:
            return {"metadata": {"name": "made", "uid": "uid-1"}}
        self._may("create")
        if self.lease is not None:
            raise ApiError(409, "AlreadyExists", "it is there", kind.path(namespace))
        self.lease = copy.deepcopy(body)
        return copy.deepcopy(body)

    async def replace(self, kind: names.Kind, namespace: str, name: str, body: Object) -> Object:
        self._may("update")
        self.lease = copy.deepcopy(body)
        return copy.deepcopy(body)

    def _may(self, verb: str) -> None:
        if verb in self.refused:
            raise ApiError(403, "Forbidden", f"nobody may {verb} leases", names.LEASE.path("operators"))

    async def patch(self, kind: names.Kind, namespace: str, name: str, body: Object, subresource: str | None = None) -> Object:
        return body

    async def delete(self, kind: names.Kind, namespace: str, name: str, uid: str | None = None, at_once: bool = False) -> None:
        return None

    async def pages(self, kind: names.Kind, namespace: str | None, selector: str = "") -> Any:
        yield ListPart([], "1", "")


class Replica:
    """A replica of a release that tries for the Lease when it is asked to."""

    def __init__(self, api: Api, release: str, number: int = 0) -> None:
        self.identity = f"{release}-{number}"
        self.api = api
        self.health = Health()
        lock = LeaderLock(api, "operators", self.identity, LEASE_SECONDS, release, self.health.in_vain)
        self._election = LeaderElection(Config(lock, LEASE_SECONDS, 300.0, 1.0, _nothing, _nothing))

    async def tries(self) -> bool:
        """True if it leads from now on."""
        return await self._election.try_acquire_or_renew()

    async def ends(self) -> None:
        await release_lease(self.api, "operators", self.identity)


async def _nothing() -> None:
    return None


def test_second_release_in_a_namespace_is_told_in_its_log_and_by_its_readiness(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        api = LeaseApi()
        first, second = Replica(api, "first"), Replica(api, "second")
        assert await first.tries()
        assert api.lease is not None
        assert api.lease["metadata"]["annotations"] == {names.RELEASE: "first"}
        with caplog.at_level(logging.ERROR):
            assert not await second.tries()
            assert not await second.tries()
        [said] = [record.getMessage() for record in caplog.records if record.name == "streamtopology.k8s.io.leader"]
        assert "the release 'first' of the operator works in namespace operators already" in said
        assert "helm upgrade first" in said
        assert "helm uninstall second -n operators" in said
        assert second.health.unready == said
        assert first.health.unready is None

    asyncio.run(story())


def test_standby_of_the_same_release_is_ready_and_silent(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        api = LeaseApi()
        first, standby = Replica(api, "first"), Replica(api, "first", 1)
        assert await first.tries()
        assert not await standby.tries()
        assert standby.health.unready is None
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]

    asyncio.run(story())


@pytest.mark.parametrize(
    ("verb", "lease"), [("get", None), ("create", None), ("update", {"metadata": {"name": LEASE_NAME}, "spec": {}})]
)
def test_replica_that_may_not_lead_is_not_ready_until_it_may(verb: str, lease: Object | None) -> None:
    async def story() -> None:
        api = LeaseApi(lease)
        api.refused = {verb}
        only = Replica(api, "first")
        assert not await only.tries()
        assert only.health.unready is not None
        assert only.health.unready.startswith("this replica cannot lead, as the lease streamtopology-operator cannot be ")
        assert f"nobody may {verb} leases (403 Forbidden): see rbac.create of the chart" in only.health.unready
        api.refused = set()
        assert await only.tries()
        assert only.health.unready is None

    asyncio.run(story())


def test_replica_that_another_one_relieves_of_a_refused_lease_is_ready() -> None:
    async def story() -> None:
        api = LeaseApi({"metadata": {"name": LEASE_NAME}, "spec": {}})
        api.refused = {"update"}
        standby = Replica(api, "first")
        assert not await standby.tries()
        api.refused = set()
        assert await Replica(api, "first", 1).tries()
        assert not await standby.tries()
        assert standby.health.unready is None

    asyncio.run(story())


@pytest.mark.parametrize("nobody", [None, "", "missing"])
def test_released_lease_is_free_at_once_for_any_release(nobody: str | None) -> None:
    async def story() -> None:
        api = LeaseApi()
        first = Replica(api, "first")
        assert await first.tries()
        await first.ends()
        assert api.lease is not None
        if nobody == "missing":
            del api.lease["spec"]["holderIdentity"]
        else:
            api.lease["spec"]["holderIdentity"] = nobody
        next_one = Replica(api, "second")
        assert await next_one.tries(), "not after the ten minutes that the Lease lasts"
        assert api.lease["metadata"]["annotations"] == {names.RELEASE: "second"}
        assert next_one.health.unready is None

    asyncio.run(story())


def test_release_that_works_keeps_its_lease_through_a_change_of_its_pods() -> None:
    async def story() -> None:
        api = LeaseApi()
        first, second = Replica(api, "first"), Replica(api, "second")
        assert await first.tries()
        assert not await second.tries()
        await first.ends()
        assert not await second.tries(), "it is left to the release that works"
        assert second.health.unready is not None
        assert await Replica(api, "first", 1).tries()

    asyncio.run(story())


def test_readiness_probe_answers_with_the_sentence() -> None:
    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        health = Health()
        health.in_vain("another release works here")
        settings = Settings(probe_port=port, metrics_port=0)
        async with serving(OperatorMetrics(), settings, health, Listed(lambda: 0.0)), aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                assert (answer.status, await answer.text()) == (503, "not ready: another release works here\n")
            async with session.get(f"http://127.0.0.1:{port}/healthz") as answer:
                assert answer.status == 200, "a restart would not help"
            health.in_vain("")
            async with session.get(f"http://127.0.0.1:{port}/readyz") as answer:
                assert answer.status == 200

    asyncio.run(story())


def test_helm_test_of_the_second_release_fails_with_the_sentence() -> None:
    async def at_once(_: float) -> None:
        return None

    metadata = {"name": LEASE_NAME, "annotations": {names.RELEASE: "first"}}
    lease = {"metadata": metadata, "spec": {"holderIdentity": "first-0", "renewTime": "2026-01-01T00:00:00.000000Z"}}

    def checked(release: str) -> str:
        settings = read_settings([], {"STREAMTOPOLOGY_RELEASE": release, "POD_NAMESPACE": "operators"})
        return asyncio.run(installed(LeaseApi(copy.deepcopy(lease), renewing=True), settings, at_once))

    assert checked("first").startswith("first-0 leads and renews its lease")
    assert checked("").startswith("first-0 leads"), "an operator without Helm"
    with pytest.raises(NotInstalled, match="the release 'first' of the operator works in namespace operators already"):
        checked("second")


@pytest.mark.parametrize(
    ("holder", "seconds", "is_taken"),
    [
        ("one", 20.0, False),
        ("one", GONE_SECONDS + 1, True),
        (None, RELEASED_SECONDS + 1, True),
        ("", RELEASED_SECONDS + 1, True),
        (None, 1.0, False),
    ],
    ids=["works", "is gone", "has released it", "has released it as Go does", "changes its pods"],
)
def test_topologies_of_a_release_that_released_its_lease_are_taken_over(
    holder: str | None, seconds: float, is_taken: bool
) -> None:
    renewed = 1_767_225_600.0
    lease = {"metadata": {"name": LEASE_NAME}, "spec": {"holderIdentity": holder, "renewTime": "2026-01-01T00:00:00.000000Z"}}
    claims = TopologyClaims(LeaseApi(lease), Settings(namespace="other"), lambda: renewed + seconds)
    body = {"metadata": {"name": "flow", "resourceVersion": "1", "annotations": {names.SERVED_BY: "operators"}}}
    assert (asyncio.run(claims.claim(TopologyKey("space", "flow"), body)) != "operators") == is_taken
