"""The planners' bench: its bounded cases are of plans that N_max cuts, which the plans of its other cases hardly are."""

from __future__ import annotations

import pytest

from streamtopology.lab.bench import planners as bench
from streamtopology.lab.bench import planners_together
from streamtopology.routing import planners
from streamtopology.routing.planners import bounded_table
from streamtopology.routing.planners.problem import PlanningProblem


@pytest.mark.parametrize("zipf", bench.ZIPF)
def test_bounded_cases_are_fitted_by_all_bisections_and_the_others_by_one(zipf: float, monkeypatch: pytest.MonkeyPatch):
    tables, fit = list[int](), vars(bounded_table)["_smallest_table"]

    def counted(problem: PlanningProblem, *others: object) -> object:
        tables.append(len(problem.loads))
        return fit(problem, *others)

    monkeypatch.setattr(bounded_table, "_smallest_table", counted)
    operator = bench.operator_of(bench.KEYS[0], zipf)
    planners.get("mixed")(operator)
    assert len(tables) <= 1
    tables.clear()
    planners.get("mixed")(bench.bounded(operator))
    assert tables == bounded_table.BISECTIONS * [bench.KEYS[0]]


def test_chain_is_of_heavy_keys_and_buckets_and_has_the_pairs_of_every_edge():
    given = planners_together.chain_of(3, 4)
    assert list(given.pairs) == [("operator-0", "operator-1"), ("operator-1", "operator-2")]
    for operator in given.operators.values():
        assert operator.key_loads.sum() + operator.bucket_loads.sum() == pytest.approx(planners_together.ROWS)
    for pairs in given.pairs.values():
        assert 0.4 * pairs.seen < pairs.rows.sum() < pairs.seen == planners_together.ROWS
