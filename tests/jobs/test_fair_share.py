"""The fair share of an executor against a slow reference, and the loads and speeds that follow from it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.histories import BY_CAPACITY, CAPACITIES, HASHED, load_report, outcome

from streamtopology.contract.reasons import SOURCE
from streamtopology.jobs.observe.fair_share import MEASURED_ROWS, Loads, Work, batch_loads, measure, recent_loads, stage_load
from streamtopology.jobs.observe.figures import imbalance
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.jobs.observe.speeds import changed_speeds, speeds


def loads_of(batch: BatchOutcome) -> Loads:
    return batch_loads(measure(batch))


measured = st.tuples(st.integers(MEASURED_ROWS + 1, 10**7), st.floats(0.001, 100.0)).map(lambda done: Work(*done))
idle = st.just(Work())


def finishing_together(rows: float, capacities: list[float]) -> float:
    """The time after which executors of these capacities have done all rows, found by halving."""
    least, most = 0.0, rows / min(capacities)
    for _ in range(200):
        middle = (least + most) / 2
        if sum(capacity * middle for capacity in capacities) < rows:
            least = middle
        else:
            most = middle
    return most


@given(st.lists(measured, min_size=1, max_size=40))
def test_fair_share_is_the_time_in_which_all_finish_together(works: list[Work]):
    load = stage_load(dict(enumerate(works)), {})
    rows = sum(work.rows for work in works)
    assert load.fair_seconds == pytest.approx(finishing_together(rows, [work.rows / work.seconds for work in works]))


@given(st.lists(measured, min_size=1, max_size=40))
def test_loads_weighed_by_capacity_have_the_mean_one(works: list[Work]):
    load = stage_load(dict(enumerate(works)), {})
    mean = sum(load.loads[slot] * load.capacities[slot] for slot in load.loads) / sum(load.capacities.values())
    assert mean == pytest.approx(1)
    assert min(load.loads.values()) <= 1 + 1e-9
    assert max(load.loads.values()) >= 1 - 1e-9


@given(st.lists(measured, min_size=1, max_size=8), st.floats(1.0, 1e6))
def test_an_executor_without_rows_counts_by_its_estimated_capacity(works: list[Work], estimate: float):
    alone = stage_load(dict(enumerate(works)), {})
    helped = stage_load({**dict(enumerate(works)), len(works): Work()}, {len(works): estimate})
    assert helped.fair_seconds < alone.fair_seconds
    assert helped.loads[len(works)] == 0


@example([(55, 0.5), (40, 0.3)], 0.0)  # nobody knows the speed of the second
@given(st.lists(st.tuples(st.integers(0, 1000), st.floats(0.001, 1.0)), min_size=1, max_size=8), st.floats(0.0, 1e4))
def test_the_most_loaded_executor_has_at_least_its_fair_share(works: list[tuple[int, float]], estimate: float):
    work = {slot: Work(*done) for slot, done in enumerate(works)}
    load = stage_load(work, dict.fromkeys(work, estimate))
    assert max(load.loads.values(), default=1.0) >= 1, "an imbalance is never negative"


def test_load_of_slow_executor_is_not_flattered_by_the_mean():
    loads = loads_of(outcome(0, {"tail": HASHED}))
    fair = 1 / sum(CAPACITIES)
    assert loads.stages["tail"].loads[3] == pytest.approx(HASHED[3] / CAPACITIES[3] / fair, rel=1e-3)
    even = loads_of(outcome(0, {"tail": BY_CAPACITY}))
    assert all(load == pytest.approx(1, rel=0.01) for load in even.by_slot.values())


def test_instances_of_one_executor_add_up():
    single = outcome(0, {"tail": (0.5, 0.5)})
    halves = [
        replace(one, slot=slot)
        for slot in (0, 1)
        for one in (load_report("tail", 0, 10_000, 0.25), load_report("tail", 1, 10_000, 0.25))
    ]
    split = replace(single, reports=tuple(halves), capacities={})
    whole = replace(single, reports=(load_report("tail", 0, 20_000, 0.5), load_report("tail", 1, 20_000, 0.5)), capacities={})
    assert loads_of(split).by_slot == loads_of(whole).by_slot


def test_stage_with_too_few_rows_is_not_judged():
    few = outcome(0, {"tail": HASHED}, rows=40)
    assert loads_of(few).by_slot == {}
    assert set(measure(few).work) == {SOURCE, "tail"}


def test_rows_that_spark_reads_itself_are_no_executors_load():
    batch = outcome(0, {"tail": HASHED})
    placed = replace(batch, source_reports=())
    anywhere = replace(batch, source_reports=tuple(replace(one, slot=-1) for one in batch.source_reports))
    assert loads_of(anywhere).by_slot == loads_of(placed).by_slot
    assert loads_of(anywhere).work[SOURCE][-1].rows == sum(one.rows for one in batch.source_reports)


def test_recent_loads_are_medians_of_the_newest_epoch_alone():
    batches = [outcome(number, {"tail": HASHED}, epoch=1) for number in range(4)]
    batches.append(outcome(4, {"tail": BY_CAPACITY}, epoch=2))
    highest = recent_loads([measure(batch) for batch in batches]).highest
    assert highest is not None
    assert highest == pytest.approx(1, rel=0.01)
    assert recent_loads([]).highest is None
    outlier = [outcome(number, {"tail": HASHED if number == 2 else BY_CAPACITY}) for number in range(5)]
    assert recent_loads([measure(batch) for batch in outlier]).highest == pytest.approx(1, rel=0.01)


def test_executor_that_is_gone_has_no_load():
    before = [measure(outcome(number, {"tail": HASHED})) for number in range(4)]
    last = outcome(4, {"tail": (0.4, 0.3, 0.3)})
    alone = measure(replace(last, source_reports=last.source_reports[:3]))
    assert recent_loads([*before, alone]).by_slot.keys() == {0, 1, 2}
    assert recent_loads([*before, alone]).work[SOURCE].keys() == {0, 1, 2}


def slowed(batch: BatchOutcome, slot: int, times: float) -> BatchOutcome:
    """The batch on a machine where `slot` takes `times` as long."""
    reports = (replace(one, busy_seconds=one.busy_seconds * times) if one.slot == slot else one for one in batch.reports)
    return replace(batch, reports=tuple(reports))


def test_speeds_are_relative_to_the_fastest():
    assert speeds(loads_of(outcome(0, {"tail": HASHED, "next": HASHED})))[3] == pytest.approx(0.3, rel=0.01)


def test_only_a_change_of_one_executor_is_a_changed_speed():
    early = outcome(0, {"tail": HASHED})
    all_slower = outcome(1, {"tail": HASHED})
    for slot in range(4):
        all_slower = slowed(all_slower, slot, 3.0)
    assert changed_speeds(loads_of(early), loads_of(all_slower)) == {}
    changed = changed_speeds(loads_of(early), loads_of(slowed(early, 3, 4.0)))
    assert changed == {3: pytest.approx(0.25, rel=0.01)}


def test_imbalance_of_metrics_and_of_the_page_is_that_of_executors():
    pairs = [load_report("n", instance, 1000, 0.1 if instance % 2 else 0.3) for instance in range(4)]
    two_each = tuple(replace(report, slot=report.instance // 2) for report in pairs)
    batch = replace(outcome(0, {"n": HASHED}), reports=two_each, source_reports=())
    assert imbalance(batch, "n") == pytest.approx(0)
    assert loads_of(batch).highest == pytest.approx(1)
    alone = replace(batch, reports=tuple(pairs))
    assert imbalance(alone, "n") == pytest.approx((loads_of(alone).highest or 0) - 1)
