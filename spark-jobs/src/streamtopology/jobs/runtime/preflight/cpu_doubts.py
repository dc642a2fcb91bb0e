"""CPU limits that are probably slips: `cpu: 800` is 800 whole CPUs, `800m` would be 0.8 of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from streamtopology.topology import Doubt, Topology

# CPUs of one executor; larger executors exist, but 100 and more are more often meant as thousandths.
_MOST_PLAUSIBLE = 64


def cpu_doubts(topology: Topology, machine: int) -> Iterator[Doubt]:
    """Doubts about the CPU limits of a topology, on a machine of `machine` CPUs; a cluster may have more."""
    slips = False
    for index, executor in enumerate(topology.executors):
        if slip := thousandths_meant(executor.name, executor.cpu):
            slips = True
            yield Doubt(f"spec.executors[{index}].cpu", slip)
    together = sum(executor.cpu * executor.replicas for executor in topology.executors)
    if together > machine and not slips:
        yield Doubt(
            "spec.executors",
            f"found {together:g} CPUs in all, this machine has {machine}: here the executors share them, and their limits do "
            "not hold; give them less, or run on a cluster",
        )


def thousandths_meant(class_name: str, cpu: float) -> str:
    """Return the doubt about a number of whole CPUs that is probably one of thousandths; "" if there is none."""
    if cpu <= _MOST_PLAUSIBLE or cpu != int(cpu):
        return ""
    return (
        f"found {cpu:g}, which is {cpu:g} whole CPUs for each executor of class {class_name!r}; did you mean {cpu:g}m, "
        f"{cpu / 1000:g} of one?"
    )


def cpu_warning(topology: Topology, cpu_by_class: Mapping[str, float], machine: int) -> str:
    """Return the doubts about the CPU that classes of a running topology have now, as a clause; "" without any."""
    current = [replace(executor, cpu=cpu_by_class.get(executor.name, executor.cpu)) for executor in topology.executors]
    doubts = cpu_doubts(replace(topology, executors=tuple(current)), machine)
    return "".join(f"; warning: {doubt.message}" for doubt in doubts)
