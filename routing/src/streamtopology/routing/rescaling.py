"""More or fewer executors: the slots and instances that a topology asks for, and shares over other slots. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from streamtopology.routing.placement import Placement
from streamtopology.routing.topology import Operator, Topology


def slot_names(topology: Topology) -> tuple[str, ...]:
    """`CLASS-ORDINAL` for every replica, classes in the manifest's order."""
    return tuple(f"{executor.name}-{ordinal}" for executor in topology.executors for ordinal in range(executor.replicas))


def class_of(slot: str) -> str:
    """The executor class of a slot, by its name."""
    return slot.rpartition("-")[0]


def instances_of(operator: Operator, executors: int) -> int:
    """How many instances the operator has while so many of the topology's executors take part.

    Where the manifest names no parallelism, it has one on each of them.
    """
    return executors if operator.follows_executors else operator.parallelism


def most_instances(topology: Topology, executors: int) -> int:
    """Instances of the operator that has most of them."""
    return max(instances_of(operator, executors) for operator in topology.operators)


def with_replicas(topology: Topology, class_name: str, replicas: int) -> Topology:
    """The topology with so many executors of a class. Operators that name no parallelism follow.

    ValueError: there is no such class, or no executor would be left.
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
    """Shares per slot number over the slots that are there after: those that stay in proportion, new ones the mean.

    Empty (equal shares) stays empty.
    """
    if not shares:
        return ()
    mean = sum(shares[slot] for slot in before.present) / len(before.present)
    weights = [0.0] * len(after.slots)
    for slot in after.present:
        weights[slot] = shares[slot] if slot in before.present else mean
    total = sum(weights)
    return tuple(weight / total for weight in weights) if total > 0 else ()
