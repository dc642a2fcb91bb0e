"""The reasons why sentences of Consistent Grouping do not hold here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from papers.reasons import shows

from streamtopology.lab.reproduce.experiment import Summary
from streamtopology.lab.reproduce.experiments.consistent.balance import CG_EPS
from streamtopology.lab.reproduce.experiments.consistent.change import BALANCED, CG_CHANGE, SLOTS
from streamtopology.lab.reproduce.experiments.consistent.queues import CG_VIRTUAL, METRICS

LONGEST = "5 minutes"


def changed(virtual_workers: int) -> dict[str, float]:
    """As many slots as at full size: messages and slots are scaled alike."""
    scale = 4
    given: dict[str, Any] = {
        "messages": int(CG_CHANGE.parameters["messages"]) // scale,
        "keys": 100_000,
        "slots": {name: slot // scale for name, slot in SLOTS.items()},
        "virtual_workers": virtual_workers,
    }
    return dict(CG_CHANGE.measure({**CG_CHANGE.parameters, **given}, 1, 1, lambda share: None).summary)


@pytest.mark.long
@shows("cg-change", "slot of 5 minutes", "slot of 1 minute")
def test_phases_with_slots_enough_for_their_moves_are_followed_in_slots_of_five_min():
    many, few = changed(100), changed(20)
    for phase in (2, 3):
        slots = many[f"slots of {LONGEST} in phase {phase}"]
        assert few[f"most moves to a worker in phase {phase}"] < slots
        assert few[f"utilisation of CG, slot of {LONGEST} after phase {phase}"] <= BALANCED + 0.1
        assert (
            few[f"utilisation of CG, slot of {LONGEST} after phase {phase}"]
            < many[f"utilisation of CG, slot of {LONGEST} after phase {phase}"]
        )
    assert many["most moves to a worker in phase 2"] > many[f"slots of {LONGEST} in phase 2"]


@pytest.mark.long
@shows("cg-virtual", "100 give the best results")
def test_from_20_virtual_workers_on_which_number_is_best_changes_with_the_seed():
    """A rhythm of keys cannot set them apart: PoRC gives each virtual worker as much, whatever the keys are."""
    given = {**CG_VIRTUAL.parameters, **CG_VIRTUAL.quick, "virtual_workers": [10, 20, 50, 100]}
    found = [CG_VIRTUAL.measure(given, 1, seed, lambda share: None).summary for seed in (1, 2, 3)]

    def of(summary: Summary, metric: str, each: int) -> float:
        return summary[f"{metric} of CG {each} in the second half"]

    best = [min((10, 20, 50, 100), key=lambda each: of(summary, "queue", each)) for summary in found]
    assert len(set(best)) > 1
    for metric in METRICS:
        means = [np.mean([of(summary, metric, each) for summary in found]) for each in (20, 50, 100)]
        assert max(means) < 1.2 * min(means)


@shows("cg-eps", "PoRC's imbalance lies between that of SG and KG")
def test_porc_at_epsilon_10_is_plain_hashing_and_more_even_than_kg_by_chance():
    ratios: list[float] = []
    for seed in range(1, 13):
        given = {**CG_EPS.parameters, "messages": 100_000, "keys": 20_000, "epsilons": [10.0, 1000.0]}
        found = CG_EPS.measure(given, 1, seed, lambda share: None).summary
        assert found["imbalance of PoRC 10.0"] == pytest.approx(found["imbalance of PoRC 1000.0"], abs=0.02)
        ratios.append(found["imbalance of PoRC 10.0"] / found["imbalance of KG 0"])
    assert min(ratios) < 0.9 < 1.1 < max(ratios)
