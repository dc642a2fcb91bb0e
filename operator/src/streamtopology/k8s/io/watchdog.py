"""Watchdog: compares kopf's watch of topologies with periodic lists, and restarts it where it missed something.

The watch can end without notice. It does when the resource definition is deleted. It fails while the definition is missing,
and while the API server's own cache of topologies restarts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from streamtopology.contract.errors import Unavailable
from streamtopology.k8s import names
from streamtopology.k8s.io.api import Api, ApiAway, ApiError, missing_right
from streamtopology.k8s.io.health import Health
from streamtopology.k8s.io.queue import TopologyKey
from streamtopology.k8s.io.reconciler import Reconciler

log = logging.getLogger(__name__)

# Between two lists; the shorter one while StreamTopologies are not served, and before a watch that broke is begun again.
LIST_SECONDS, MISSING_SECONDS = 30.0, 2.0

# An event that comes so much later than the list that has its topology does not come.
LATE_SECONDS = 5.0

# The time in which StreamTopologies may come back. Then the process ends, and its Deployment starts it again.
PATIENCE_SECONDS = 600.0


class NotServedError(Unavailable):
    """The API server does not serve StreamTopologies any more."""


class WatchBroken(Unavailable):
    """The API server has ended the watch with an error of its own."""


class Watchdog:
    """Runs `watch`, which ends well only when the operator is stopped, next to lists of topologies.

    It raises ApiError where the API server refuses it, WatchBroken where it fails later. `clock`: seconds, of `sleep`, too.
    """

    def __init__(
        self,
        api: Api,
        reconciler: Reconciler,
        namespaces: Sequence[str | None],
        health: Health,
        watch: Callable[[], Awaitable[None]],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._reconciler = reconciler
        self._namespaces = namespaces
        self._health = health
        self._watch = watch
        self._clock = clock
        self._sleep = sleep
        self._missing_since: float | None = None

    async def run(self) -> None:
        """Return when the operator is stopped. NotServedError: StreamTopologies are gone for good."""
        while not await self._run_once():
            log.warning("the watch of StreamTopologies is begun again")

    async def _run_once(self) -> bool:
        """True if the operator was stopped, False if the watch has to begin again."""
        watching = asyncio.ensure_future(self._watch())
        try:
            while True:
                was_missing = self._missing_since is not None
                await self._pause(watching, MISSING_SECONDS if was_missing else LIST_SECONDS)
                if _was_stopped(watching):
                    return True
                await self._rest_if_broken(watching)
                is_current = await self._compare()
                if _was_stopped(watching):  # meanwhile, and so it missed a change
                    return True
                if self._missing_since is None and (was_missing or watching.done() or not is_current):
                    return False
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError, ApiError, WatchBroken):
                await watching

    async def _rest_if_broken(self, watching: asyncio.Future[None]) -> None:
        if watching.done() and isinstance(watching.exception(), WatchBroken):
            log.warning("%s", watching.exception())
            await self._sleep(MISSING_SECONDS)

    async def _pause(self, watching: asyncio.Future[None], seconds: float) -> None:
        """Wait until the watch ends, at most for so long; where it has ended before, for so long."""
        pausing = asyncio.ensure_future(self._sleep(seconds))
        try:
            await asyncio.wait({pausing} if watching.done() else {pausing, watching}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            pausing.cancel()

    async def _compare(self) -> bool:
        """List the topologies. False if the watch has missed one; the reconciler knows it then."""
        is_current = True
        for namespace in self._namespaces:
            try:
                missed = await self._missed(namespace)
                if missed:
                    await self._sleep(LATE_SECONDS)
                    missed &= await self._missed(namespace)
                for key in missed:
                    await self._catch_up(key)
                    is_current = False
            except ApiError as error:
                if error.status == 404:
                    self._is_not_served()
                    return True
                self._health.refused(names.TOPOLOGY.plural, namespace, missing_right(error))
                log.warning("%s; StreamTopologies are listed again in %s s", error, LIST_SECONDS)
            except ApiAway as error:
                log.warning("%s; StreamTopologies are listed again in %s s", error, LIST_SECONDS)
            else:
                self._missing_since = None
                self._health.heard()
                self._health.refused(names.TOPOLOGY.plural, namespace, "")
        return is_current

    async def _missed(self, namespace: str | None) -> set[TopologyKey]:
        """Topologies that are newer than known, or gone."""
        before = self._reconciler.known()
        listed, version = await self._api.versions(names.TOPOLOGY, namespace)
        there = {TopologyKey(one["namespace"], one["name"]): int(one["resourceVersion"]) for one in listed}
        known = self._reconciler.known()
        newer = {key for key, at in there.items() if key not in known or known[key] < at}
        here = {key for key in before.keys() & known.keys() if namespace in (None, key.namespace)}
        return newer | {key for key in here - there.keys() if known[key] <= version}

    async def _catch_up(self, key: TopologyKey) -> None:
        log.warning("%s: the watch has missed a change of it", key)
        found, known = await self._api.get(names.TOPOLOGY, key.namespace, key.name), self._reconciler.manifest(key)
        if found is not None:
            self._reconciler.saw(found)
        elif known is not None:
            self._reconciler.lost(known)

    def _is_not_served(self) -> None:
        now = self._clock()
        if self._missing_since is None:
            self._missing_since = now
            log.warning("StreamTopologies are not served: waiting until the resource definition is applied again")
        if now - self._missing_since > PATIENCE_SECONDS:
            raise NotServedError(
                f"StreamTopologies are not served for {PATIENCE_SECONDS / 60:.0f} minutes: apply the resource definition "
                "(crds/, or the chart with crds.install=true)"
            )


def _was_stopped(watching: asyncio.Future[None]) -> bool:
    """True if the watch has ended well. ApiError: refused; one that broke, or whose resource is not served, may begin again."""
    if not watching.done():
        return False
    error = watching.exception()
    if isinstance(error, WatchBroken) or (isinstance(error, ApiError) and error.status == 404):
        return False
    watching.result()
    return True
