"""Observers of instances whose choosers learn: what an instance has measured of its tuples and not yet reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streamtopology.jobs.exchange.learning import learning_identity, new_observer
from streamtopology.jobs.operators.base import Operator
from streamtopology.routing.epochs.epoch import Route
from streamtopology.routing.groupings.learning import Observer

InstanceKey = tuple[str, str, int]  # (run, node, instance)


class Observers:
    """The observers of one worker process, by instance."""

    def __init__(self) -> None:
        self._observers: dict[InstanceKey, tuple[tuple[str, str], Observer[Any]]] = {}

    def observer(self, key: InstanceKey, route: Route, restart: bool) -> Observer[Any]:
        """The instance's observer for the choosers of `route`.

        `restart`: the choosers know nothing, so that the instance forgets, too. An instance that was inactive for a while
        would otherwise report measurements from before the others restarted (POSG's START).
        """
        identity = learning_identity(route)
        if restart or key not in self._observers or self._observers[key][0] != identity:
            self._observers[key] = identity, new_observer(route, key[2])
        return self._observers[key][1]

    def retain(self, is_kept: Callable[[InstanceKey], bool]) -> None:
        self._observers = {key: observer for key, observer in self._observers.items() if is_kept(key)}


def tuple_seconds(operator: Operator, rows: int, busy_seconds: float) -> np.ndarray:
    """float64[rows]: the time of each tuple of one `accept` that took `busy_seconds` altogether.

    As the operator measured or weighed them. An operator that works on whole batches measures no single tuples, and each
    gets the same part: then only the instance's speed can be learnt, and that is correct.
    """
    measured = operator.last_tuple_seconds
    return measured if measured is not None and len(measured) == rows else np.full(rows, busy_seconds / max(rows, 1))
