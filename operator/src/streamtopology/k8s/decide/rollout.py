"""The driver's input: the topology and the newest epoch in the ConfigMap NAME-routing, and pre-copy Jobs. Pure.

Topology and epoch travel in one object, because a driver that saw one without the other would run a routing for other
executors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from streamtopology.contract.conditions import DegradedReason, ReadyReason, ReconfiguringReason
from streamtopology.contract.formatting import count, duration, size
from streamtopology.contract.phases import Phase
from streamtopology.contract.reason_text import describe
from streamtopology.contract.routing_configmap import NO_EPOCH, READY, WITHDRAWALS, PackedEpoch, Withdrawals
from streamtopology.k8s import names
from streamtopology.k8s.decide.answers import Judgement
from streamtopology.k8s.decide.conditions import is_completed, precopy_obstacle
from streamtopology.k8s.decide.evictions import sentence
from streamtopology.k8s.decide.observation import Observation
from streamtopology.k8s.decide.owned_objects import Job, ObservedRoutingMap
from streamtopology.k8s.decide.steps import Apply, Delete, Event, Patch, Step
from streamtopology.k8s.resources.objects import Object
from streamtopology.k8s.resources.routing import RoutingTooLargeError, config_map
from streamtopology.topology import Level, Topology, difference

# The pre-copy Job of an epoch.
JobOf = Callable[[int], Object]

# Pre-copies that may fail one after the other, each by a Job of several tries; from then on state moves with the batches.
MOST_MIGRATIONS = 3

# After an epoch that was withdrawn the next one has to wait: doubled with each that is withdrawn, up to the longest.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 10.0, 600.0

# So long after the last one withdrawn, the next begins again with the first pause.
FORGOTTEN_SECONDS = 3600.0

# The time that the pod of a pre-copy may take to start: nothing else is re-routed meanwhile.
STARTING_SECONDS = 300.0

# The event and the reason of the condition Reconfiguring, by the level of a change.
REASONS = {
    Level.ROUTE: ReconfiguringReason.ROUTING,
    Level.RESIZE: ReconfiguringReason.RESIZING,
    Level.SCALE: ReconfiguringReason.SCALING,
    Level.RESTART: ReconfiguringReason.RESTARTING,
}


@dataclass(frozen=True)
class Rollout:
    """The steps towards the wanted ConfigMap. `restart_generation`: for the driver's template.

    `epoch`: the one that the ConfigMap then has, or that is withdrawn. `begun`: the kind of change that begins with these
    steps; `problem`: (reason, sentence) of one that is impossible.
    """

    restart_generation: int
    steps: tuple[Step, ...] = ()
    events: tuple[Event, ...] = ()
    begun: str | None = None
    problem: tuple[str, str] | None = None
    epoch: int | None = None


def roll_out(seen: Observation, topology: Topology, job_of: JobOf, why: str) -> Rollout:
    """Steps towards `topology`, which is resolved. `why`: the reason for its number of executors, or empty."""
    current = seen.routing
    if current is None:
        restart = seen.generation
        if seen.driver is not None and seen.driver.restart_generation is not None:
            restart = seen.driver.restart_generation  # someone deleted the ConfigMap: no reason to restart the driver
        step = Apply(_config_map(seen, topology, restart))
        text = f"the driver and {topology.replicas} executors are created (generation {seen.generation})"
        return Rollout(
            restart, (step,), (Event("Normal", ReconfiguringReason.STARTING, text),), begun=ReconfiguringReason.STARTING
        )
    is_other = seen.running != topology or current.generation != seen.generation  # by value: versions write it in other words
    if is_other or _has_ended(seen, current, topology):
        return _other_topology(seen, current, topology, why)
    if current.epoch is not None and (pending := _pending(seen, current, topology, job_of)) is not None:
        return pending
    if stale := _stale_jobs(seen, current):
        return Rollout(current.restart_generation, tuple(stale), epoch=current.epoch)
    return _judged(seen, current, topology, job_of)


def ended(seen: Observation, rollout: Rollout) -> Rollout:
    """`rollout` of a topology whose run has come to its end: what it publishes is for the next run, and begins none."""
    text = f"the run has completed: another number of executors starts none (generation {seen.generation})"
    events = (Event("Normal", ReadyReason.COMPLETED, text),) if rollout.begun else ()
    return replace(rollout, events=events, begun=None)


def is_pending(seen: Observation) -> bool:
    """True if an epoch or a topology has been published under which no batch has run yet."""
    current, stats = seen.routing, seen.stats
    if current is None or stats is None:
        return False
    if current.epoch is not None and (stats.epoch is None or stats.epoch < current.epoch):
        return True
    return stats.generation != current.generation or not stats.settled


def _other_topology(seen: Observation, current: ObservedRoutingMap, topology: Topology, why: str) -> Rollout:
    """Publish another topology, or only another generation, without the epoch planned for the old one."""
    if seen.running is None:
        level, what = Level.RESTART, ("the topology in the ConfigMap could not be read",)
    else:
        change, has_ended = difference(seen.running, topology), _has_ended(seen, current, topology)
        level = Level.RESTART if has_ended or _begins_otherwise(seen, topology) else change.level
        what = change.sentences or (("the run before came to its end",) if has_ended else ())
    restart = seen.generation if level is Level.RESTART else current.restart_generation
    steps = _without_epoch(current, _config_map(seen, topology, restart))
    reason = REASONS.get(level)
    text = f"{'; '.join(what)} (generation {seen.generation}){f'; {why}' if why else ''}"
    events = (Event("Normal", reason, text),) if reason else ()
    return Rollout(restart, steps, events, begun=reason)


def _without_epoch(current: ObservedRoutingMap, body: Object) -> tuple[Step, ...]:
    """The steps to a ConfigMap that has no epoch.

    Others that have written to it hold the fields of the epoch, too, which the API server then keeps when we leave them out.
    """
    if current.epoch is None:
        return (Apply(body),)
    data = {**NO_EPOCH["data"], WITHDRAWALS: body["data"].get(WITHDRAWALS)}
    taken_out = {**NO_EPOCH, "data": data}
    return Apply(body), Patch(names.CONFIG_MAP, current.name, taken_out, f"epoch {current.epoch} is taken out")


def _has_ended(seen: Observation, current: ObservedRoutingMap, topology: Topology) -> bool:
    """True if the driver has come to the end of its input under a former generation: it takes no other one any more."""
    stats = seen.stats
    if stats is None or stats.activity.phase is not Phase.DONE or is_completed(seen, topology):
        return False
    return stats.generation != seen.generation != current.restart_generation


def _begins_otherwise(seen: Observation, topology: Topology) -> bool:
    """True if a driver that has not begun shall begin its checkpoint otherwise; one that refused to begin waits for minutes."""
    pod = seen.driver_pod
    is_changed = seen.running is not None and seen.running.restore != topology.restore
    return is_changed and pod is not None and not pod.ready


def _pending(seen: Observation, current: ObservedRoutingMap, topology: Topology, job_of: JobOf) -> Rollout | None:
    """The steps that a published epoch needs; None once it is active."""
    assert current.epoch is not None
    stats = seen.stats
    if current.epoch == 0:
        why = "it is damaged in the ConfigMap"
        return _withdrawn(seen, current, topology, DegradedReason.EPOCH_REFUSED, why, current.failed_migrations)
    if stats is not None and stats.epoch is not None and stats.epoch >= current.epoch:
        return None
    if stats is not None and stats.refused is not None and stats.refused.epoch == current.epoch:
        why = f"the driver refused it: {stats.refused.why}"
        return _withdrawn(seen, current, topology, DegradedReason.EPOCH_REFUSED, why, current.failed_migrations)
    if current.epoch_state == "prepared":
        job = seen.job(current.epoch)
        if job is None:
            made = Apply(job_of(current.epoch))
            return Rollout(current.restart_generation, (made,), begun=ReconfiguringReason.MIGRATING, epoch=current.epoch)
        if failure := _failed(seen, job) or _not_started(seen, job):
            failed = current.failed_migrations + 1
            why = f"its migration failed: {failure}"
            if failed >= MOST_MIGRATIONS:
                why += f". {failed} failed in a row: until the manifest changes, state moves in portions, with the batches"
            return _withdrawn(seen, current, topology, DegradedReason.MIGRATION_FAILED, why, failed)
        if job.done:
            ready = Patch(names.CONFIG_MAP, current.name, {"data": dict(READY)}, f"epoch {current.epoch} is copied: ready")
            return Rollout(current.restart_generation, (ready,), epoch=current.epoch)
    return Rollout(current.restart_generation, epoch=current.epoch, problem=_withdrawn_before(current.withdrawals))


def _failed(seen: Observation, job: Job) -> str:
    """The failure of a Job that Kubernetes has given up, with the eviction of its last pod; empty for another."""
    why = [sentence(pod) for pod in seen.pods("migration") if pod.owner == job.uid and pod.evicted is not None]
    return f"{job.failed}; {why[-1]}" if job.failed and why else job.failed


def _not_started(seen: Observation, job: Job) -> str:
    """The obstacle of a Job that has had its time and no pod that ran; empty for another."""
    ran = any(pod.owner == job.uid and pod.phase != "Pending" for pod in seen.pods("migration"))
    if job.done or ran or seen.now - job.since < STARTING_SECONDS:
        return ""
    return (
        f"no pod of it has started in {duration(STARTING_SECONDS)}: {precopy_obstacle(seen) or 'the cluster gives no reason'}"
    )


def _withdrawn(
    seen: Observation, current: ObservedRoutingMap, topology: Topology, reason: str, why: str, failed_migrations: int
) -> Rollout:
    """Publish the ConfigMap without the epoch, under which no batch has run; the controller judges again later."""
    assert current.epoch is not None
    text = f"epoch {current.epoch} is withdrawn, the routing stays as it was: {why}"
    noted = current.withdrawals  # what somebody has damaged was not tried
    if current.epoch:
        noted = Withdrawals(_recent(seen, noted).count + 1, math.floor(seen.now), reason, text)
    body = _config_map(seen, topology, current.restart_generation, None, failed_migrations, noted)
    steps = _without_epoch(current, body)
    events, problem = (Event("Warning", reason, text),), (reason, text)
    return Rollout(current.restart_generation, steps, events, problem=problem, epoch=current.epoch)


def _recent(seen: Observation, known: Withdrawals) -> Withdrawals:
    return known if seen.now - known.at < FORGOTTEN_SECONDS else Withdrawals()


def _withdrawn_before(known: Withdrawals) -> tuple[str, str] | None:
    """(reason, sentence) of the epochs withdrawn before the one that is to be tried next; None without any."""
    if not known.count:
        return None
    often = f" ({known.count} in a row, the next one {duration(_pause(known))} later)" if known.count > 1 else ""
    return known.reason, known.why + often


def _pause(known: Withdrawals) -> float:
    return min(FIRST_PAUSE_SECONDS * 2 ** min(known.count - 1, 10), LONGEST_PAUSE_SECONDS)


def _stale_jobs(seen: Observation, current: ObservedRoutingMap) -> list[Step]:
    """Delete pre-copy Jobs whose epoch is no longer published: they would keep copying, and their result would count for the
    next epoch of that number. Jobs whose epoch was active stay until they expire.

    By the existing objects, not with the step that withdraws the epoch: an operator may be killed between the two.
    """
    newest = seen.stats.newest_epoch if seen.stats is not None else None
    return [
        Delete(names.JOB, job.name, job.uid, f"epoch {job.epoch} is given up")
        for job in seen.jobs()
        if job.epoch != current.epoch and not job.deleting
        if not job.done or (newest is not None and job.epoch > newest)
    ]


def _judged(seen: Observation, current: ObservedRoutingMap, topology: Topology, job_of: JobOf) -> Rollout:
    """Publish the controller's proposal, if it is for the running topology and epoch."""
    keep = Rollout(current.restart_generation, epoch=current.epoch)
    judgement, stats = seen.answer.judgement if seen.answer else None, seen.stats
    if judgement is None or judgement.kind != "reroute" or stats is None or not stats.settled:
        return keep
    if judgement.generation != current.generation or judgement.number != (stats.newest_epoch or 0) + 1:
        return keep
    withdrawn = _recent(seen, current.withdrawals) if current.epoch is None else Withdrawals()
    if withdrawn.count and seen.now - withdrawn.at < _pause(withdrawn):
        return replace(keep, problem=_withdrawn_before(withdrawn))
    failed = current.failed_migrations
    ahead = judgement.moved_bytes > topology.migration.threshold_bytes and failed < MOST_MIGRATIONS
    epoch = PackedEpoch(
        judgement.number, seen.generation, judgement.packed, "prepared" if ahead else "ready", describe(judgement.reason)
    )
    try:
        body = _config_map(seen, topology, current.restart_generation, epoch, failed, withdrawn)
    except RoutingTooLargeError as error:
        return replace(keep, problem=(DegradedReason.ROUTING_TOO_LARGE, str(error)))
    steps: list[Step] = [Apply(body)]
    if ahead:
        steps.append(Apply(job_of(epoch.number)))
    event = Event("Normal", ReconfiguringReason.REROUTING, f"epoch {judgement.number}: {figures(judgement)}")
    return Rollout(
        current.restart_generation,
        tuple(steps),
        (event,),
        begun=ReconfiguringReason.MIGRATING if ahead else ReconfiguringReason.REROUTING,
        problem=_withdrawn_before(withdrawn),
        epoch=epoch.number,
    )


def _config_map(
    seen: Observation,
    topology: Topology,
    restart_generation: int,
    epoch: PackedEpoch | None = None,
    failed_migrations: int = 0,
    withdrawals: Withdrawals = Withdrawals(),  # noqa: B008 - frozen
) -> Object:
    """The ConfigMap with the checkpoint that status knows: the driver begins no other one with nothing, unless asked to."""
    former = seen.status.get("checkpoint", "")
    return config_map(seen.owner, topology, seen.generation, restart_generation, epoch, failed_migrations, former, withdrawals)


def figures(judgement: Judgement) -> str:
    """A proposal in one line: reason, gain and cost."""
    return (
        f"{describe(judgement.reason)}; saves {duration(judgement.predicted_gain_seconds)} a batch, "
        f"moves about {count(judgement.moved_keys)} keys and {size(judgement.moved_bytes)}, "
        f"costs {duration(judgement.cost_seconds)} once"
    )
