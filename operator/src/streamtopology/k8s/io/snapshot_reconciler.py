"""The loop of snapshots: take one from the queue, look at its topology and its Job, decide, make the Job, write the status."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from streamtopology.k8s import names
from streamtopology.k8s.decide.observation import manifest_text, read_topology
from streamtopology.k8s.decide.owned_objects import Job, OwnedObject, Pod
from streamtopology.k8s.decide.snapshot_events import events_of_snapshot
from streamtopology.k8s.decide.snapshot_schedule import dropped_by, run_of, surplus
from streamtopology.k8s.decide.snapshots import (
    LOOK_SECONDS,
    SnapshotReason,
    SnapshotView,
    decide_snapshot,
    holder_of,
    is_ended,
    rival_of,
    without_job,
)
from streamtopology.k8s.io.api import Api, ApiAway, ApiError
from streamtopology.k8s.io.apply import Applier, NameTakenError, is_owned, merge_patch
from streamtopology.k8s.io.cache import Cache
from streamtopology.k8s.io.event_limit import EventLimit
from streamtopology.k8s.io.not_created import NotCreated, lacking
from streamtopology.k8s.io.ownership import TopologyClaims
from streamtopology.k8s.io.queue import TopologyKey
from streamtopology.k8s.io.refusals import LASTING, LEFT_OVER_TRIES, TRIES
from streamtopology.k8s.io.snapshot_watch import SnapshotWatch, topology_of
from streamtopology.k8s.io.topology_body import key_of
from streamtopology.k8s.resources.objects import Object, Owner
from streamtopology.k8s.settings import Settings
from streamtopology.topology import Topology

log = logging.getLogger(__name__)

# Snapshots that are looked at at once: a look is a few calls, and there are few snapshots.
WORKERS = 2


class SnapshotReconciler:
    """Reconciles the snapshots of the topologies that this release serves.

    `topology`: as the watch of topologies has it. `clock`: seconds since 1970.
    """

    def __init__(
        self,
        api: Api,
        applier: Applier,
        cache: Cache,
        watch: SnapshotWatch,
        topology: Callable[[TopologyKey], Object | None],
        ownership: TopologyClaims,
        settings: Settings,
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._applier = applier
        self._cache = cache
        self._watch = watch
        self._queue = watch.queue
        self._topology = topology
        self._ownership = ownership
        self._settings = settings
        self._clock = clock
        self._not_created = NotCreated(api, clock)
        self._event_limit = EventLimit()

    async def follow(self, watching: Api, namespace: str | None) -> None:
        """Watch the snapshots of a namespace (None: of all) until cancelled. A Job not yet listed would count as missing."""
        await self._cache.listed((names.JOB, names.POD), namespace)
        await self._watch.follow(watching, namespace)

    async def run(self) -> None:
        """Reconcile until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(WORKERS):
                group.create_task(self._work(), name=f"snapshots {number}")

    async def _work(self) -> None:
        while True:
            key = await self._queue.take()
            try:
                await self.reconcile(key)
            except (ApiAway, ApiError, NameTakenError) as error:
                log.warning("snapshot %s: again in %.1f s: %s", key, self._queue.failed(key), error)
            except Exception:
                log.exception("snapshot %s: again in %.1f s; please report this", key, self._queue.failed(key))
            else:
                self._queue.done(key)

    async def reconcile(self, key: TopologyKey) -> None:
        """One look at one snapshot, and the Job or the status that it leads to."""
        body = self._watch.get(key)
        if body is None or is_ended(body) or "deletionTimestamp" in body["metadata"]:
            self._not_created.forget(key)
            self._event_limit.forget(key)
            self._queue.forget(key)
            return
        of = topology_of(body)
        topology = self._topology(of) or await self._api.get(names.TOPOLOGY, of.namespace, of.name)
        if topology is not None and not self._ownership.holds(topology):
            self._queue.add_after(key, LOOK_SECONDS)  # another release serves it, or its claim is on the way
            return
        await self._advance(key, await self._look(key, body, topology))

    async def _advance(self, key: TopologyKey, seen: SnapshotView) -> None:
        decision = decide_snapshot(seen, self._settings.pod_user)
        status, refused = decision.status, None
        if decision.withdrawn is not None:
            await self._withdraw(key, decision.withdrawn)
        if decision.job is not None:
            try:
                await self._make(decision.job, seen.owner)
            except (ApiError, NameTakenError) as error:
                status, refused = self._reported(key, seen, error), error
        for old in dropped_by(seen.body, decision.dropped, self._watch.bodies()):
            await self._forget(old)
        if status != seen.status:
            await self._write(key, seen.body, status)
        if decision.again_seconds is not None:
            self._queue.add_after(key, decision.again_seconds)
        if refused is not None:
            raise refused

    async def _look(self, key: TopologyKey, body: Object, topology: Object | None) -> SnapshotView:
        job, pods = self._job(key, body), ()
        if job is not None:
            pods = await self._pods(body, job)
            objects: dict[tuple[str, str], OwnedObject] = {(each.kind, each.name): each for each in (job, *pods)}
            await self._not_created.ask(key, lacking(objects))
        read = read_topology(manifest_text(topology)) if topology is not None else None
        found = "; ".join(read) if isinstance(read, tuple) else read
        checkpoint = str(((topology or {}).get("status") or {}).get("checkpoint", ""))
        others = await self._topologies() if job is None and checkpoint else ()
        schedule = found.snapshots if isinstance(found, Topology) else None
        too_many = surplus(body, schedule and schedule.keep, self._watch.bodies(), others)
        return SnapshotView(
            body,
            found,
            checkpoint,
            (found.image if isinstance(found, Topology) else None) or self._settings.image,
            job,
            pods,
            self._not_created.reasons(key).get((names.JOB.kind, names.snapshot(key.name)), ""),
            rival_of(body, self._watch.bodies(), others),
            self._clock(),
            holder_of(body, others),
            tuple((run_of(each), str(each["spec"]["to"])) for each in too_many),
        )

    async def _topologies(self) -> tuple[Object, ...]:
        """All that this operator may see, as they are now: whose checkpoints may be at a place that is about to be written."""
        found: list[Object] = []
        for namespace in self._settings.namespaces or (None,):
            async for page in self._api.pages(names.TOPOLOGY, namespace):
                found += page.items
        return tuple(found)

    def _job(self, key: TopologyKey, body: Object) -> Job | None:
        found = self._cache.of(topology_of(body)).get((names.JOB.kind, names.snapshot(key.name)))
        return found if isinstance(found, Job) and found.owner == body["metadata"]["uid"] else None

    async def _pods(self, body: Object, job: Job) -> tuple[Pod, ...]:
        """The Job's pods, newest first. The end of a Job may be known before that of its pods, which has the report."""
        if (job.done or job.failed) and not any(_has_ended_as(job, pod) for pod in self._known_pods(body, job)):
            of = topology_of(body)
            selector = names.selector(names.labels(of.name, "snapshot"))
            async for page in self._api.pages(names.POD, of.namespace, selector):
                for item in page.items:
                    self._cache.note(item)
        return self._known_pods(body, job)

    def _known_pods(self, body: Object, job: Job) -> tuple[Pod, ...]:
        objects = self._cache.of(topology_of(body)).values()
        pods = [each for each in objects if isinstance(each, Pod) and each.owner == job.uid]
        return tuple(sorted(pods, key=lambda pod: pod.since, reverse=True))

    async def _make(self, job: Object, owner: Owner) -> None:
        """Create the Job, or find that it has been. NameTakenError: one of its name is another's; it is not touched."""
        log.info("snapshot %s/%s: create Job %s", owner.namespace, owner.name, job["metadata"]["name"])
        try:
            made = await self._api.create(names.JOB, owner.namespace, job)
        except ApiError as error:
            found = await self._api.get(names.JOB, owner.namespace, job["metadata"]["name"])
            if error.reason != "AlreadyExists" or found is None:
                raise
            if not is_owned(found, owner):
                raise NameTakenError(names.JOB, found, owner) from error
            made = found
        self._cache.note(made)

    async def _withdraw(self, key: TopologyKey, job: Job) -> None:
        """Delete a Job that has no pod: a later topology of that name must not start it. One that is gone already is fine."""
        log.info("snapshot %s: delete Job %s", key, job.name)
        try:
            await self._api.delete(names.JOB, key.namespace, job.name, job.uid)
        except ApiError as error:
            if error.status != 409:  # another uid
                raise

    async def _forget(self, old: Object) -> None:
        """Delete a snapshot of a schedule whose copy is gone. One that is gone itself is fine."""
        key = key_of(old)
        log.info("snapshot %s: delete it, its schedule keeps newer ones", key)
        try:
            await self._api.delete(names.SNAPSHOT, key.namespace, key.name, old["metadata"]["uid"])
        except ApiError as error:
            if error.status != 409:  # another uid
                raise

    def _reported(self, key: TopologyKey, seen: SnapshotView, refused: ApiError | NameTakenError) -> Object:
        """The status with the refusal, or the present one while it may be over the next time."""
        if isinstance(refused, NameTakenError):
            reason, text, patience = SnapshotReason.NAME_TAKEN, str(refused), LEFT_OVER_TRIES if refused.is_left_over else 1
        else:
            text = f"the API server refuses the Job: {refused.message or refused.reason} ({refused.status})"
            reason, patience = SnapshotReason.JOB_REFUSED, 1 if refused.status in LASTING else TRIES
        return without_job(seen, reason, text) if self._queue.failures(key) + 1 >= patience else seen.status

    async def _write(self, key: TopologyKey, body: Object, status: Object) -> None:
        """Write the whole status and post its event. With the uid: a namesake that has come since has a status of its own."""
        change = {"metadata": {"uid": body["metadata"]["uid"]}, "status": merge_patch(body.get("status") or {}, status)}
        try:
            written = await self._api.patch(names.SNAPSHOT, key.namespace, key.name, change, "status")
        except ApiError as error:
            if error.status != 404:
                raise
            self._watch.lost(key, body)
            return
        log.info("snapshot %s: %s: %s", key, status["phase"], status["message"])
        self._watch.took(key, written)
        for event in events_of_snapshot(body.get("status") or {}, status):
            admitted = self._event_limit.admitted(key, event, self._clock())
            if admitted is not None:
                await self._applier.post(body, key, admitted, self._clock(), names.SNAPSHOT)


def _has_ended_as(job: Job, pod: Pod) -> bool:
    return pod.ended is not None and (pod.ended.exit_code == 0) == job.done
