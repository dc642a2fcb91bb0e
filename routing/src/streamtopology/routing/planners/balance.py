"""Finish times of instances of unequal capacity and fixed cost, and the perfect division that they are compared with.

With equal capacities and no fixed seconds the perfect division is the paper's mean load (mixed-routing, section 2.1).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def finish_seconds(loads: Floats, capacities: Floats, fixed_seconds: Floats) -> Floats:
    """Return the finish time of each instance, float64[k]: fixed seconds + rows / (rows/s)."""
    return fixed_seconds + loads / capacities


def balanced_loads(total: float, capacities: Floats, fixed_seconds: Floats) -> Floats:
    """Divide `total` rows, in any fractions, such that the last instance finishes as early as possible: float64[k] rows.

    All that get rows finish together; an instance whose fixed seconds alone last longer gets none.
    """
    by_fixed = np.argsort(fixed_seconds, kind="stable")
    capacity = np.cumsum(capacities[by_fixed])
    started = np.cumsum((capacities * fixed_seconds)[by_fixed])
    levels = (total + started) / capacity
    # The first j instances share the rows if their common level does not reach the fixed seconds of the next one.
    following = np.append(fixed_seconds[by_fixed][1:], np.inf)
    level = levels[np.argmax(levels <= following)]
    return np.maximum(capacities * (level - fixed_seconds), 0.0)


def balanced_seconds(total: float, capacities: Floats, fixed_seconds: Floats) -> float:
    """The finish time of the perfect division of `total` rows: no assignment is done earlier."""
    loads = balanced_loads(total, capacities, fixed_seconds)
    return float(finish_seconds(loads, capacities, fixed_seconds).max())


def fewest_loads(total: float, capacities: Floats, fixed_seconds: Floats, slack: float) -> Floats:
    """As `balanced_loads`, over as few instances as finish within `slack` (a share) of it.

    For stages where an instance without rows does not even start: on a slow one the fixed seconds alone are dear.
    """
    best = balanced_loads(total, capacities, fixed_seconds)
    limit = (1 + slack) * float(finish_seconds(best, capacities, fixed_seconds)[best > 0].max(initial=0.0))
    while (used := np.flatnonzero(best)).size > 1:
        fewer = np.delete(used, np.argmin(best[used]))
        loads = np.zeros(len(best))
        loads[fewer] = balanced_loads(total, capacities[fewer], fixed_seconds[fewer])
        if float(finish_seconds(loads, capacities, fixed_seconds)[fewer].max()) > limit:
            break
        best = loads
    return best


def imbalance(loads: Floats, capacities: Floats, fixed_seconds: Floats) -> float:
    """The latest finish time over that of the perfect division, minus 1; 0 is perfect, and 0 when there is no work."""
    best = balanced_seconds(float(loads.sum()), capacities, fixed_seconds)
    latest = float(finish_seconds(loads, capacities, fixed_seconds).max())
    return max(latest / best - 1.0, 0.0) if best > 0 else 0.0


def balance_indicators(loads: Floats, capacities: Floats, fixed_seconds: Floats) -> Floats:
    """The paper's theta per instance, |L(d) - mean| / mean, of finish times against the perfect division."""
    best = balanced_seconds(float(loads.sum()), capacities, fixed_seconds)
    finish = finish_seconds(loads, capacities, fixed_seconds)
    return np.abs(finish - best) / best if best > 0 else np.zeros(len(loads))
