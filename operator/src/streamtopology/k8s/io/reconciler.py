"""The loop: take a topology from the queue, observe it, decide, record the intent, carry it out, write the status.

All effects of the operator on topologies pass through here, never two passes of one topology at once, so no two writers of ours
meet. What triggers a pass does not matter: a changed resource, an owned object, a driver's answer, a timer. Each pass looks at
everything and may find nothing to do.

The intent is written before the first step. So whoever looks at a half-done change, also after a kill, sees what was meant
and since when. A failed pass is repeated later and later (`queue`); it delays no other topology.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from streamtopology.contract.conditions import DegradedReason, EventReason, ReconfiguringReason
from streamtopology.contract.errors import Unavailable
from streamtopology.contract.phases import Phase
from streamtopology.contract.pods import routing_map_name
from streamtopology.contract.reasons import ReroutingTrigger
from streamtopology.k8s import failpoints, names
from streamtopology.k8s.decide import events, status
from streamtopology.k8s.decide.answers import Reading
from streamtopology.k8s.decide.attempts import Aim, Attempts, Away, Refusal, aim_of, kept, noted, under
from streamtopology.k8s.decide.decision import Decision, decide
from streamtopology.k8s.decide.observation import Observation, manifest_text, read_topology
from streamtopology.k8s.decide.owned_objects import ObservedRoutingMap, Pod
from streamtopology.k8s.decide.rivals import rival_of
from streamtopology.k8s.decide.steps import Event, Finalizer
from streamtopology.k8s.io.api import ApiAway, ApiError
from streamtopology.k8s.io.apply import Applier, NameTakenError, ResizeRefusedError, refused_in
from streamtopology.k8s.io.cache import Cache
from streamtopology.k8s.io.event_limit import EventLimit
from streamtopology.k8s.io.metrics import OperatorMetrics, tuples_stalled
from streamtopology.k8s.io.not_created import NotCreated, lacking
from streamtopology.k8s.io.ownership import LOOK_SECONDS, TopologyClaims
from streamtopology.k8s.io.queue import Queue, TopologyKey
from streamtopology.k8s.io.reconcile_spans import ReconcileSpans
from streamtopology.k8s.io.refusals import is_busy, report_of, stops_all, unwritten
from streamtopology.k8s.io.scrape import Scraper
from streamtopology.k8s.io.topology_body import asked, is_same, key_of, orphans_among, owned_by, version
from streamtopology.k8s.io.upgrade_turns import UpgradeTurns, has_turn
from streamtopology.k8s.resources.objects import Object, Owner
from streamtopology.k8s.settings import Settings
from streamtopology.topology import Topology

log = logging.getLogger(__name__)

# The intervals in which figures alone are written to status, those that somebody would notice and the others: a write is an
# event for every watcher, and every running topology has other figures all the time.
FIGURES_SECONDS, QUIET_SECONDS = 30.0, 300.0

# Between two looks for the Secret of a topology with pods that do not start.
SECRET_SECONDS = 15.0


# The longest pause while the API server does not answer: each look then fails at its first call, so it costs one. Drivers
# answer all the while, and their answers start no look.
AWAY_SECONDS = 15.0


class Reconciler:
    """Reconciles every topology that `saw` reports. `clock`: seconds since 1970."""

    def __init__(
        self,
        applier: Applier,
        cache: Cache,
        not_created: NotCreated,
        ownership: TopologyClaims,
        scraper: Scraper,
        queue: Queue,
        settings: Settings,
        metrics: OperatorMetrics,
        clock: Callable[[], float],
        spans: ReconcileSpans,
    ) -> None:
        self._applier = applier
        self._cache = cache
        self._not_created = not_created
        self._ownership = ownership
        self._scraper = scraper
        self._read: dict[TopologyKey, dict[str, Reading]] = {}
        self._queue = queue
        self._settings = settings
        self._metrics = metrics
        metrics.queue_length.set_function(lambda: len(queue))
        self._upgrade_turns = UpgradeTurns(settings.upgrade_seconds, queue.add, self._with_turn)
        metrics.outdated_topologies.set_function(lambda: len(self._upgrade_turns))
        self._clock = clock
        self._spans = spans
        self._manifests: dict[TopologyKey, Object] = {}
        self._attempts: dict[TopologyKey, dict[Aim, Attempts]] = {}
        self._written_at: dict[TopologyKey, float] = {}
        self._secret_asked: dict[TopologyKey, float] = {}
        self._moved: set[TopologyKey] = set()
        self._away: dict[TopologyKey, Away] = {}
        self._event_limit = EventLimit()
        self._write_limit = WriteLimit(clock)
        self._begun: set[str | None] = set()

    def begin(self, namespace: str | None) -> None:
        """Begin with a namespace (None: with all), whose owned objects are all in the cache. Before that, an object not yet
        cached would count as missing: the driver would be restarted and the routing created without its epoch."""
        self._begun.add(namespace)
        for key in self._manifests:
            if self._has_begun(key):
                self._queue.add(key)

    def _has_begun(self, key: TopologyKey) -> bool:
        return None in self._begun or key.namespace in self._begun

    def saw(self, body: Object) -> None:
        """Take in a topology that is new or has changed. Versions older than the known one, our own writes included, are
        ignored, and so are late events of a previous topology of this name: kopf orders events for each uid only."""
        key = key_of(body)
        known = self._manifests.get(key)
        if known is not None and version(known) >= version(body):
            return
        if known is not None and not is_same(known, body):
            self._drop(key)
        body["metadata"].pop("managedFields", None)
        self._manifests[key] = body
        self._queue.add(key)

    def lost(self, body: Object) -> None:
        """Take in that a topology is gone. One of its name that exists by now, or comes later, is another."""
        key = key_of(body)
        known = self._manifests.get(key)
        if known is not None and is_same(known, body):
            self._drop(key)
            self._queue.add(key)

    def _drop(self, key: TopologyKey) -> None:
        """Drop all knowledge of a topology at once: it must not be taken for its namesake's."""
        del self._manifests[key]
        self._attempts.pop(key, None)
        self._written_at.pop(key, None)
        self._secret_asked.pop(key, None)
        self._read.pop(key, None)
        self._upgrade_turns.forget(key)
        self._not_created.forget(key)
        self._ownership.forget(key)
        self._event_limit.forget(key)
        self._write_limit.forget(key)
        self._cache.forget(key, names.SECRET)

    def known(self) -> Mapping[TopologyKey, int]:
        """The version of each topology."""
        return {key: version(body) for key, body in self._manifests.items()}

    def manifest(self, key: TopologyKey) -> Object | None:
        return self._manifests.get(key)

    def manifests(self) -> Iterable[Object]:
        """All topologies that are known, with their status."""
        return self._manifests.values()

    def _with_turn(self) -> Iterator[TopologyKey]:
        """The topologies whose stored status says that they have the turn of a roll-out."""
        return (key for key, body in self._manifests.items() if has_turn(body.get("status") or {}))

    async def run(self) -> None:
        """Reconcile until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._upgrade_turns.run(), name="roll-out")
            for number in range(self._settings.workers):
                group.create_task(self._work(), name=f"reconcile {number}")

    async def _work(self) -> None:
        while True:
            key = await self._queue.take()
            with self._spans.at(key) as reconciliation:
                reconciliation.outcome = await self._attempt(key)

    async def _attempt(self, key: TopologyKey) -> str:
        self._moved.discard(key)
        try:
            await self.reconcile(key)
        except ApiAway as error:
            known = self._away.get(key, Away(0, self._clock(), str(error)))
            self._away[key] = replace(known, count=known.count + 1)
            delay = self._queue.failed(key, key in self._moved, AWAY_SECONDS, holds=True)
            log.warning("%s: again in %.1f s: %s", key, delay, error)
            return "away"
        except WritesLimitedError as error:
            await self._pause(key, error)
            return "limited"
        except (ApiError, NameTakenError) as error:
            log.warning("%s: again in %.1f s: %s", key, self._queue.failed(key, holds=stops_all(error)), error)
            is_claimed = key in self._manifests and self._ownership.holds(self._manifests[key])
            await self._post_one(key, unwritten(error, self._queue.failures(key), is_claimed))
            return "refused"
        except Exception:
            log.exception("%s: again in %.1f s; please report this", key, self._queue.failed(key))
            return "error"
        self._away.pop(key, None)
        self._queue.done(key)
        return "done"

    async def reconcile(self, key: TopologyKey) -> None:
        """Observe one topology, decide, and carry the decision out."""
        manifest = self._manifests.get(key)
        if manifest is None:
            await self._forget(key)
            return
        if not self._has_begun(key):
            return
        try:
            await self._serve(key, manifest)
        except ApiError as error:
            path = names.TOPOLOGY.path(key.namespace, key.name)
            if error.status == 404 and error.what in (path, f"{path}/status"):
                self.lost(manifest)  # deleted while there was no watch
                return
            raise

    async def _serve(self, key: TopologyKey, manifest: Object) -> None:
        if not self._ownership.holds(manifest):
            self._write_limit.spend(key, len(self._cache.of(key)))
        claimed = await self._ownership.claim(key, manifest)
        if isinstance(claimed, str):
            await self._step_back(key, manifest, claimed)
            return
        if claimed is not manifest:
            self._moved.add(key)
            self._took(key, claimed)
        await self._recall(key, manifest)
        seen = self._look(key, self._manifests.get(key, manifest))
        decision = decide(seen, self._settings)
        refused: ApiError | NameTakenError | None = None
        if decision.steps:
            refused = await self._carry_out(key, seen, decision)
        else:
            await self._write(key, seen, decision.status)
        await self._post(key, seen, decision)
        self._scraper.want(key, decision.target)
        self._upgrade_turns.saw(key, decision)
        if decision.again_seconds is not None:
            self._queue.add_after(key, decision.again_seconds)
        self._measure(key, seen, decision)
        if refused is not None:
            raise refused

    async def _step_back(self, key: TopologyKey, manifest: Object, release: str) -> None:
        """Leave a topology to the release that serves it, and look again in a while whether that is still there."""
        event = self._ownership.stepped_back(key, release)
        if event is not None:
            log.warning("%s: %s: %s", key, event.reason, event.message)
            self._metrics.forget(key.namespace, key.name)
            self._upgrade_turns.leave(key)
            await self._scraper.forget(key)
            await self._applier.post(manifest, key, event, self._clock())
        self._queue.add_after(key, LOOK_SECONDS)

    async def _pause(self, key: TopologyKey, error: WritesLimitedError) -> None:
        log.error("%s", error)
        self._queue.done(key)
        self._queue.add_after(key, error.seconds)
        await self._post_one(key, Event("Warning", EventReason.WRITES_LIMITED, str(error)))

    async def _post_one(self, key: TopologyKey, event: Event | None) -> None:
        """Post the event of a look that has failed, if there is one, and there are not too many."""
        manifest, now = self._manifests.get(key), self._clock()
        if event is not None and manifest is not None and self._event_limit.admits(key, event.reason, now) is not None:
            await self._applier.post(manifest, key, event, now)

    async def _recall(self, key: TopologyKey, manifest: Object) -> None:
        """Ask the API server for what no watch shows: Spark's Secret, and why pods are not created."""
        uid = manifest["metadata"]["uid"]
        if self._may_lack_secret(key):
            await self._applier.recall_secret(Owner(key.name, key.namespace, uid))
        await self._not_created.ask(key, lacking(owned_by(uid, self._cache.of(key))))

    def _may_lack_secret(self, key: TopologyKey) -> bool:
        """True if Spark's Secret is to be looked for: none is known, or a pod that does not start may wait for it."""
        objects = self._cache.of(key)
        if (names.SECRET.kind, names.spark_secret(key.name)) not in objects:
            return True
        waits = any(isinstance(owned, Pod) and owned.phase == "Pending" for owned in objects.values())
        if not waits or self._clock() - self._secret_asked.get(key, 0.0) < SECRET_SECONDS:
            return False
        self._secret_asked[key] = self._clock()
        return True

    def _look(self, key: TopologyKey, manifest: Object) -> Observation:
        text = manifest_text(manifest)
        objects = owned_by(manifest["metadata"]["uid"], self._cache.of(key))
        routing = objects.get(("ConfigMap", routing_map_name(key.name)))
        read = self._readings(key, {text, routing.topology} if isinstance(routing, ObservedRoutingMap) else {text})
        running = read[routing.topology] if isinstance(routing, ObservedRoutingMap) else None
        return Observation(
            manifest,
            read[text],
            running if isinstance(running, Topology) else None,
            objects,
            self._scraper.answer(key),
            self._clock(),
            under(self._attempts.get(key, {}), int(manifest["metadata"]["generation"])),
            self._not_created.reasons(key),
            self._upgrade_turns.has_reached(key),
            self._rival(key, manifest),
            self._cache.evicted(key),
            self._away.get(key),
            orphans_among(self._cache.of(key)),
        )

    def _rival(self, key: TopologyKey, manifest: Object) -> str:
        def has(topology: Object, stateful_set: str) -> bool:
            objects = owned_by(topology["metadata"]["uid"], self._cache.of(key_of(topology)))
            return (names.STATEFUL_SET.kind, stateful_set) in objects

        return rival_of(manifest, lambda name: self._manifests.get(TopologyKey(key.namespace, name)), has)

    def _readings(self, key: TopologyKey, texts: set[str]) -> Mapping[str, Reading]:
        """The topologies in these manifests of one topology. Each is parsed once for as long as it is one of them."""
        known = self._read.get(key, {})
        self._read[key] = {text: known[text] if text in known else read_topology(text) for text in texts}
        return self._read[key]

    async def _carry_out(self, key: TopologyKey, seen: Observation, decision: Decision) -> ApiError | NameTakenError | None:
        """Record the steps, then take them. Afterwards the topology is looked at again, as the steps have changed it.

        What the cluster refuses stops no other step but that of the finalizer, without which nothing is made. Returns the
        first refusal. ApiError: the status was refused; ApiAway.
        """
        failpoints.point("before-intent")
        if decision.status != seen.status:
            await self._write_now(key, seen.manifest, decision.status)
        failpoints.point("after-intent")
        refused: list[ApiError | NameTakenError] = []
        resizes: list[ResizeRefusedError] = []
        attempts = self._attempts[key] = kept(seen.attempts, self._clock())
        for step in decision.steps:
            log.info("%s: %s", key, step)
            self._write_limit.spend(key, len(seen.objects))
            problem: Refusal | None = None
            try:
                changed = await self._applier.take(step, seen.owner)
            except ResizeRefusedError as refusal:
                log.warning("%s: %s", key, refusal)
                if refusal.keeps:
                    problem = Refusal((DegradedReason.RESIZE_REFUSED, str(refusal)))
                else:
                    resizes.append(refusal)
            except (ApiError, NameTakenError) as refusal:
                log.warning("%s: %s", key, refusal)
                problem = report_of(step, refusal)
                refused.append(refusal)
            else:
                self._moved.add(key)
                if changed is not None:
                    self._took(key, changed)
            attempts[aim_of(step)] = noted(attempts.get(aim_of(step)), step, self._clock(), problem, seen.generation)
            if problem is not None and (isinstance(step, Finalizer) or is_busy(refused)):
                break
        if resizes and (manifest := self._manifests.get(key)) is not None:
            await self._write_now(key, manifest, refused_in(decision.status, resizes))
        if refused:
            return refused[0]
        self._queue.add(key)
        return None

    async def _write(self, key: TopologyKey, seen: Observation, reported: Object) -> None:
        """Write the status if more than its figures has changed, or if only they have and some time has passed."""
        if reported == seen.status:
            return
        waited = self._clock() - self._written_at.get(key, 0.0)
        due = waited >= (FIGURES_SECONDS if status.is_noticeable(seen.status, reported) else QUIET_SECONDS)
        if due or status.is_news(seen.status, reported):
            failpoints.point("before-status")
            await self._write_now(key, seen.manifest, reported)
            failpoints.point("after-status")

    async def _write_now(self, key: TopologyKey, manifest: Object, reported: Object) -> None:
        self._write_limit.spend(key, len(self._cache.of(key)))
        self._took(key, await self._applier.write_status(manifest, reported))
        self._moved.add(key)
        self._written_at[key] = self._clock()

    def _took(self, key: TopologyKey, body: Object) -> None:
        """Take in the topology as one of our own writes left it. If someone changed it just before, it is looked at again: the
        event of that change is yet to come and will be ignored as older."""
        known = self._manifests.get(key)
        if known is None or version(known) > version(body):
            return
        body["metadata"].pop("managedFields", None)
        self._manifests[key] = body
        if asked(known) != asked(body):
            self._queue.add(key)

    async def _post(self, key: TopologyKey, seen: Observation, decision: Decision) -> None:
        """Log the events and post those that are not too many; without an answer to one of them no other is tried, as each
        would wait as long."""
        is_there = True
        for event in decision.events:
            log.log(
                logging.WARNING if event.type == "Warning" else logging.INFO, "%s: %s: %s", key, event.reason, event.message
            )
            admitted = self._event_limit.admitted(key, event, seen.now)
            if is_there and admitted is not None:
                is_there = await self._applier.post(seen.manifest, key, admitted, seen.now)

    async def _forget(self, key: TopologyKey) -> None:
        self._queue.forget(key)  # before the first pause, in which a namesake may come
        self._away.pop(key, None)
        self._metrics.forget(key.namespace, key.name)
        await self._scraper.forget(key)

    def _measure(self, key: TopologyKey, seen: Observation, decision: Decision) -> None:
        metrics = self._metrics
        metrics.show_conditions(key.namespace, key.name, decision.status.get("conditions") or ())
        for event in decision.events:
            if event.reason in (ReconfiguringReason.REROUTING, ReconfiguringReason.ROUTING):
                ours = event.reason == ReconfiguringReason.REROUTING
                metrics.reroutings.labels((ReroutingTrigger.IMBALANCE if ours else ReroutingTrigger.APPLIED).value).inc()
        if (took := events.reconfigured_seconds(seen, decision.status)) is not None:
            metrics.time_to_reconfigure_seconds.labels(seen.status["intent"]["action"]).observe(took)
        stats = seen.stats
        if stats is None or stats.activity.phase is Phase.DONE:
            metrics.forget_batches(key.namespace, key.name)
            return
        if stats.imbalance is not None:
            metrics.imbalance_ratio.labels(key.namespace, key.name).set(stats.imbalance)
        if (stalled := tuples_stalled(stats.batches)) is not None:
            metrics.tuples_stalled.labels(key.namespace, key.name).set(stalled)


