"""Speeds of executors against each other, from the capacities that their stages have shown. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from statistics import median

from streamtopology.contract.reasons import SOURCE
from streamtopology.jobs.observe.fair_share import Loads

# A speed between these times of the previous one has not changed: who else is busy on a machine moves it as much.
NOTICEABLE = (0.75, 1.33)


def speeds(loads: Loads) -> Mapping[int, float]:
    """Slot -> its speed against the fastest at each operator, in the mean over its operators by their weight."""
    fastest = {stage: max(one.capacities.values(), default=0.0) for stage, one in loads.stages.items()}
    return _weighted(
        loads,
        {
            stage: {s: c / fastest[stage] for s, c in one.capacities.items()}
            for stage, one in loads.stages.items()
            if fastest[stage]
        },
    )


def changed_speeds(early: Loads, late: Loads) -> Mapping[int, float]:
    """Slot -> the number of times as fast as it was, where that is noticeable; a change of all slots alike is none."""
    times: dict[str, dict[int, float]] = {}
    for stage, before in early.stages.items():
        after = late.stages[stage].capacities if stage in late.stages else {}
        times[stage] = {slot: after[slot] / was for slot, was in before.capacities.items() if was and after.get(slot)}
    ratios = _weighted(late, times)
    usual = median(ratios.values()) if ratios else 1.0
    least, most = NOTICEABLE
    return {slot: ratio / usual for slot, ratio in ratios.items() if not least < ratio / usual < most}


def _weighted(loads: Loads, figures: Mapping[str, Mapping[int, float]]) -> Mapping[int, float]:
    """Slot -> mean of its figures at the operators, each by the weight of the operator."""
    sums: defaultdict[int, float] = defaultdict(float)
    weights: defaultdict[int, float] = defaultdict(float)
    for stage, by_slot in figures.items():
        if stage == SOURCE or stage not in loads.stages:
            continue
        weight = loads.stages[stage].fair_seconds
        for slot, figure in by_slot.items():
            if figure:
                sums[slot] += weight * figure
                weights[slot] += weight
    return {slot: total / weights[slot] for slot, total in sums.items() if weights[slot]}
