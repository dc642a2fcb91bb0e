"""The loop: take a topology from the queue, look, decide, record what is about to be done, do it, write what is."""

from __future__ import annotations

import asyncio
import logging
import statistics
import time
from collections.abc import Callable, Sequence

from streamtopology.operator import faults, names, status
from streamtopology.operator.api import ApiAway, ApiError, Object
from streamtopology.operator.apply import Applier, ResizeRefusedError, refused_in
from streamtopology.operator.cache import Cache
from streamtopology.operator.metrics import Metrics
from streamtopology.operator.observe import Observed, manifest_text
from streamtopology.operator.planning import Planner, Reading
from streamtopology.operator.queue import Key, Queue
from streamtopology.operator.reconcile import Decision, decide
from streamtopology.operator.resources.objects import Owner
from streamtopology.operator.scrape import Scraper
from streamtopology.operator.seen import RoutingMap
from streamtopology.operator.settings import Settings
from streamtopology.operator.stats import Batch
from streamtopology.routing.topology import Topology

log = logging.getLogger(__name__)

MOST_READ = 4096
"""Manifests that are remembered as read; two for each topology."""

FIGURES_SECONDS = 30.0
"""How often figures alone are written to status: a write is an event for everyone who watches."""


class Reconciler:
    """Looks after every topology that `saw` tells of. `clock`: seconds since 1970."""

    def __init__(
        self, applier: Applier, cache: Cache, scraper: Scraper, planner: Planner, queue: Queue, settings: Settings,
        metrics: Metrics, clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._applier = applier
        self._cache = cache
        self._scraper = scraper
        self._planner = planner
        self._read: dict[str, Reading] = {}
        self._queue = queue
        self._settings = settings
        self._metrics = metrics
        metrics.queue_length.set_function(lambda: len(queue))
        self._clock = clock
        self._manifests: dict[Key, Object] = {}
        self._problems: dict[Key, tuple[str, str]] = {}
        self._written_at: dict[Key, float] = {}
        self._begun: set[str | None] = set()

    def begin(self, namespace: str | None) -> None:
        """Every object that topologies of this namespace (None: of any) own is in the cache. Not before that are they looked
        at: what is not there would be taken for missing, the driver restarted and the routing made anew without its epoch."""
        self._begun.add(namespace)
        for key in self._manifests:
            if self._has_begun(key):
                self._queue.add(key)

    def _has_begun(self, key: Key) -> bool:
        return None in self._begun or key.namespace in self._begun

    def saw(self, body: Object) -> None:
        """A topology is there, or has changed. What is older than what we know, our own writes included, is passed over, and
        so is what comes late of one that had the name before: kopf keeps events in order for each uid only."""
        key = key_of(body)
        known = self._manifests.get(key)
        if known is not None and _version(known) >= _version(body):
            return
        if known is not None and not _same(known, body):
            self._drop(key)
        body["metadata"].pop("managedFields", None)
        self._manifests[key] = body
        self._queue.add(key)

    def lost(self, body: Object) -> None:
        """A topology is gone. What has come under its name meanwhile, or comes later, is another."""
        key = key_of(body)
        known = self._manifests.get(key)
        if known is not None and _same(known, body):
            self._drop(key)
            self._queue.add(key)

    def _drop(self, key: Key) -> None:
        """What is known of a topology and must not be taken for its namesake's, at once."""
        del self._manifests[key]
        self._problems.pop(key, None)
        self._written_at.pop(key, None)
        self._cache.forget(key, names.SECRET)

    def known(self) -> tuple[Key, ...]:
        return tuple(self._manifests)

    async def run(self) -> None:
        """Works until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._settings.workers):
                group.create_task(self._work(), name=f"reconcile {number}")

    async def _work(self) -> None:
        while True:
            key = await self._queue.take()
            started = time.perf_counter()
            outcome = await self._attempt(key)
            self._metrics.reconcile_seconds.labels(outcome).observe(time.perf_counter() - started)

    async def _attempt(self, key: Key) -> str:
        try:
            await self.reconcile(key)
        except ApiAway as error:
            log.warning("%s: again in %.1f s: %s", key, self._queue.failed(key), error)
            return "away"
        except ApiError as error:
            log.warning("%s: again in %.1f s: %s", key, self._queue.failed(key), error)
            return "refused"
        except Exception:
            log.exception("%s: again in %.1f s; please report this", key, self._queue.failed(key))
            return "error"
        self._queue.done(key)
        return "done"

    async def reconcile(self, key: Key) -> None:
        """One look at one topology and everything it leads to."""
        manifest = self._manifests.get(key)
        if manifest is None:
            await self._forget(key)
            return
        if not self._has_begun(key):
            return
        seen = await self._look(key, manifest)
        decision = decide(seen, self._settings)
        try:
            if decision.steps:
                await self._carry_out(key, seen, decision)
            else:
                await self._write(key, seen, decision.status)
        except ApiError as error:
            if error.status == 404 and error.what == names.TOPOLOGY.path(key.namespace, key.name, "status"):
                self.lost(manifest)  # deleted while nobody watched
                return
            raise
        await self._tell(key, seen, decision)
        self._scraper.want(key, decision.target)
        if decision.again_seconds is not None:
            self._queue.add_after(key, decision.again_seconds)
        self._measure(key, seen, decision)

    async def _look(self, key: Key, manifest: Object) -> Observed:
        read = await self._topology(manifest_text(manifest))
        if ("Secret", names.spark_secret(key.name)) not in self._cache.of(key):
            await self._applier.recall_secret(Owner(key.name, key.namespace, manifest["metadata"]["uid"]))
        objects = dict(self._cache.of(key))
        routing = objects.get(("ConfigMap", names.routing(key.name)))
        running = await self._topology(routing.topology) if isinstance(routing, RoutingMap) else None
        return Observed(
            manifest,
            read,
            running if isinstance(running, Topology) else None,
            objects,
            self._scraper.answer(key),
            self._clock(),
            self._problems.get(key),
        )

    async def _topology(self, text: str) -> Reading:
        """Equal texts are read once."""
        if text not in self._read:
            reading = await self._planner.read(text)
            while len(self._read) >= MOST_READ:
                del self._read[next(iter(self._read))]
            self._read[text] = reading
        return self._read[text]

    async def _carry_out(self, key: Key, seen: Observed, decision: Decision) -> None:
        """Records the steps, then takes them. Afterwards the topology is looked at again: the steps have changed it."""
        faults.point("before-intent")
        await self._write_now(key, seen.manifest, decision.status)
        faults.point("after-intent")
        refusals: list[ResizeRefusedError] = []
        for step in decision.steps:
            log.info("%s: %s", key, step)
            try:
                changed = await self._applier.take(step, seen.owner)
            except ResizeRefusedError as refusal:
                log.warning("%s: %s", key, refusal)
                refusals.append(refusal)
            except ApiError as error:
                if error.status in (400, 403, 422):
                    self._problems[key] = ("ApplyRefused", f"{step}: {error.message}")
                raise
            else:
                if changed is not None:
                    self._took(key, changed)
        self._problems.pop(key, None)
        if refusals and (manifest := self._manifests.get(key)) is not None:
            await self._write_now(key, manifest, refused_in(decision.status, refusals))
        self._queue.add(key)

    async def _write(self, key: Key, seen: Observed, reported: Object) -> None:
        """Writes the status if there is news in it, or other figures and some time has passed."""
        if reported == seen.status:
            return
        due = self._clock() - self._written_at.get(key, 0.0) >= FIGURES_SECONDS
        if due or status.is_news(seen.status, reported):
            faults.point("before-status")
            await self._write_now(key, seen.manifest, reported)
            faults.point("after-status")

    async def _write_now(self, key: Key, manifest: Object, reported: Object) -> None:
        self._took(key, await self._applier.write_status(manifest, reported))
        self._written_at[key] = self._clock()

    def _took(self, key: Key, body: Object) -> None:
        """The topology as one of our own writes left it. What we wrote is no news; what somebody changed just before is, and
        its event is yet to come and will be passed over as older."""
        known = self._manifests.get(key)
        if known is None or _version(known) > _version(body):
            return
        body["metadata"].pop("managedFields", None)
        self._manifests[key] = body
        if _asked(known) != _asked(body):
            self._queue.add(key)

    async def _tell(self, key: Key, seen: Observed, decision: Decision) -> None:
        for event in decision.events:
            log.log(
                logging.WARNING if event.type == "Warning" else logging.INFO, "%s: %s: %s", key, event.reason, event.message
            )
            await self._applier.tell(seen.manifest, key, event, seen.now)

    async def _forget(self, key: Key) -> None:
        self._queue.forget(key)  # before the first pause, in which a namesake may come
        self._metrics.forget(key.namespace, key.name)
        await self._scraper.forget(key)

    def _measure(self, key: Key, seen: Observed, decision: Decision) -> None:
        metrics = self._metrics
        metrics.tell_conditions(key.namespace, key.name, decision.status.get("conditions") or ())
        for event in decision.events:
            if event.reason in ("Rerouting", "Routing"):
                metrics.reroutings.labels("imbalance" if event.reason == "Rerouting" else "applied").inc()
        if (took := status.reconfigured_seconds(seen, decision.status)) is not None:
            metrics.time_to_reconfigure_seconds.labels(seen.status["intent"]["action"]).observe(took)
        stats = seen.stats
        if stats is None:
            return
        if stats.imbalance is not None:
            metrics.imbalance_ratio.labels(key.namespace, key.name).set(stats.imbalance)
        if (stalled := tuples_stalled(stats.batches)) is not None:
            metrics.tuples_stalled.labels(key.namespace, key.name).set(stalled)


def tuples_stalled(batches: Sequence[Batch]) -> float | None:
    """Tuples that the newest switch among these batches held up: what its first batch took beyond the usual, times the
    usual rate. None where there is no switch or nothing to compare it with."""
    switches = [index for index in range(1, len(batches)) if batches[index].epoch != batches[index - 1].epoch]
    if not switches:
        return None
    before = [batch for batch in batches[: switches[-1]] if batch.rows]
    if not before:
        return None
    usual = statistics.median(batch.seconds / batch.rows for batch in before)
    first = batches[switches[-1]]
    return max(first.seconds - first.rows * usual, 0.0) / usual if usual > 0 else None


def key_of(body: Object) -> Key:
    return Key(body["metadata"]["namespace"], body["metadata"]["name"])


def _same(one: Object, other: Object) -> bool:
    """Whether they are the same topology, at whatever time."""
    return one["metadata"]["uid"] == other["metadata"]["uid"]


def _asked(body: Object) -> tuple[object, ...]:
    """What only others change: which topology it is, its spec, whether it is to go, its annotations."""
    metadata = body["metadata"]
    return metadata["uid"], metadata["generation"], "deletionTimestamp" in metadata, metadata.get("annotations") or {}


def _version(body: Object) -> int:
    return int(body["metadata"]["resourceVersion"])
