"""Rescaling: executor slots and instances that a topology asks for, and shares of sources over other slots. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from streamtopology.routing.epochs.placement import Placement
from streamtopology.topology import OperatorSpec, Topology


def slot_names(topology: Topology) -> tuple[str, ...]:
    """Return `CLASS-ORDINAL` for every replica, classes in the manifest's order."""
    return tuple(f"{executor.name}-{ordinal}" for executor in topology.executors for ordinal in range(executor.replicas))


def class_of(slot: str) -> str:
    """Return the executor class of a slot, given the slot's name."""
    return slot.rpartition("-")[0]


def instances_of(operator: OperatorSpec, executors: int) -> int:
    """Return the operator's number of instances while `executors` of the topology's executors take part.

    If the manifest gives no parallelism, it is one per executor.
    """
    return executors if operator.follows_executors else operator.parallelism


def most_instances(topology: Topology, executors: int) -> int:
    """Return the largest number of instances of any operator."""
    return max(instances_of(operator, executors) for operator in topology.operators)


def with_replicas(topology: Topology, class_name: str, replicas: int) -> Topology:
    """Return the topology with `replicas` executors of a class; operators without parallelism follow.

    Raises ValueError if there is no such class or no executor would remain.
    """
    if class_name not in {executor.name for executor in topology.executors}:
        raise ValueError(f"no executor class {class_name!r}; there are: {', '.join(e.name for e in topology.executors)}")
    if replicas < 0:
        raise ValueError(f"a class has 0 executors or more, not {replicas}")
    executors = tuple(
        replace(executor, replicas=replicas) if executor.name == class_name else executor for executor in topology.executors
    )
    total = sum(executor.replicas for executor in executors)
    if not total:
        raise ValueError(f"without executors of class {class_name} there would be none at all; keep at least one")
    operators = tuple(replace(operator, parallelism=instances_of(operator, total)) for operator in topology.operators)
    return replace(topology, executors=executors, operators=operators)


def rescaled_shares(shares: Sequence[float], before: Placement, after: Placement) -> tuple[float, ...]:
    """Return the shares per slot number under `after`: slots that stay keep their proportion, new ones get the mean.

    Empty shares (all equal) stay empty.
    """
    if not shares:
        return ()
    mean = sum(shares[slot] for slot in before.present) / len(before.present)
    weights = [0.0] * len(after.slots)
    for slot in after.present:
        weights[slot] = shares[slot] if slot in before.present else mean
    total = sum(weights)
    return tuple(weight / total for weight in weights) if total > 0 else ()
