"""Slot models are recovered from noisy stage timings whose truth is known, and the declared CPU fills the gaps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.contract.reasons import SOURCE
from streamtopology.routing.control import slot_model
from streamtopology.routing.control.slot_model import SlotModel, bound
from streamtopology.routing.control.timings import StageTiming, Timings, stage_timings
from streamtopology.routing.load.bucket_rows import BucketRows
from streamtopology.routing.load.load_report import LoadReport, SourceReport
from streamtopology.routing.load.planner_load import PlannerLoad, as_work, planner_load_of, without_gone

SPEEDS = np.array([1.0, 1.0, 1.0, 0.3])
BASES = {SOURCE: 400_000.0, "count": 100_000.0}
FIXED = 0.05


def window(
    n_batches: int, *, noise: float, seed: int = 0, speeds: np.ndarray = SPEEDS, idle: tuple[tuple[str, int], ...] = ()
) -> list[list[StageTiming]]:
    """Turns of 10,000 rows a slot and stage; the `idle` ones had none."""
    rng = np.random.default_rng(seed)
    return [
        [
            StageTiming(stage, slot, rows, busy := rows / (base * speeds[slot]) * rng.lognormal(0, noise), busy + FIXED)
            for stage, base in BASES.items()
            for slot in range(len(speeds))
            for rows in [0 if (stage, slot) in idle else 10_000]
        ]
        for _ in range(n_batches)
    ]


def estimate(batches: Sequence[Sequence[StageTiming]], declared_cpu: Sequence[float]) -> SlotModel:
    return slot_model.estimate([Timings.of(batch) for batch in batches], declared_cpu)


def settled_from(batches: Sequence[Sequence[StageTiming]]) -> int:
    return slot_model.settled_from([Timings.of(batch) for batch in batches])


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    speeds=st.lists(st.floats(0.1, 1.0), min_size=2, max_size=6),
    outliers=st.integers(0, 3),
)
def test_speeds_rates_and_fixed_seconds_are_recovered_in_spite_of_outliers(seed, speeds, outliers):
    truth = np.array(speeds)
    batches = window(10, noise=0.03, seed=seed, speeds=truth)
    for i in range(outliers):
        batches[i] = [StageTiming(t.stage, t.slot, t.rows, 20 * t.busy_seconds, 30 * t.task_seconds) for t in batches[i]]
    model = estimate(batches, [1.0] * len(truth))
    for stage, base in BASES.items():
        np.testing.assert_allclose(model.rates[stage], base * truth, rtol=0.15)
        np.testing.assert_allclose(model.fixed_seconds[stage], FIXED, rtol=0.2)
    np.testing.assert_allclose(model.speeds / model.speeds[0], truth / truth[0], rtol=0.15)


def test_a_slot_that_a_stage_has_not_used_is_judged_by_its_speed_at_the_other():
    model = estimate(window(8, noise=0.0, idle=(("count", 3),)), [1.0, 1.0, 1.0, 1.0])
    assert model.rates["count"][3] == pytest.approx(30_000, rel=1e-3)


def test_slot_without_timings_needs_fixed_seconds_of_others_at_its_speed():
    batches = [[timing for timing in batch if (timing.stage, timing.slot) != ("count", 3)] for batch in window(8, noise=0.0)]
    model = estimate(batches, [1.0, 1.0, 1.0, 1.0])
    assert model.fixed_seconds["count"][3] == pytest.approx(FIXED / SPEEDS[3], rel=0.01)


@pytest.mark.parametrize("strangers", [(3,), (1, 2, 3), (0, 1, 2, 3)], ids=["one", "most", "all"])
def test_timings_of_slots_that_are_not_declared_are_left_out(strangers):
    """A driver's statistics may be of more executors than the manifest has, or of fewer: both change while it runs."""
    declared = [1.0] * (len(SPEEDS) - len(strangers)) or [1.0]
    batches = window(8, noise=0.0)
    known = [[timing for timing in batch if timing.slot not in strangers] for batch in batches]
    if len(strangers) == len(SPEEDS):
        batches = [[replace(timing, slot=timing.slot + 4) for timing in batch] for batch in batches]
    found, expected = estimate(batches, declared), estimate(known, declared)
    np.testing.assert_array_equal(found.speeds, expected.speeds)
    assert found.base_rates == expected.base_rates
    for part in ("rates", "fixed_seconds"):
        of_found, of_expected = getattr(found, part), getattr(expected, part)
        assert of_found.keys() == of_expected.keys()
        for stage in of_found:
            np.testing.assert_array_equal(of_found[stage], of_expected[stage])


def test_the_source_needs_the_fixed_seconds_that_operators_need_on_a_slot():
    """Its own say little: a slot has saved up CPU in the pause before them, or works during the former batch."""
    batches = window(8, noise=0.0)
    for batch in batches:
        batch[:] = [replace(timing, task_seconds=timing.busy_seconds) if timing.stage == SOURCE else timing for timing in batch]
    np.testing.assert_allclose(estimate(batches, [1.0] * 4).fixed_seconds[SOURCE], FIXED)
    only_source = [[timing for timing in batch if timing.stage == SOURCE] for batch in window(8, noise=0.0)]
    np.testing.assert_allclose(estimate(only_source, [1.0] * 4).fixed_seconds[SOURCE], FIXED)