# Writes at once: a topology of the most classes is made by a hundred, with the records of it.
LEAST_BURST = 200

# Further ones for each object that it has: every pod of a thousand may be resized, replaced and resized again.
PER_OBJECT = 4

# The time after which the allowance is whole again.
REFILL_SECONDS = 60.0


class WritesLimitedError(Unavailable):
    """A topology has used its writes up; the next one is due in `seconds`."""

    def __init__(self, key: TopologyKey, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"{key}: no write for {seconds:.0f} s, as too many were made; please report this")


@dataclass
class _Allowance:
    used: float
    at: float


class WriteLimit:
    """Counts the writes of each topology. `clock`: seconds since 1970."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._allowances: dict[TopologyKey, _Allowance] = {}

    def spend(self, key: TopologyKey, objects: int) -> None:
        """Count one more write of a topology with this number of objects. WritesLimitedError: it may not be made now."""
        burst, now = LEAST_BURST + PER_OBJECT * objects, self._clock()
        known = self._allowances.setdefault(key, _Allowance(0.0, now))
        known.used = max(known.used - max(now - known.at, 0.0) * burst / REFILL_SECONDS, 0.0)
        known.at = now
        if known.used + 1 > burst:
            raise WritesLimitedError(key, REFILL_SECONDS / 2)
        known.used += 1

    def forget(self, key: TopologyKey) -> None:
        """A topology is gone."""
        self._allowances.pop(key, None)
