"""From what was observed to what is to be done: one pure, level-triggered function.

An operator dies between two writes, misses events, and sees changes in any order. A memory of what it did would then be
wrong. So this function looks at what is, never at what was done: killed at any step and started again, the operator
continues from there.

It returns steps, events and a status, and carries out none. So every case is a test of a value, without a cluster. Deciding
again after every step of a decision has been carried out gives no step (a property that is tested).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

from streamtopology.contract.pods import driver_name
from streamtopology.k8s import names
from streamtopology.k8s.decide import attempts, evictions, lost_nodes, spark_secret, status
from streamtopology.k8s.decide.altered_pods import altered_pods
from streamtopology.k8s.decide.answers import PlanningRequest, Target
from streamtopology.k8s.decide.asked_replicas import seconds_to_peace
from streamtopology.k8s.decide.attempts import allowed, is_repeated, trouble
from streamtopology.k8s.decide.autoscaling import replicas_kept, replicas_wanted, why_scaled
from streamtopology.k8s.decide.conditions import completion, is_completed
from streamtopology.k8s.decide.events import events_of
from streamtopology.k8s.decide.observation import Observation
from streamtopology.k8s.decide.own_fields import Differences, differences
from streamtopology.k8s.decide.owned_objects import OwnedObject
from streamtopology.k8s.decide.resizing import mutated, outdated, replacements, resizes
from streamtopology.k8s.decide.revisions import (
    Revision,
    adjustment,
    is_outdated,
    kept,
    newest_revisions,
    pod_contents,
    revision_of,
    running_image,
    upgrade,
)
from streamtopology.k8s.decide.rollout import Rollout, ended, is_pending, roll_out
from streamtopology.k8s.decide.scaling import Patience, executor_pods, is_drained, replicas_now
from streamtopology.k8s.decide.sleeping import asleep, still_asleep, wake
from streamtopology.k8s.decide.steps import Apply, Delete, Event, Finalizer, Patch, Step
from streamtopology.k8s.decide.transition import target_of, waited
from streamtopology.k8s.instants import parse_time
from streamtopology.k8s.resources import access, driver, executors, migration
from streamtopology.k8s.resources.objects import Object
from streamtopology.k8s.settings import Settings
from streamtopology.topology import ExecutorClass, Topology

# The time until the next look at a topology that is changing, unless something happens before.
CHANGING_SECONDS = 5.0

# Between two looks whether a topology with the same names is still there.
RIVAL_SECONDS = 30.0

# The scrape interval in the first `QUICK_FOR_SECONDS` seconds of a change; otherwise it is the controller's interval.
QUICK_SECONDS = 0.5

QUICK_FOR_SECONDS = 60.0

LONGEST_INTERVAL_SECONDS = 10.0


@dataclass(frozen=True)
class Decision:
    """Steps in their order, events, the status, the driver to ask, the latest time of the next look.

    `waits`: the topology has pods of an old version of the operator.
    """

    steps: tuple[Step, ...]
    events: tuple[Event, ...]
    status: Object
    target: Target | None = None
    again_seconds: float | None = None
    waits: bool = False


def decide(seen: Observation, settings: Settings) -> Decision:
    """Decide the next steps for this topology."""
    if seen.deleting:
        return _delete(seen, settings)
    read = seen.read
    if isinstance(read, tuple):
        return _invalid(seen, "; ".join(read), settings)
    if seen.rival:
        refused = _untouched(seen, status.invalid(seen, seen.rival), settings)
        return replace(refused, again_seconds=RIVAL_SECONDS)
    image = read.image or settings.image
    if image is None:
        return _untouched(seen, status.without_image(seen), settings)
    if seen.paused:
        running, scaled = _present(seen, read), replicas_kept(seen, read)
        topology = still_asleep(seen, running, scaled) or running
        unapplied = seen.running is not None and not _is_in_force(seen, read, running)
        reported = status.build(seen, topology, Rollout(0), (), scaled=scaled, paused=True, unapplied=unapplied)
        return _decision(seen, topology, (), (), reported, settings)
    return _run(seen, read, image, settings)


def _invalid(seen: Observation, why: str, settings: Settings) -> Decision:
    """Change nothing for a manifest that cannot run, and go on with the topology that runs: what had begun is finished."""
    current, running = seen.routing, seen.running
    if current is None or running is None or seen.paused or seen.rival:
        return _untouched(seen, status.invalid(seen, why), settings)
    metadata = {**seen.manifest["metadata"], "generation": current.generation}
    is_stopped = seen.driver is not None and seen.driver.replicas == 0
    kept = replace(running, suspend=is_stopped)
    before = replace(seen, manifest={**seen.manifest, "metadata": metadata}, read=kept)
    decision = _run(before, kept, running_image(seen, running.image or settings.image or ""), settings)
    reported = status.not_taken(seen, decision.status, why)
    of_conditions = events_of(before, decision.status)
    events = (*(event for event in decision.events if event not in of_conditions), *events_of(seen, reported))
    return replace(decision, status=reported, events=events)


def _run(seen: Observation, read: Topology, image: str, settings: Settings) -> Decision:
    scaled = replicas_wanted(seen, read)
    planned = read.resolved(scaled.replicas if scaled else None)
    wanted = replace(planned, suspend=False)
    user = settings.pod_user
    job_of = partial(migration.job, seen.owner, wanted, running_image(seen, image), user)
    rollout = roll_out(seen, wanted, job_of, why_scaled(seen, scaled) if scaled else "")
    if is_completed(seen, wanted):
        rollout = ended(seen, rollout)
    topology = asleep(seen, planned, scaled) or planned
    revision = revision_of(seen, rollout.restart_generation, image)
    target = target_of(topology, rollout.epoch)
    patience = Patience(waited(seen.transition, target, seen.now), settings.drain_seconds)
    stateful_sets = _stateful_sets(seen, topology, revision, user, patience)
    driver_set = _driver(seen, topology, revision, user, rollout)
    contents, newest = pod_contents(seen, revision, stateful_sets), newest_revisions(seen, stateful_sets)
    replaced = outdated(seen, topology, contents, newest)
    lasting, workloads = _lasting_objects(seen, topology, settings), [*stateful_sets.values(), driver_set]
    secret, lost = spark_secret.missing_secret(seen), lost_nodes.removals(seen, settings.node_loss_seconds)
    applied = _workloads(seen, revision, workloads)
    if applied and rollout.begun is None:
        rollout = upgrade(rollout, image) if seen.reached else wake(seen, topology, rollout)
    finalizer = [] if names.FINALIZER in seen.finalizers else [Finalizer(present=True)]
    steps: list[Step] = [
        *finalizer,
        *_differing(seen, lasting),
        *_unwanted_budget(seen, settings),
        *secret,
        *rollout.steps,
        *applied,
        *_adoptions(seen, [*lasting, *workloads], rollout.steps),
        *_removed_classes(seen, topology, patience),
        *resizes(seen, topology, contents),
        *replacements(seen, topology, replaced),
        *lost,
    ]
    waits = is_outdated(seen, revision, workloads)
    reported = status.build(
        seen,
        topology,
        rollout,
        tuple(steps),
        scaled=scaled,
        outdated=len(replaced),
        waits=waits,
        problem=trouble(steps, seen.attempts, seen.now) or rollout.problem,
        mutated=(
            *_mutated(seen, [*lasting, *workloads]),
            *altered_pods(seen, [each for each in workloads if not _mutated(seen, [each])], newest),
            *mutated(seen, topology, contents, newest),
        ),
    )
    begun = () if is_repeated(rollout.steps or applied, seen.attempts, seen.now) else rollout.events
    events = dict.fromkeys(
        (*begun, *spark_secret.events(secret), *lost_nodes.events(lost), *events_of(seen, reported))
    )  # a withdrawn epoch is also a condition
    decision = _decision(seen, topology, tuple(steps), tuple(events), reported, settings)
    return replace(decision, waits=waits)


def _stateful_sets(
    seen: Observation, topology: Topology, revision: Revision, user: int | None, patience: Patience
) -> dict[str, Object]:
    """Class -> its StatefulSet, as this version of the operator makes it."""
    return {
        executor.name: executors.stateful_set(
            seen.owner, topology, executor, revision.image, user, _replicas(seen, topology, executor, patience)
        )
        for executor in topology.executors
    }


def _replicas(seen: Observation, topology: Topology, executor: ExecutorClass, patience: Patience) -> int:
    """Replicas of a class. Executors outlive the driver: they hold the state that it hands over."""
    if not _stops(seen, topology):
        return replicas_now(seen, topology, executor, patience)
    existing = seen.stateful_set(executor.name)
    return existing.replicas if existing is not None and seen.drivers else 0


def _driver(seen: Observation, topology: Topology, revision: Revision, user: int | None, rollout: Rollout) -> Object:
    done = completion(seen, topology)
    return driver.deployment(
        seen.owner,
        topology,
        revision.image,
        user,
        replicas=0 if _stops(seen, topology) else 1,
        restart_generation=rollout.restart_generation,
        completed=done.to_text() if done is not None else "",
    )


def _stops(seen: Observation, topology: Topology) -> bool:
    return topology.suspend or is_completed(seen, topology)


def _workloads(seen: Observation, revision: Revision, wanted: list[Object]) -> list[Step]:
    """Apply steps as for any other object, or small patches where an old version's pods are kept; the driver's comes last."""
    steps: list[Step] = []
    for body in wanted:
        known = kept(seen, revision, body)
        if known is None:
            steps += _differing(seen, [body])
        elif (patch := adjustment(known, body)) is not None:
            steps.append(patch)
    return steps


def _lasting_objects(seen: Observation, topology: Topology, settings: Settings) -> list[Object]:
    """Objects that hardly ever change, in the order in which the others need them."""
    owner = seen.owner
    return [
        access.driver_account(owner),
        access.executor_account(owner),
        access.driver_role(owner, executor_pods(seen, topology)),
        access.driver_role_binding(owner, topology),
        driver.service(owner),
        executors.service(owner),
        access.network_policy(owner),
        *([driver.disruption_budget(owner)] if settings.disruption_budget else []),
    ]


def _unwanted_budget(seen: Observation, settings: Settings) -> list[Step]:
    known = seen.objects.get((names.DISRUPTION_BUDGET.kind, driver_name(seen.owner.name)))
    if settings.disruption_budget or known is None or known.deleting:
        return []
    return [Delete(names.DISRUPTION_BUDGET, known.name, known.uid, "the operator is set to make none")]


def _differing(seen: Observation, wanted: list[Object]) -> list[Step]:
    """Apply steps for objects that are missing, have other content, or were changed by someone else.

    One that is being deleted is made again when it is gone: until then no write of ours would last.
    """
    steps: list[Step] = []
    for body in wanted:
        known = seen.objects.get((body["kind"], body["metadata"]["name"]))
        if known is not None and known.deleting:
            continue
        found = _compared(seen, body)
        if found is None:
            steps.append(Apply(body))
        elif found.taken:
            steps.append(Apply(body, f"changed by others: {', '.join(found.taken)}"))
    return steps


def _compared(seen: Observation, body: Object) -> Differences | None:
    """The differences of the object from what we wrote; None if it is not written as it is to be."""
    known, content = seen.objects.get((body["kind"], body["metadata"]["name"])), body["metadata"]["annotations"][names.CONTENT]
    if known is None or known.deleting or known.content != content:
        return None
    if content not in known.differences:
        known.differences[content] = differences(body, known.values)
    return known.differences[content]


def _mutated(seen: Observation, wanted: list[Object]) -> tuple[str, ...]:
    """A sentence for each field that an admission webhook has changed as we wrote it."""
    return tuple(
        f"{body['kind']} {body['metadata']['name']}: {change}"
        for body in wanted
        if (found := _compared(seen, body)) is not None
        for change in found.mutated
    )


def _adoptions(seen: Observation, wanted: list[Object], published: tuple[Step, ...]) -> list[Step]:
    """Own what a deleted topology of this name has left and this one does not want: it then goes as our own does.

    What it wants is adopted as it is applied. The version says that nobody else has come to own it meanwhile.
    """
    applied = {(body["kind"], body["metadata"]["name"]) for body in wanted} | {step.place for step in published}
    return [
        Patch(names.BY_KIND[left.kind], left.name, {"metadata": _owner_of(seen, left)}, "own what a former topology has left")
        for left in seen.orphans
        if (left.kind, left.name) not in applied
    ]


def _owner_of(seen: Observation, left: OwnedObject) -> Object:
    return {"uid": left.uid, "resourceVersion": str(left.version), "ownerReferences": [seen.owner.reference()]}


def _removed_classes(seen: Observation, topology: Topology, patience: Patience) -> list[Step]:
    """StatefulSets of classes that the manifest no longer has, once nothing runs on them."""
    wanted = {names.executor_class(seen.owner.name, executor.name) for executor in topology.executors}
    steps: list[Step] = []
    for (kind, name), known in seen.objects.items():
        if kind != "StatefulSet" or name in wanted or known.deleting:
            continue
        class_name = name.removeprefix(f"{seen.owner.name}-")
        if is_drained(seen, class_name, 0, patience):
            steps.append(Delete(names.STATEFUL_SET, name, known.uid, f"class {class_name} is no longer in the manifest"))
    return steps


def _decision(
    seen: Observation,
    topology: Topology,
    steps: tuple[Step, ...],
    events: tuple[Event, ...],
    reported: Object,
    settings: Settings,
) -> Decision:
    """Leave out the steps that have to wait; add the driver to ask, and when to look again."""
    changing = "intent" in reported
    target = _target(seen, topology, changing, settings)
    taken, delay = allowed(steps, seen.attempts, seen.now)
    removal = lost_nodes.seconds_to_removal(seen, settings.node_loss_seconds)
    fights = attempts.seconds_to_peace(seen.attempts, seen.now)
    fading = (evictions.seconds_to_oblivion(seen), seconds_to_peace(seen), fights)
    due = (delay, removal, *fading, CHANGING_SECONDS if changing else None)
    again = [seconds for seconds in due if seconds is not None]
    return Decision(taken, events, reported, target, min(again, default=None))


def _target(seen: Observation, topology: Topology, changing: bool, settings: Settings) -> Target | None:
    pod = seen.driver_pod
    if pod is None or not pod.ip:
        return None
    request = PlanningRequest(
        topology=seen.owner.name,
        rebalance=topology.rebalance,
        by_share=all(source.reads_descriptors for source in topology.sources),
        may_judge=not is_pending(seen) and not seen.paused and isinstance(seen.read, Topology),
        autoscale=seen.read.autoscale if isinstance(seen.read, Topology) else None,
        executors=topology.executors,
        operators=topology.operators,
    )
    interval = min(topology.rebalance.interval_seconds, LONGEST_INTERVAL_SECONDS)
    if changing and seen.changing_seconds < QUICK_FOR_SECONDS:
        interval = QUICK_SECONDS
    host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
    url = settings.driver_url.format(ip=host, port=pod.http_port, namespace=seen.owner.namespace, name=seen.owner.name)
    return Target(seen.owner.uid, pod.name, url, interval, request)


def _untouched(seen: Observation, reported: Object, settings: Settings) -> Decision:
    """Change nothing; a running driver keeps running and is still asked."""
    target = None if seen.running is None else _target(seen, seen.running, False, settings)
    return Decision((), events_of(seen, reported), reported, target)


def _present(seen: Observation, read: Topology) -> Topology:
    """The running topology, to report on while nothing may be changed."""
    return seen.running or read.resolved()


def _is_in_force(seen: Observation, read: Topology, running: Topology) -> bool:
    """True if nothing would change by the manifest, but perhaps a number of executors that is not its own."""
    scaled = replicas_kept(seen, read)
    planned = read.resolved(scaled.replicas if scaled else None)
    return replace(planned, suspend=False) == running and read.suspend == (not seen.drivers)


def _delete(seen: Observation, settings: Settings) -> Decision:
    """Stop the driver, which finishes its batch; then remove the finalizer, and garbage collection removes the rest.

    After `drain_seconds` the finalizer goes whatever has happened: nothing that is refused may keep the topology, or its
    namespace, for ever.
    """
    if names.FINALIZER not in seen.finalizers:
        return Decision((), (), seen.status)
    remaining = settings.drain_seconds - (seen.now - parse_time(seen.manifest["metadata"]["deletionTimestamp"]))
    if remaining < 0:
        return _let_go(seen, seen.status)
    steps: list[Step] = []
    if seen.driver is not None and seen.driver.replicas > 0 and not seen.driver.deleting:
        steps.append(Patch(names.DEPLOYMENT, seen.driver.name, {"spec": {"replicas": 0}}, "stop the driver"))
    if not seen.drivers and not steps:
        return _let_go(seen, status.deleting(seen, "everything is being removed", (Finalizer(present=False),)))
    reported = status.deleting(seen, "the driver finishes its batch", tuple(steps))
    taken, delay = allowed(steps, seen.attempts, seen.now)
    return Decision(taken, events_of(seen, reported), reported, again_seconds=min(remaining + 0.5, delay or math.inf))


def _let_go(seen: Observation, reported: Object) -> Decision:
    """Remove the finalizer. What keeps it there is an event: status may be what is refused."""
    steps = (Finalizer(present=False),)
    taken, delay = allowed(steps, seen.attempts, seen.now)
    problem = trouble(steps, seen.attempts, seen.now)
    events = (Event("Warning", *problem),) if problem is not None and taken else ()
    return Decision(taken, events, reported, again_seconds=delay)