def test_short_timings_do_not_set_the_speed_of_a_slot():
    """0.02 s of reading may fall where a limited slot has CPU left, and look 4 times faster: the other stage shows it."""
    batches = window(8, noise=0.0)
    for batch in batches:
        batch[:] = [replace(t, busy_seconds=0.02) if (t.stage, t.slot) == (SOURCE, 3) else t for t in batch]
    model = estimate(batches, [1.0] * 4)
    assert model.rates[SOURCE][3] / model.rates[SOURCE][0] == pytest.approx(SPEEDS[3], rel=0.15)


def test_a_slot_that_nobody_has_used_is_guessed_from_its_declared_cpu():
    idle = (("count", 3), (SOURCE, 3))
    model = estimate(window(8, noise=0.0, idle=idle), [1.0, 1.0, 1.0, 0.5])
    assert model.rates["count"] == pytest.approx([100_000, 100_000, 100_000, 50_000], rel=1e-3)


def test_measured_speed_overrules_what_was_declared():
    model = estimate(window(8, noise=0.0), [1.0, 1.0, 0.1, 1.0])
    assert model.rates["count"] == pytest.approx(100_000 * SPEEDS)
    assert model.speeds / model.speeds[0] == pytest.approx(SPEEDS, rel=1e-3)


def test_a_window_without_rows_knows_nothing_but_the_declared_cpu():
    model = estimate([[StageTiming("count", 0, 0, 0.0, 0.1)]], [2.0, 1.0])
    assert not model.rates
    assert model.speeds == pytest.approx([1.0, 0.5])


def test_instances_that_share_a_slot_share_its_rate():
    model = estimate(window(4, noise=0.0), [1.0] * 4)
    capacities, fixed = model.of_instances("count", np.array([0, 1, 2, 3, 0]))
    assert capacities == pytest.approx([50_000, 100_000, 100_000, 30_000, 50_000])
    assert fixed == pytest.approx([FIXED] * 5)


def test_a_change_of_capacity_is_noticed_and_noise_is_not():
    slower = SPEEDS * [1, 0.5, 1, 1]
    before, after = window(6, noise=0.05), window(2, noise=0.05, seed=1, speeds=slower)
    assert settled_from(before) == 0
    assert settled_from(before + after) == 6
    assert settled_from(after) == 0


def test_rates_of_a_few_milliseconds_do_not_show_a_change_of_capacity():
    """An operator whose rows cost next to nothing: its seconds are those of the clock and the scheduler."""
    few = [[StageTiming("light", 0, 10_000, busy, 0.05)] for busy in (0.004, 0.004, 0.004, 0.004, 0.006, 0.006)]
    assert settled_from(few) == 0
    many = [[StageTiming("light", 0, 10_000, 20 * busy, 0.05)] for (one,) in few for busy in [one.busy_seconds]]
    assert settled_from(many) == 4


def test_stage_timings_add_up_the_instances_of_a_slot():
    reports = [LoadReport("count", i, i % 2, 100, 0.5, 0.75) for i in range(3)]
    seen = {(timing.stage, timing.slot): timing for timing in stage_timings(reports, [SourceReport(1, 300, 0.25, 0.5)])}
    assert seen["count", 0] == StageTiming("count", 0, 200, 1.0, 1.5)
    assert seen["count", 1] == StageTiming("count", 1, 100, 0.5, 0.75)
    assert seen[SOURCE, 1] == StageTiming(SOURCE, 1, 300, 0.25, 0.5)


def test_the_bound_is_all_capacity_over_the_cost_of_a_row_through_the_chain():
    model = estimate(window(4, noise=0.0), [1.0] * 4)
    chain = bound(model, {SOURCE: 1.0, "count": 0.5})
    assert chain.rows_per_second == pytest.approx(SPEEDS.sum() / (1 / 400_000 + 0.5 / 100_000))
    assert chain.seconds_per_row["count"] == pytest.approx(0.5 / (100_000 * SPEEDS.sum()))


def timed_report(slot: int, speed: float) -> LoadReport:
    """Of 1,000 rows a slot, the one heavy key's 100 take ten times as long as the others."""
    heavy, light = 100 * 1e-3 / speed, 900 * 1e-4 / speed
    return LoadReport(
        operator="enrich",
        instance=slot,
        slot=slot,
        rows=1000,
        busy_seconds=heavy + light,
        task_seconds=heavy + light,
        state_keys=11,
        state_bytes=1100,
        heavy_hashes=np.array([slot + 1], np.uint64),
        heavy_rows=np.array([100]),
        heavy_seconds=np.array([heavy]),
        heavy_bytes=np.array([100]),
        heavy_labels=("heavy",),
        bucket_rows=BucketRows.of(np.full(10, 90)),
    )


