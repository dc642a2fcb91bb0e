"""The memory that a plan needs: state moves to executors that must have room for it. Pure.

Only what a slot gets more than it gives counts. Both may be there for some batches, which the bar of `CROWDED` leaves room for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from streamtopology.routing.planners.plan import Plan, PlanInput
from streamtopology.routing.table.table import RoutingTable


def arriving_bytes(given: PlanInput, plan: Plan, slot_by_instance: Sequence[int]) -> dict[int, float]:
    """By slot, the bytes of state that it has more under `plan` than now; `slot_by_instance`: of each active instance."""
    change = _bytes_held(given, plan.table) - _bytes_held(given, given.current)
    return added_bytes({slot: float(change[at])} for at, slot in zip(given.instances, slot_by_instance, strict=True))


def added_bytes(parts: Iterable[Mapping[int, float]]) -> dict[int, float]:
    """The sum by slot."""
    total = defaultdict[int, float](float)
    for part in parts:
        for slot, size in part.items():
            total[slot] += size
    return dict(total)


def overfilled(arriving: Mapping[int, float], free: Mapping[int, float]) -> dict[int, float]:
    """By slot that gets more state than it has room for, the bytes that it gets; nothing for slots without a limit."""
    return {slot: size for slot, size in arriving.items() if size > 0 and size > free.get(slot, np.inf)}


def _bytes_held(given: PlanInput, table: RoutingTable) -> npt.NDArray[np.float64]:
    """float64[instances by number]: the state that each has under `table`, of split keys at their home."""
    owners, state = table.lookup(given.key_hashes), given.key_state
    if len(given.bucket_state):
        owners, state = np.concatenate([owners, table.buckets]), np.concatenate([state, given.bucket_state])
    highest = max(*table.instances(), *given.current.instances(), *given.instances)
    return np.bincount(owners, state, highest + 1).astype(np.float64)
