"""What a declared second of CPU is in loop turns, the same number on every executor: measured here, once it is needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from streamtopology.topology import Topology

_OPTIONS = ("costPerTuple", "cost")


def measured() -> float:
    from streamtopology.jobs.operators import declared_cost  # loads numba: two seconds

    return declared_cost.iterations_for(1.0)


class Calibration:
    """`measure` gives turns per second."""

    def __init__(self, measure: Callable[[], float] = measured) -> None:
        self._measure = measure

    @cached_property
    def _turns(self) -> float:
        return self._measure()

    def of(self, topology: Topology) -> float:
        """Turns per second for the operators of `topology`; 0 if none declares a cost."""
        declares = any(option in operator.options for operator in topology.operators for option in _OPTIONS)
        return self._turns if declares else 0.0
