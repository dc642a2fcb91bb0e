"""From what was observed to what is to be done: one pure, level-triggered function.

It looks at what is, never at what it did: killed at any step and started again, it goes on from there. Deciding again
after every step of a decision has been carried out gives no step (a property that is tested).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from streamtopology.operator import names, status
from streamtopology.operator.autoscaling import replicas_wanted, why_scaled
from streamtopology.operator.observe import Observed
from streamtopology.operator.planning import PlanningRequest
from streamtopology.operator.resizing import outdated, replacements, resizes
from streamtopology.operator.resources import access, driver, executors
from streamtopology.operator.rollout import Rollout, is_pending, roll_out
from streamtopology.operator.scaling import is_drained, replicas_now, waited
from streamtopology.operator.scrape import Target
from streamtopology.operator.seen import Workload, essence
from streamtopology.operator.settings import Settings
from streamtopology.operator.steps import Apply, Delete, Event, Finalizer, MakeSecret, Object, Patch, Step
from streamtopology.routing.topology import Topology

QUICK_SECONDS = 0.5
"""How often a driver is asked while something changes, for the first `QUICK_FOR`; else once in the controller's interval."""

QUICK_FOR = 60.0

LONGEST_INTERVAL = 10.0


@dataclass(frozen=True)
class Decision:
    """Steps in the order in which they are to be taken, events, the status, whom to ask, when to look again at latest."""

    steps: tuple[Step, ...]
    events: tuple[Event, ...]
    status: Object
    target: Target | None = None
    again_seconds: float | None = None


def decide(seen: Observed, settings: Settings) -> Decision:
    """What to do about this topology now."""
    if seen.deleting:
        return _delete(seen, settings)
    read = seen.read
    if isinstance(read, tuple):
        text = "; ".join(read)
        return _untouched(seen, status.invalid(seen, text), settings)
    image = read.image or settings.image
    if image is None:
        return _untouched(seen, status.without_image(seen), settings)
    if seen.paused:
        return Decision((), (), *_reported(seen, _present(seen, read), Rollout(0), (), settings, paused=True))
    return _run(seen, read, image, settings)


def _run(seen: Observed, read: Topology, image: str, settings: Settings) -> Decision:
    scaled = replicas_wanted(seen, read)
    topology = read.resolved(scaled.replicas if scaled else None)
    rollout = roll_out(seen, replace(topology, suspend=False), image, why_scaled(seen, scaled) if scaled else "")
    stop = topology.suspend or status.is_completed(seen, topology)
    finalizer = [] if names.FINALIZER in seen.finalizers else [Finalizer(present=True)]
    stateful_sets = {
        executor.name: executors.stateful_set(
            seen.owner, topology, executor, image, _replicas(seen, executor.name, executor.replicas, stop, settings)
        )
        for executor in topology.executors
    }
    replaced = outdated(seen, topology, stateful_sets)
    steps: list[Step] = [
        *finalizer,
        *_differing(seen, _lasting_objects(seen, topology)),
        *_secret(seen),
        *rollout.steps,
        *_differing(seen, list(stateful_sets.values())),
        *_differing(seen, [_driver(seen, topology, image, rollout, stop)]),
        *_removed_classes(seen, topology, settings),
        *resizes(seen, topology),
        *replacements(seen, topology, replaced),
    ]  # fmt: skip
    reported, target, again = _reported(seen, topology, rollout, tuple(steps), settings, scaled=scaled, outdated=len(replaced))
    events = dict.fromkeys((*rollout.events, *status.events(seen, reported)))  # an epoch withdrawn is a condition that turned
    return Decision(tuple(steps), tuple(events), reported, target, again)


def _replicas(seen: Observed, class_name: str, wanted: int, stop: bool, settings: Settings) -> int:
    """Executors outlive the driver: they hold what it hands over."""
    if not stop:
        return replicas_now(seen, class_name, wanted, settings.drain_seconds)
    existing = seen.stateful_set(class_name)
    return existing.replicas if existing is not None and seen.pods("driver") else 0


def _driver(seen: Observed, topology: Topology, image: str, rollout: Rollout, stop: bool) -> Object:
    replicas = 0 if stop else 1
    return driver.deployment(
        seen.owner, topology, image, replicas=replicas, restart_generation=rollout.restart_generation
    )  # fmt: skip


def _secret(seen: Observed) -> list[Step]:
    """Once: running executors know the old one."""
    name = names.spark_secret(seen.owner.name)
    return [] if ("Secret", name) in seen.objects else [MakeSecret(name)]