def test_a_timed_key_weighs_what_it_costs_wherever_it_was_measured():
    reports = [timed_report(0, 1.0), timed_report(1, 0.5)]
    model = estimate([stage_timings(reports, [SourceReport(0, 1000, 0.1, 0.1), SourceReport(1, 1000, 0.2, 0.2)])], [1.0, 1.0])
    fast, slow = (as_work(report, model) for report in reports)
    assert fast.heavy_rows[0] == pytest.approx(slow.heavy_rows[0], rel=0.01)
    assert fast.heavy_rows[0] / fast.bucket_rows.rows.sum() == pytest.approx(100 / 90, rel=0.05)


def test_planner_load_is_per_batch_with_light_state_over_all_buckets():
    report = LoadReport(
        operator="count",
        instance=0,
        slot=0,
        rows=60,
        busy_seconds=0.1,
        task_seconds=0.1,
        state_keys=9,
        state_bytes=500,
        heavy_hashes=np.array([7], np.uint64),
        heavy_rows=np.array([20]),
        heavy_seconds=np.zeros(1),
        heavy_bytes=np.array([100]),
        heavy_labels=("7",),
        bucket_rows=BucketRows.of(np.array([30, 10])),
    )
    model = estimate([stage_timings([report], [])], [1.0])
    load = planner_load_of([report, report], 2, model)
    assert load.key_loads.tolist() == [20]
    assert load.key_state.tolist() == [100]
    assert load.bucket_loads.tolist() == [30, 10]
    assert load.bucket_state.tolist() == [200, 200]
    assert load.bucket_keys.tolist() == [4, 4]


def report_of(rows: dict[int, int]) -> LoadReport:
    keys = sorted(rows)
    return LoadReport(
        operator="count",
        instance=0,
        slot=0,
        rows=sum(rows.values()) + 400,
        busy_seconds=0.1,
        task_seconds=0.1,
        heavy_hashes=np.array(keys, np.uint64),
        heavy_rows=np.array([rows[key] for key in keys]),
        heavy_seconds=np.zeros(len(keys)),
        heavy_bytes=np.full(len(keys), 64),
        heavy_labels=("",) * len(keys),
        bucket_rows=BucketRows.of(np.full(4, 100)),
    )


def load_of(*reports: LoadReport) -> PlannerLoad:
    return planner_load_of(reports, len(reports), estimate([stage_timings(reports[:1], [])], [1.0]))


def test_key_that_is_gone_is_load_of_any_key():
    """Key 1 had half of the rows of a batch; the newest one lists keys of 10 rows and does not name it."""
    before, newest = report_of({1: 600, 2: 30}), report_of({2: 30, 3: 10})
    load = load_of(before, newest)
    left = without_gone(load, [newest])
    assert left.key_hashes.tolist() == [2, 3]
    assert left.key_loads.tolist() == [30, 5]
    assert left.bucket_loads.tolist() == [100 + 300 / 4] * 4
    assert left.bucket_keys.sum() == load.bucket_keys.sum() + 1
    assert left.key_state.sum() + left.bucket_state.sum() == load.key_state.sum() + load.bucket_state.sum()


def test_key_that_may_be_too_light_to_be_listed_is_not_gone():
    before, newest = report_of({1: 390, 2: 500}), report_of({2: 500, 3: 20})
    load = load_of(before, newest)
    assert without_gone(load, [newest]).key_hashes.tolist() == [1, 2, 3]
    assert without_gone(load, [report_of({})]) is load, "nothing is known of a report that lists no key"


def test_key_is_not_gone_because_few_rows_came():
    """Of 5 rows the key would have had 3: not enough to miss it."""
    load = load_of(report_of({1: 600, 2: 30}))
    few = replace(report_of({2: 1}), rows=5, bucket_rows=BucketRows.of(np.ones(4, np.int64)))
    assert without_gone(load, [few]).key_hashes.tolist() == [1, 2]
    many = replace(report_of({2: 1}), rows=50, bucket_rows=BucketRows.of(np.full(4, 12)))
    assert without_gone(load, [many]).key_hashes.tolist() == [2]


def test_slots_with_as_much_cpu_are_alike_unless_they_are_measured_otherwise():
    """Timings shorter than a CPU limit's periods are off by a factor of two: equal slots had twice the rows of others."""
    seeds = range(20)
    equal = [estimate(window(12, noise=0.8, seed=seed, speeds=np.ones(4)), [1.0] * 4).speeds for seed in seeds]
    assert np.median([speeds.max() / speeds.min() for speeds in equal]) <= 1.1
    slow = [estimate(window(12, noise=0.8, seed=seed), [1.0] * 4).speeds for seed in seeds]
    assert 0.2 <= np.median([speeds[3] / speeds[:3].mean() for speeds in slow]) <= 0.5
    quiet = estimate(window(12, noise=0.02, speeds=np.array([1.0, 0.9, 1.0, 0.3])), [1.0] * 4)
    assert quiet.speeds / quiet.speeds[0] == pytest.approx([1.0, 0.9, 1.0, 0.3], rel=0.03), "a small difference that is sure"
