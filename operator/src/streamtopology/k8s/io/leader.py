"""Leader election: one replica works, the others stand by. A Lease of our own, by the client library's election.

kopf's peering is no election (two peers may each believe to be alone while the API server is slow), so kopf runs
standalone in the replica that holds the Lease. A replica that cannot renew it in time ends its process.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from kubernetes.aio.client import ApiClient
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.baselock import BaseLock

from streamtopology.contract.errors import StreamTopologyError
from streamtopology.k8s import names
from streamtopology.k8s.decide.fields import mapping_at
from streamtopology.k8s.io.api import Api, ApiAway, ApiError, missing_right
from streamtopology.k8s.resources.objects import Object

log = logging.getLogger(__name__)

# The work of a leader; its argument returns True while it leads.
Work = Callable[[Callable[[], bool]], Awaitable[None]]

Tell = Callable[[str], None]

LEASE_NAME = "streamtopology-operator"

# Shares of the lease: the timeout of one call, and the time in which renewing is retried. A pause, the retries and the two
# calls of the last one together stay below the lease, so a replica that cannot renew has stopped before another starts.
CALL_SHARE, DEADLINE_SHARE = 2 / 15, 8 / 15


class LeaseLostError(StreamTopologyError):
    """The lease could not be renewed in time: another replica may lead from now on."""


class LeaderLock(BaseLock):
    """The lock of the library's election: a Lease, by our own client, whose calls have timeouts.

    Every error counts as a failed try. (The library's own LeaseLock lets connection errors through, and in 37.0 cannot
    create a Lease.)
    """

    def __init__(self, api: Api, namespace: str, identity: str, lease_seconds: float, release: str, tell: Tell) -> None:
        super().__init__(LEASE_NAME, namespace, identity)
        self._api = api
        self._release = release
        self._tell = tell
        self._told = ""
        self._failures: dict[str, str] = {}
        self._lease_seconds = lease_seconds
        self._held_until = float("-inf")
        self._known: Object = {}

    def is_held(self) -> bool:
        """True while no other replica can have it: it was renewed less than its length ago by this machine's monotonic clock.

        A process that was suspended learns by this first that it no longer leads.
        """
        return time.monotonic() < self._held_until

    async def get(self, name: str, namespace: str) -> tuple[bool, Any]:
        try:
            found = await self._api.get(names.LEASE, namespace, name)
        except (ApiError, ApiAway) as error:
            self._failed("read", error)
            return False, ApiException(status=0, reason=str(error))
        self._went_well("read")
        if found is None:
            return False, ApiException(status=404, reason="NotFound", body='{"code": 404}')
        spec = mapping_at(found, "spec")
        if spec.get("holderIdentity") != self.identity and spec.get("renewTime") != self._renewed:
            self._went_well("written")  # another replica renews it, and this one need not
        self._known = found
        holder = spec.get("holderIdentity") or self._owner_in_change(found)
        self._report(held_by_another(found, self._release, namespace) if spec.get("holderIdentity") else self._told)
        duration = spec.get("leaseDurationSeconds")
        record = LeaderElectionRecord(
            holder, str(duration) if duration else None, spec.get("acquireTime"), spec.get("renewTime")
        )
        return True, record

    async def create(self, name: str, namespace: str, election_record: LeaderElectionRecord) -> bool:
        body = {
            "apiVersion": names.LEASE.api_version,
            "kind": names.LEASE.kind,
            "metadata": {"name": name, "annotations": self._annotations({})},
            "spec": self._spec(election_record),
        }
        began = time.monotonic()
        try:
            await self._api.create(names.LEASE, namespace, body)
        except (ApiError, ApiAway) as error:
            log.info("the lease was not created: %s", error)
            self._failed("written", error)
            return False
        self._went_well("written")
        self._held_until = began + self._lease_seconds
        return True

    async def update(self, name: str, namespace: str, updated_record: LeaderElectionRecord) -> bool:
        """Replace it with the resource version that was read: of two replicas that try, one succeeds."""
        spec = {**mapping_at(self._known, "spec"), **self._spec(updated_record)}
        metadata = self._known["metadata"]
        metadata = {**metadata, "annotations": self._annotations(mapping_at(metadata, "annotations"))}
        began = time.monotonic()
        try:
            self._known = await self._api.replace(
                names.LEASE, namespace, name, {**self._known, "metadata": metadata, "spec": spec}
            )
        except (ApiError, ApiAway) as error:
            log.info("the lease was not renewed: %s", error)
            self._failed("written", error)
            return False
        self._went_well("written")
        self._report("")
        self._held_until = began + self._lease_seconds
        return True

    def _owner_in_change(self, lease: Object) -> str | None:
        """A name in place of the holder of a released Lease that is left to another release: we have seen that it works, and
        one of its replicas takes over, as in an upgrade. For any other replica a released Lease is free."""
        owner = mapping_at(lease, "metadata", "annotations").get(names.RELEASE)
        return f"the release {owner}" if self._told else None

    @property
    def failure(self) -> str:
        """The reason why this replica cannot lead; empty where there is none."""
        return "; ".join(self._failures.values())

    @property
    def _renewed(self) -> Any:
        """The time of the last renewal that was seen."""
        return mapping_at(self._known, "spec").get("renewTime")

    def _report(self, problem: str) -> None:
        if problem and problem != self._told:
            log.error("%s", problem)
        self._told = problem
        self._tell_all()

    def _failed(self, verb: str, error: ApiError | ApiAway) -> None:
        """Tell that this replica cannot lead, unless another one was only faster."""
        if isinstance(error, ApiError) and error.status == 409:
            return
        why = missing_right(error) or str(error)
        self._failures[verb] = f"this replica cannot lead, as the lease {LEASE_NAME} cannot be {verb}: {why}"
        self._tell_all()

    def _went_well(self, verb: str) -> None:
        if self._failures.pop(verb, None) is not None:
            self._tell_all()

    def _tell_all(self) -> None:
        self._tell("; ".join(filter(None, (self._told, self.failure))))

    def _annotations(self, known: Object) -> Object:
        others = {name: value for name, value in known.items() if name != names.RELEASE}
        return {**others, names.RELEASE: self._release} if self._release else others

    def _spec(self, record: LeaderElectionRecord) -> Object:
        return {
            "holderIdentity": record.holder_identity,
            "leaseDurationSeconds": round(self._lease_seconds),
            "acquireTime": _micro_time(record.acquire_time),
            "renewTime": _micro_time(record.renew_time),
        }


def held_by_another(lease: Object, release: str, namespace: str) -> str:
    """The sentence for a replica of `release` whose Lease a replica of another one holds; empty where none does."""
    holder = mapping_at(lease, "spec").get("holderIdentity")
    owner = mapping_at(lease, "metadata", "annotations").get(names.RELEASE)
    if not holder or not owner or not release or owner == release:
        return ""
    return (
        f"the release {owner!r} of the operator works in namespace {namespace} already ({holder} holds the lease "
        f"{LEASE_NAME}), and a namespace has one: the release {release!r} does nothing. Change that one "
        f"(helm upgrade {owner}), or remove this one (helm uninstall {release} -n {namespace}) and install it in a namespace "
        "of its own, with other watchNamespaces"
    )


def _nobody(_: str) -> None:
    return None


def _micro_time(text: str | None) -> str | None:
    """A time in the API server's form; the library dates in local time without a zone."""
    return text and datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def lead(
    client: ApiClient,
    namespace: str,
    identity: str,
    lease_seconds: float,
    work: Work,
    release: str = "",
    tell: Tell = _nobody,
) -> None:
    """Wait for the Lease, do `work` to its end, then release the Lease. LeaseLostError: it was lost.

    `tell` gets the reason why this replica waits in vain, as another `release` holds the Lease, and an empty one otherwise.
    """
    working: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    lock = LeaderLock(Api(client, lease_seconds * CALL_SHARE), namespace, identity, lease_seconds, release, tell)

    async def started() -> None:
        try:
            await work(lock.is_held)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - raised again where the election is awaited
            if not working.done():
                working.set_exception(error)
        else:
            working.set_result(None)

    retry = max(1.0, lease_seconds * CALL_SHARE)
    config = Config(lock, lease_seconds, lease_seconds * DEADLINE_SHARE, retry, started, _nothing)
    election = asyncio.create_task(LeaderElection(config).run(), name="leader election")
    try:
        await asyncio.wait({election, working}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            await election
            why = f" ({lock.failure})" if lock.failure else ""
            text = f"the lease {namespace}/{LEASE_NAME} could not be renewed in time: another replica takes over{why}"
            raise LeaseLostError(text)
        await working
    finally:
        election.cancel()
        if working.done():
            await release_lease(Api(client), namespace, identity)


async def release_lease(api: Api, namespace: str, identity: str) -> None:
    """Release the Lease, so that the next replica need not wait until it expires."""
    try:
        lease = await api.get(names.LEASE, namespace, LEASE_NAME)
        if lease is not None and (lease.get("spec") or {}).get("holderIdentity") == identity:
            lease["spec"]["holderIdentity"] = None
            await api.replace(names.LEASE, namespace, LEASE_NAME, lease)
    except (ApiError, ApiAway) as error:
        log.warning("the lease could not be released and expires by itself: %s", error)


async def _nothing() -> None:
    return None
