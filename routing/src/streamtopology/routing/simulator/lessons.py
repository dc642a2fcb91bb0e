"""What a simulated policy's choosers learn from its instances, batch by batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopology.routing.groupings import Chooser, GroupingSpec
from streamtopology.routing.groupings.knowledge import Knowledge, LearningChooser, Observer


class Lessons:
    """The observers of `instances` instances, and what all schedulers know of them; nothing where a policy learns nothing."""

    def __init__(self, spec: GroupingSpec, options: Mapping[str, object], instances: int) -> None:
        learning, checked = spec.learning, spec.check_options(options)
        self._observers: list[Observer[Any]] = []
        self._known: Knowledge[Any] | None = None
        if learning is not None:
            self._observers = [learning.make_observer(instance, checked) for instance in range(instances)]
            self._known = learning.nothing_known(checked)

    def tell(self, chooser: Chooser, schedulers: int) -> None:
        """What is known, to a chooser that makes up one of so many parts of what is uneven."""
        if isinstance(chooser, LearningChooser):
            chooser.learn(self._known, schedulers)

    def take_in(self, hashes: npt.NDArray[np.uint64], took: npt.NDArray[np.float64], chosen: npt.NDArray[np.int32]) -> None:
        """A batch in the order of its execution (each [n]): key hashes, seconds that each tuple took, its instance."""
        for instance, observer in enumerate(self._observers):
            mine = chosen == instance
            observer.observe(hashes[mine], took[mine])
        if self._known is not None:
            self._known = self._known.after([told for observer in self._observers if (told := observer.report()) is not None])
