"""Memory of executors that this machine does not have."""

from __future__ import annotations

from collections.abc import Iterator

from streamtopology.topology import Doubt, Topology

_GIB = 2**30


def memory_doubts(topology: Topology, machine: int) -> Iterator[Doubt]:
    """Doubts about the memory of a topology's executors, on a machine of `machine` bytes; a cluster may have more."""
    too_large = False
    for index, executor in enumerate(topology.executors):
        if executor.memory_bytes > machine:
            too_large = True
            found = f"found {_gib(executor.memory_bytes)} for each executor of class {executor.name!r}"
            yield Doubt(f"spec.executors[{index}].memory", f"{found}, {_remedy(machine)}")
    together = sum(executor.memory_bytes * executor.replicas for executor in topology.executors)
    if together > machine and not too_large:
        yield Doubt("spec.executors", f"found {_gib(together)} of memory in all, {_remedy(machine)}")


def _remedy(machine: int) -> str:
    return (
        f"this machine has {_gib(machine)}: here executors that use it are ended by the system; give them less, or run on a "
        "cluster"
    )


def _gib(amount: int) -> str:
    return f"{amount / _GIB:.3g}Gi"
