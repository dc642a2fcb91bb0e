"""The planners' bench: its bounded cases are of plans that N_max cuts, which the plans of its other cases hardly are."""

from __future__ import annotations

import pytest

from streamtopology.lab.bench import planners as bench
from streamtopology.routing import planners
from streamtopology.routing.planners import bounded_table
from streamtopology.routing.planners.problem import Problem


@pytest.mark.parametrize("zipf", bench.ZIPF)
def test_bounded_cases_are_fitted_by_all_bisections_and_the_others_by_one(zipf: float, monkeypatch: pytest.MonkeyPatch):
    tables, fit = list[int](), vars(bounded_table)["_smallest_table"]

    def counted(problem: Problem, *others: object) -> object:
        tables.append(len(problem.loads))
        return fit(problem, *others)

    monkeypatch.setattr(bounded_table, "_smallest_table", counted)
    operator = bench.operator_of(bench.KEYS[0], zipf)
    planners.get("mixed")(operator)
    assert len(tables) <= 1
    tables.clear()
    planners.get("mixed")(bench.bounded(operator))
    assert tables == bounded_table.BISECTIONS * [bench.KEYS[0]]
