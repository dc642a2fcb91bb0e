"""What the driver is given: the topology and the newest epoch, by the ConfigMap NAME-routing, and migrations. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from streamtopology.operator import names
from streamtopology.operator.observe import Observed
from streamtopology.operator.planning import Judgement
from streamtopology.operator.resources import migration
from streamtopology.operator.resources.routing import RoutingTooLargeError, config_map, topology_text
from streamtopology.operator.seen import RoutingMap
from streamtopology.operator.steps import Apply, Delete, Event, Patch, Step
from streamtopology.routing.routing_map import READY, PackedEpoch
from streamtopology.routing.topology import Level, Topology, difference
from streamtopology.routing.wording import count, duration, size

REASONS = {
    Level.ROUTE: "Routing",
    Level.RESIZE: "Resizing",
    Level.SCALE: "Scaling",
    Level.RESTART: "Restarting",
}
"""The event and the reason of the condition Reconfiguring, by how deep a change goes."""


@dataclass(frozen=True)
class Rollout:
    """The steps towards the ConfigMap as it should be. `restart_generation`: for the driver's template.

    `begun`: what kind of change begins with these steps; `problem`: (reason, sentence) of what cannot be carried out.
    """

    restart_generation: int
    steps: tuple[Step, ...] = ()
    events: tuple[Event, ...] = ()
    begun: str | None = None
    problem: tuple[str, str] | None = None


def roll_out(seen: Observed, topology: Topology, image: str, why: str) -> Rollout:
    """`topology` is resolved: what should run. `why`: what led to the number of executors that it has now, or nothing."""
    current = seen.routing
    if current is None:
        restart = seen.generation
        if seen.driver is not None and seen.driver.restart_generation is not None:
            restart = seen.driver.restart_generation  # somebody deleted the ConfigMap: no reason to restart the driver
        step = Apply(config_map(seen.owner, topology, seen.generation, restart, None))
        text = f"the driver and {topology.replicas} executors are made (generation {seen.generation})"
        return Rollout(restart, (step,), (Event("Normal", "Starting", text),), begun="Starting")
    if current.topology != topology_text(topology) or current.generation != seen.generation:
        return _other_topology(seen, current, topology, why)
    if current.epoch is not None and (pending := _pending(seen, current, topology, image)) is not None:
        return pending
    if stale := _stale_jobs(seen, current):
        return Rollout(current.restart_generation, tuple(stale))
    return _judged(seen, current, topology, image)


def is_pending(seen: Observed) -> bool:
    """Whether an epoch or a topology has been published that no batch has run under yet."""
    current, stats = seen.routing, seen.stats
    if current is None or stats is None:
        return False
    if current.epoch is not None and (stats.epoch is None or stats.epoch < current.epoch):
        return True
    return stats.generation != current.generation or not stats.settled


def _other_topology(seen: Observed, current: RoutingMap, topology: Topology, why: str) -> Rollout:
    """Another topology, or only another generation. An epoch planned for the old one goes with it."""
    if seen.running is None:
        level, what = Level.RESTART, ("the topology in the ConfigMap could not be read",)
    else:
        change = difference(seen.running, topology)
        level, what = change.level, change.sentences
    restart = seen.generation if level is Level.RESTART else current.restart_generation
    step = Apply(config_map(seen.owner, topology, seen.generation, restart, None))
    reason = REASONS.get(level)
    text = f"{'; '.join(what)} (generation {seen.generation}){f'; {why}' if why else ''}"
    events = (Event("Normal", reason, text),) if reason else ()
    return Rollout(restart, (step,), events, begun=reason)


def _pending(seen: Observed, current: RoutingMap, topology: Topology, image: str) -> Rollout | None:
    """What a published epoch needs; None when it needs nothing and is active."""
    assert current.epoch is not None
    stats = seen.stats
    if stats is not None and stats.epoch is not None and stats.epoch >= current.epoch:
        return None
    if stats is not None and stats.refused is not None and stats.refused.epoch == current.epoch:
        return _withdrawn(seen, current, topology, "EpochRefused", f"the driver refused it: {stats.refused.why}")
    if current.epoch_state == "prepared":
        job = seen.job(current.epoch)
        if job is None:
            made = migration.job(seen.owner, topology, image, current.epoch)
            return Rollout(current.restart_generation, (Apply(made),), begun="Migrating")
        if job.failed:
            return _withdrawn(seen, current, topology, "MigrationFailed", f"its migration failed: {job.failed}")
        if job.done:
            ready = Patch(names.CONFIG_MAP, current.name, {"data": dict(READY)}, f"epoch {current.epoch} is copied: ready")
            return Rollout(current.restart_generation, (ready,))
    return Rollout(current.restart_generation)


def _withdrawn(seen: Observed, current: RoutingMap, topology: Topology, reason: str, why: str) -> Rollout:
    """The ConfigMap without the epoch, which the driver has not run under; the controller judges again in a while."""
    assert current.epoch is not None
    step = Apply(config_map(seen.owner, topology, seen.generation, current.restart_generation, None))
    text = f"epoch {current.epoch} is withdrawn, the routing stays as it was: {why}"
    return Rollout(current.restart_generation, (step,), (Event("Warning", reason, text),), problem=(reason, text))


def _stale_jobs(seen: Observed, current: RoutingMap) -> list[Step]:
    """Deletes migration Jobs whose epoch is not published any more: they would go on copying for nobody, and what they say
    would be taken for the next epoch's of that number. Those whose epoch was active stay, to be looked at, until they expire.

    By what is there, not with the step that withdraws the epoch: an operator may be killed between the two.
    """
    newest = seen.stats.newest_epoch if seen.stats is not None else None
    return [
        Delete(names.JOB, job.name, job.uid, f"epoch {job.epoch} is given up")
        for job in seen.jobs()
        if job.epoch != current.epoch and not job.deleting
        if not job.done or (newest is not None and job.epoch > newest)
    ]  # fmt: skip


def _judged(seen: Observed, current: RoutingMap, topology: Topology, image: str) -> Rollout:
    """Publishes what the controller proposes, if it was proposed for what runs now."""
    keep = Rollout(current.restart_generation)
    judgement, stats = seen.answer.judgement if seen.answer else None, seen.stats
    if judgement is None or judgement.kind != "reroute" or stats is None or not stats.settled:
        return keep
    if judgement.generation != current.generation or judgement.number != (stats.newest_epoch or 0) + 1:
        return keep
    ahead = judgement.moved_bytes > topology.migration.threshold_bytes
    epoch = PackedEpoch(judgement.number, seen.generation, judgement.packed, "prepared" if ahead else "ready", judgement.reason)
    try:
        body = config_map(seen.owner, topology, seen.generation, current.restart_generation, epoch)
    except RoutingTooLargeError as error:
        return Rollout(current.restart_generation, problem=("RoutingTooLarge", str(error)))
    steps: list[Step] = [Apply(body)]
    if ahead:
        steps.append(Apply(migration.job(seen.owner, topology, image, epoch.number)))
    event = Event("Normal", "Rerouting", f"epoch {judgement.number}: {figures(judgement)}")
    return Rollout(current.restart_generation, tuple(steps), (event,), begun="Migrating" if ahead else "Rerouting")


def figures(judgement: Judgement) -> str:
    """A proposal in one line: why, what it brings and what it costs."""
    return (
        f"{judgement.reason}; saves {duration(judgement.predicted_gain_seconds)} a batch, "
        f"moves about {count(judgement.moved_keys)} keys and {size(judgement.moved_bytes)}, "
        f"costs {duration(judgement.cost_seconds)} once"
    )
