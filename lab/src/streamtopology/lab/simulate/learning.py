"""The knowledge that a simulated policy's choosers learn from its instances, batch by batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopology.routing.groupings import Chooser, learning_of
from streamtopology.routing.groupings.learning import Knowledge, LearningChooser, Observer
from streamtopology.topology.groupings import GroupingSpec


class SimulatedLearning:
    """The observers of `instances` instances, and what all schedulers know of them; nothing where a policy learns nothing."""

    def __init__(self, spec: GroupingSpec, options: Mapping[str, object], instances: int) -> None:
        learning, checked = learning_of(spec.name), spec.check_options(options)
        self._observers: list[Observer[Any]] = []
        self._known: Knowledge[Any] | None = None
        if learning is not None:
            self._observers = [learning.make_observer(instance, checked) for instance in range(instances)]
            self._known = learning.nothing_known(checked)

    def teach(self, chooser: Chooser, schedulers: int) -> None:
        """Teach a chooser, one of `schedulers` that each even out a part of the gap."""
        if isinstance(chooser, LearningChooser):
            chooser.learn(self._known, schedulers)

    def take_in(self, hashes: npt.NDArray[np.uint64], took: npt.NDArray[np.float64], chosen: npt.NDArray[np.int32]) -> None:
        """A batch in the order of its execution (each [n]): key hashes, seconds that each tuple took, its instance."""
        for instance, observer in enumerate(self._observers):
            mine = chosen == instance
            observer.observe(hashes[mine], took[mine])
        if self._known is not None:
            self._known = self._known.after(
                [report for observer in self._observers if (report := observer.report()) is not None]
            )
