"""The reasons why sentences of mixed-routing do not hold here."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from papers.reasons import shows

from streamtopology.lab.groupings import planners
from streamtopology.lab.groupings.compact import Records, plan_records
from streamtopology.lab.groupings.readj import readj_at
from streamtopology.lab.reproduce.experiments.mixed.adaptation import Setting, adaptations
from streamtopology.lab.reproduce.experiments.mixed.against_readj import MIXED_DYNAMICS, SIGMAS
from streamtopology.lab.reproduce.experiments.mixed.hash_skew import MIXED_HASH
from streamtopology.routing.planners import bounded_table
from streamtopology.routing.planners.problem import PlanningProblem


@shows("mixed-hash", "With 40 instances the maximal load is almost 2.5 times the minimal one (2 to 3), averaged by instance")
def test_averaged_by_instance_highs_and_lows_cancel_over_the_intervals():
    def ratio(intervals: int) -> dict[str, float]:
        given = {"over_instances": [5, 15, 40], "over_keys": [5_000, 100_000], "keys": 100_000, "intervals": intervals}
        return dict(MIXED_HASH.measure({**MIXED_HASH.parameters, **given}, 1, 1, lambda share: None).summary)

    one, many = ratio(1), ratio(30)
    assert one["max_to_min_of_an_instance"] == one["max_to_min_most_instances"] > 2
    assert many["max_to_min_most_instances"] > 2 > many["max_to_min_of_an_instance"]


@shows("mixed-compact", "The compact form is planned in a tenth", "A larger R makes plans faster")
def test_even_the_finest_records_are_few_against_the_keys_of_a_plan():
    (interval,) = adaptations(planners.get("mixed"), Setting(keys=300_000, intervals=1), seed=1)
    problem = PlanningProblem.of(interval.given)
    records = [len(Records.of(problem, degree).count) for degree in (1, 8, 256)]
    assert records[0] < 0.02 * 300_000
    assert all(finer > coarser for finer, coarser in pairwise(records))


@shows("mixed-compact", "From records that instances report")
def test_tables_beyond_n_max_are_fitted_over_all_keys_from_records_too(monkeypatch: pytest.MonkeyPatch):
    (interval,) = adaptations(planners.get("mixed"), Setting(keys=100_000, intervals=1), seed=1)
    fitted, fit = list[int](), vars(bounded_table)["_smallest_table"]

    def counted(problem: PlanningProblem, *others: object) -> object:
        fitted.append(len(problem.loads))
        return fit(problem, *others)

    monkeypatch.setattr(bounded_table, "_smallest_table", counted)
    needed = len(interval.table.entry_hashes)
    for max_entries, tables in ((needed, 0), (needed // 2, bounded_table.BISECTIONS)):
        problem = PlanningProblem.of(replace(interval.given, max_entries=max_entries))
        planners.get("mixed")(problem.given)
        plan_records(problem, Records.of(problem, 8))
        assert fitted == 2 * tables * [100_000]


@shows("mixed-dynamics", "Migration grows slower over f with Mixed than with Readj, by its ratio")
def test_readj_moves_more_at_every_f_so_that_its_growth_begins_higher():
    given = {**MIXED_DYNAMICS.parameters, **MIXED_DYNAMICS.quick, "planners": ["mixed", "mixed-bf"], "keys": 5_000}
    found = MIXED_DYNAMICS.measure(given, 1, 1, lambda share: None).summary
    assert found["readj_to_mixed_migration_least_f"] > 1.5
    assert found["readj_to_mixed_migration_most_f"] > 1
    assert found["growth_of_mixed_migration"] < found["growth_of_readj_migration"]


@shows("mixed-dynamics", "Mixed migrates about as much as brute force")
def test_mixed_moves_as_much_as_brute_force_of_the_same_intervals():
    """The keys that trade depend on where they are: one other plan, and the streams part."""
    mixed, brute_force = planners.get("mixed"), planners.get("mixed-bf")
    setting = Setting.of(MIXED_DYNAMICS.parameters, fluctuation=0.2)
    of_mixed = [interval for interval in adaptations(mixed, setting, seed=40_001) if interval.plan]
    same = [brute_force(interval.given).moved_bytes / float(interval.given.key_state.sum()) for interval in of_mixed]
    own = [interval.migration for interval in adaptations(brute_force, setting, seed=40_001) if interval.plan]
    migration = np.mean([interval.migration for interval in of_mixed])
    assert migration < 1.05 * np.mean(same)
    assert migration > 1.2 * np.mean(own)


@shows("mixed-scaleout", "Readj's plan takes far longer than Mixed's")
def test_readj_with_its_best_sigma_weighs_few_of_the_pairs_of_all_keys():
    """At sigma 0 each of its moves weighs pairs of all keys: at 56 ms for those of its best sigma, far more than 5 minutes."""
    *_, last = adaptations(planners.get("mixed"), Setting(keys=180_000, instances=10, intervals=2), seed=1)
    mean = float(last.given.key_loads.sum()) / 10
    best = min(SIGMAS, key=lambda sigma: (not readj_at(last.given, sigma).theta_reached, -sigma))
    candidates = int(np.sum(last.given.key_loads >= best * mean))
    assert (180_000 / candidates) ** 2 * 0.056 > 300