def _lasting_objects(seen: Observed, topology: Topology) -> list[Object]:
    """Those that hardly ever change, in the order in which the others need them."""
    owner = seen.owner
    return [
        access.driver_account(owner),
        access.executor_account(owner),
        access.driver_role(owner),
        access.driver_role_binding(owner, topology),
        driver.service(owner),
        executors.service(owner),
        access.network_policy(owner),
        driver.disruption_budget(owner),
    ]


def _differing(seen: Observed, wanted: list[Object]) -> list[Step]:
    """Apply steps for objects that are missing, made by other content, or changed by somebody else since."""
    return [Apply(body) for body in wanted if not _is_as_wanted(seen, body)]


def _is_as_wanted(seen: Observed, body: Object) -> bool:
    known = seen.objects.get((body["kind"], body["metadata"]["name"]))
    if known is None or known.deleting or known.content != body["metadata"]["annotations"][names.CONTENT]:
        return False
    return not isinstance(known, Workload) or known.essence == essence(body)


def _removed_classes(seen: Observed, topology: Topology, settings: Settings) -> list[Step]:
    """StatefulSets of classes that the manifest no longer has, once nothing runs on them."""
    wanted = {names.executor_class(seen.owner.name, executor.name) for executor in topology.executors}
    steps: list[Step] = []
    for (kind, name), known in seen.objects.items():
        if kind != "StatefulSet" or name in wanted or known.deleting:
            continue
        class_name = name.removeprefix(f"{seen.owner.name}-")
        if is_drained(seen, class_name, 0, settings.drain_seconds):
            steps.append(Delete(names.STATEFUL_SET, name, known.uid, f"class {class_name} is no longer in the manifest"))
    return steps


def _reported(
    seen: Observed, topology: Topology, rollout: Rollout, steps: tuple[Step, ...], settings: Settings, **more: Any
) -> tuple[Object, Target | None, float | None]:  # fmt: skip
    """Status, whom to ask and when to look again."""
    reported = status.build(seen, topology, rollout, steps, **more)
    changing = "intent" in reported
    return reported, _target(seen, topology, changing, settings), 5.0 if changing else None


def _scaled_to(seen: Observed, topology: Topology) -> int:
    scaled = seen.read.autoscale if isinstance(seen.read, Topology) else None
    classes = {executor.name: executor.replicas for executor in topology.executors}
    return classes.get(scaled.executor_class, 0) if scaled is not None else 0


def _target(seen: Observed, topology: Topology, changing: bool, settings: Settings) -> Target | None:
    pod = seen.driver_pod
    if pod is None or not pod.ip:
        return None
    request = PlanningRequest(
        topology=seen.owner.name,
        rebalance=topology.rebalance,
        by_share=all(source.reads_descriptors for source in topology.sources),
        may_judge=not is_pending(seen) and not seen.paused and isinstance(seen.read, Topology),
        autoscale=seen.read.autoscale if isinstance(seen.read, Topology) else None,
        scaled_to=_scaled_to(seen, topology),
    )
    interval = (
        QUICK_SECONDS if changing and waited(seen) < QUICK_FOR else min(topology.rebalance.interval_seconds, LONGEST_INTERVAL)
    )
    host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
    url = settings.driver_url.format(ip=host, port=pod.http_port, namespace=seen.owner.namespace, name=seen.owner.name)
    return Target(seen.owner.uid, pod.name, url, interval, request)


def _untouched(seen: Observed, reported: Object, settings: Settings) -> Decision:
    """Nothing is done; a driver that runs goes on, and goes on being asked."""
    target = None if seen.running is None else _target(seen, seen.running, False, settings)
    return Decision((), status.events(seen, reported), reported, target)


def _present(seen: Observed, read: Topology) -> Topology:
    """What runs now, for a report while nothing may be changed."""
    return seen.running or read.resolved()


def _delete(seen: Observed, settings: Settings) -> Decision:
    """The driver first, which finishes its batch; then the finalizer goes, and by their owner everything else."""
    if names.FINALIZER not in seen.finalizers:
        return Decision((), (), seen.status)
    steps: list[Step] = []
    if seen.driver is not None and seen.driver.replicas > 0 and not seen.driver.deleting:
        steps.append(Patch(names.DEPLOYMENT, seen.driver.name, {"spec": {"replicas": 0}}, "stop the driver"))
    waited = seen.now - status.parse_time(seen.manifest["metadata"]["deletionTimestamp"])
    running = [pod for pod in seen.pods("driver") if pod.phase not in ("Succeeded", "Failed")]
    if (not running and not steps) or waited > settings.drain_seconds:
        steps.append(Finalizer(present=False))
        return Decision(tuple(steps), (), status.deleting(seen, "everything is being removed", tuple(steps)))
    reported = status.deleting(seen, "the driver finishes its batch", tuple(steps))
    return Decision(tuple(steps), status.events(seen, reported), reported, again_seconds=settings.drain_seconds - waited + 0.5)
