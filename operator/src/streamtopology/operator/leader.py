"""One replica works, the others stand by: a Lease of our own, by the client library's election.

kopf's peering is no election (two peers may both think they are alone while the API server is slow), so kopf runs
standalone in the replica that holds the Lease. A replica that could not renew it in time ends its process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
from kubernetes.aio.client import ApiClient
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.resourcelock.leaselock import LeaseLock

from streamtopology.operator import names
from streamtopology.operator.api import Api, ApiAway, ApiError

log = logging.getLogger(__name__)

LEASE_NAME = "streamtopology-operator"

CALL_SHARE, DEADLINE_SHARE = 2 / 15, 8 / 15
"""Of the lease: how long one call may take, and for how long renewing is tried. A pause, the tries and the two calls of
the last try together stay below the whole lease, so a replica that cannot renew has stopped before another starts."""

_TROUBLE = (aiohttp.ClientError, TimeoutError, OSError)


class LeaseLostError(Exception):
    """Another replica may lead from now on."""


class PatientLease(LeaseLock):
    """The library's Lease with calls that end in time, and an API server that is away counted as a failed try."""

    def __init__(self, name: str, namespace: str, identity: str, client: ApiClient, call_seconds: float) -> None:
        super().__init__(name, namespace, identity, client)
        self._call_seconds = call_seconds

    async def get(self, name: str, namespace: str) -> Any:
        try:
            async with asyncio.timeout(self._call_seconds):
                return await super().get(name, namespace)
        except _TROUBLE as error:
            return False, ApiException(status=0, reason=f"{type(error).__name__} {error}")

    async def create(self, name: str, namespace: str, election_record: Any) -> bool:
        try:
            async with asyncio.timeout(self._call_seconds):
                return await super().create(name, namespace, election_record)
        except _TROUBLE:
            return False

    async def update(self, name: str, namespace: str, updated_record: Any) -> bool:
        try:
            async with asyncio.timeout(self._call_seconds):
                return await super().update(name, namespace, updated_record)
        except _TROUBLE:
            return False


async def lead(
    client: ApiClient, namespace: str, identity: str, lease_seconds: float, work: Callable[[], Awaitable[None]]
) -> None:  # fmt: skip
    """Waits for the Lease, then works until `work` ends, then gives the Lease back. LeaseLostError: it was taken away."""
    working: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def started() -> None:
        try:
            await work()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - it is raised where the election is waited for
            if not working.done():
                working.set_exception(error)
        else:
            working.set_result(None)

    lock = PatientLease(LEASE_NAME, namespace, identity, client, lease_seconds * CALL_SHARE)
    retry = max(1.0, lease_seconds * CALL_SHARE)
    config = Config(lock, lease_seconds, lease_seconds * DEADLINE_SHARE, retry, started, _nothing)
    election = asyncio.create_task(LeaderElection(config).run(), name="leader election")
    try:
        await asyncio.wait({election, working}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            await election
            raise LeaseLostError(f"the lease {namespace}/{LEASE_NAME} could not be renewed in time: another replica takes over")
        await working
    finally:
        election.cancel()
        if working.done():
            await release(Api(client), namespace, identity)


async def release(api: Api, namespace: str, identity: str) -> None:
    """Gives the Lease back, so that the next replica need not wait until it runs out."""
    try:
        lease = await api.get(names.LEASE, namespace, LEASE_NAME)
        if lease is not None and (lease.get("spec") or {}).get("holderIdentity") == identity:
            lease["spec"]["holderIdentity"] = None
            await api.replace(names.LEASE, namespace, LEASE_NAME, lease)
    except (ApiError, ApiAway) as error:
        log.warning("the lease runs out by itself: it could not be given back: %s", error)


async def _nothing() -> None:
    return None
