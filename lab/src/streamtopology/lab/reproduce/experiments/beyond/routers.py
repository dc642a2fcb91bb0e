"""Routers before the instances of an operator: one for the whole stream, or several that start from nothing with each batch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from streamtopology.lab.groupings.fish import FishChooser
from streamtopology.lab.groupings.prompt import PromptChooser
from streamtopology.routing.groupings import Chooser, make_chooser
from streamtopology.routing.table.table import RoutingTable

Hashes = npt.NDArray[np.uint64]
Instances = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Route = Callable[[Hashes], Instances]

# Choosers that no manifest can name: on Spark they gain nothing over those that it can (docs/internals/papers/beyond.md).
NO_POLICIES: dict[str, type[Chooser]] = {"fish": FishChooser, "prompt": PromptChooser}


def alone(scheme: str, k: int, seed: int) -> Route:
    """One router for the whole stream, by a policy or by one of `NO_POLICIES`."""
    if scheme == "fields":
        return RoutingTable.uniform(range(k), seed=seed).lookup
    chooser = _chooser(scheme, np.zeros(k), seed)
    return lambda hashes: chooser.choose(hashes, len(hashes))


def by_batches(scheme: str, k: int, batch: int, routers: int) -> Route:
    """Of every micro-batch of `batch` tuples each router has a part; as on Spark, it begins with its part of what was sent."""
    if scheme == "fields":
        return alone(scheme, k, seed=0)

    def route(hashes: Hashes) -> Instances:
        chosen, loads = np.empty(len(hashes), np.int32), np.zeros(k)
        for start in range(0, len(hashes), batch):
            for router in range(routers):
                part = slice(start + router, min(start + batch, len(hashes)), routers)
                chosen[part] = _chooser(scheme, loads / routers, start + router).choose(hashes[part], len(hashes[part]))
            loads += np.bincount(chosen[start : start + batch], minlength=k)
        return chosen

    return route


def _chooser(scheme: str, loads: Floats, seed: int) -> Chooser:
    instances = np.arange(len(loads), dtype=np.int32)
    if scheme in NO_POLICIES:
        return NO_POLICIES[scheme](instances, loads, seed, {})
    return make_chooser(scheme, instances, loads, seed)
