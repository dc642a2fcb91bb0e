"""mixed-routing's planners, key for key what the paper's own text gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest
from papers.instances import A_FEW, MANY, operator
from papers.mixed import At, Operator
from papers.planned import as_input, placed
from support.planning import ANY_SIZE, loads_after

from streamtopology.lab.groupings.compact import mixed_compact
from streamtopology.lab.groupings.planners import get
from streamtopology.lab.groupings.readj import readj_at
from streamtopology.routing.planners import PlanInput

HOW_MANY = [pytest.param(A_FEW, id="few"), pytest.param(MANY, id="all", marks=pytest.mark.long)]

WITHOUT_BOUND = [("mintable", Operator.mintable), ("minmig", Operator.minmig), ("simple", Operator.simple)]


@dataclass(frozen=True)
class Drawn:
    """A random operator, its N_max, and the same as a planner has it: without a bound on the table."""

    seed: int
    operator: Operator
    n_max: int
    given: PlanInput

    @staticmethod
    def instances(how_many: int, most_keys: int = 200) -> Iterator[Drawn]:
        for seed in range(how_many):
            drawn, n_max = operator(seed, most_keys)
            yield Drawn(seed, drawn, n_max, as_input(drawn))


@pytest.mark.parametrize("how_many", HOW_MANY)
@pytest.mark.parametrize(("name", "paper"), WITHOUT_BOUND)
def test_planners_without_a_bound_place_every_key_as_the_paper(name: str, paper: Callable[[Operator], At], how_many: int):
    for drawn in Drawn.instances(how_many):
        assert placed(drawn.given, get(name)(drawn.given)) == paper(drawn.operator), f"seed {drawn.seed}"


@pytest.mark.parametrize("how_many", HOW_MANY)
def test_mixed_places_every_key_as_the_paper_where_that_keeps_n_max(how_many: int):
    kept = 0
    for drawn in Drawn.instances(how_many):
        expected = drawn.operator.mixed(drawn.n_max)
        bounded = replace(drawn.given, max_entries=drawn.n_max)
        plan = get("mixed")(bounded)
        assert len(plan.table.entry_hashes) <= drawn.n_max, f"seed {drawn.seed}"
        if len(drawn.operator.entries(expected)) <= drawn.n_max:
            kept += 1
            assert placed(bounded, plan) == expected, f"seed {drawn.seed}"
    assert kept > how_many / 2


@pytest.mark.parametrize("how_many", HOW_MANY)
def test_mixed_bf_places_every_key_as_the_papers_best_n(how_many: int):
    kept = 0
    for drawn in Drawn.instances(how_many, most_keys=24):
        expected = drawn.operator.mixed_bf(drawn.n_max)
        if expected is not None:
            kept += 1
            bounded = replace(drawn.given, max_entries=drawn.n_max)
            assert placed(bounded, get("mixed-bf")(bounded)) == expected, f"seed {drawn.seed}"
    assert kept > how_many / 4


@pytest.mark.parametrize("how_many", HOW_MANY)
def test_mixed_compact_gives_the_six_dimensional_vectors_of_mixed_over_single_keys(how_many: int):
    for drawn in Drawn.instances(how_many):
        one = alike_in_a_row(drawn.operator)
        given = as_input(one)
        found, expected = placed(given, mixed_compact(given, degree=1)), one.mixed(ANY_SIZE)
        assert vectors(one, found) == vectors(one, expected), f"seed {drawn.seed}"


def alike_in_a_row(one: Operator) -> Operator:
    """The operator with costs and memory down to 1, which R = 1 represents exactly, and keys of one vector in a row."""
    columns = zip(one.cost, one.memory, one.home, one.at, strict=True)
    alike = sorted((c - min(one.cost) + 1, s - min(one.memory) + 1, home, at) for c, s, home, at in columns)
    cost, memory, home, at = (list(column) for column in zip(*alike, strict=True))
    return Operator(cost, memory, home, at, one.k, one.percent)


def vectors(operator: Operator, at: At) -> Counter[tuple[int, int, int, int, int]]:
    """Section 4: (d', d, d^h, v_c, v_S) of every key, and # as the count."""
    return Counter(
        (at[key], operator.at[key], operator.home[key], operator.cost[key], operator.memory[key]) for key in sorted(at)
    )


@pytest.mark.parametrize("how_many", HOW_MANY)
@pytest.mark.parametrize("share", [0, 30])
def test_readj_places_every_key_as_its_best_moves_do(share: int, how_many: int):
    """`share`: sigma, percent of an instance's mean load."""
    for drawn in Drawn.instances(how_many, most_keys=10):
        total, k = sum(drawn.operator.cost), drawn.operator.k
        expected = drawn.operator.readj(smallest=-(-share * total // (100 * k)))
        found = placed(drawn.given, readj_at(drawn.given, share / 100))
        assert found == expected, f"seed {drawn.seed}"


@pytest.mark.parametrize("how_many", HOW_MANY)
@pytest.mark.parametrize(("name", "paper"), WITHOUT_BOUND)
def test_l_max_is_met_wherever_the_papers_algorithm_meets_it(name: str, paper: Callable[[Operator], At], how_many: int):
    """Also where the heaviest key is above the mean and below (1 + theta_max) x mean."""
    between = 0
    for drawn in Drawn.instances(how_many):
        one, mean = drawn.operator, sum(drawn.operator.cost) / drawn.operator.k
        between += mean < max(one.cost) < (1 + one.percent / 100) * mean
        if one.balanced(paper(one)):
            found = loads_after(drawn.given, get(name)(drawn.given).table)
            assert not any(one.exceeds(int(load)) for load in found), f"seed {drawn.seed}"
    assert between
