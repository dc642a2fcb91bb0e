"""The verdict on a run: its hysteresis, and the sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.histories import CAPACITIES, HASHED, SLOTS, outcome, run
from support.page_histories import many

from streamtopology.contract.page import VerdictState
from streamtopology.contract.phases import Phase
from streamtopology.contract.reasons import Binding, BindingKind, Hold, HoldReason
from streamtopology.jobs.observe.fair_share import measure, recent_loads
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.outcome import WARMUP_BATCHES, BatchOutcome
from streamtopology.jobs.view.verdict import Balance, judge, verdict

TOLERANCE = 0.08


def batch(number: int, load: float, epoch: int = 1) -> BatchOutcome:
    """A batch whose last executor has this load, while the others divide the rest by their capacity."""
    whole = sum(CAPACITIES)
    last = load * CAPACITIES[3] / whole
    others = (1 - last) * CAPACITIES[0] / (whole - CAPACITIES[3])
    made = outcome(number, {"tail": (others / sum((others,) * 3) * (1 - last),) * 3 + (last,)}, epoch=epoch)
    return BatchOutcome(**{**vars(made), "source_reports": ()})


def judged(loads: Sequence[float], epochs: Sequence[int] | None = None) -> list[Balance | None]:
    """The states after each of these batches."""
    batches = [batch(number, load, epochs[number] if epochs else 1) for number, load in enumerate(loads)]
    states: list[Balance | None] = []
    state = None
    for end in range(len(batches)):
        state = judge(state, [measure(one) for one in batches[max(0, end - 4) : end + 1]], TOLERANCE)
        states.append(state)
    return states


def test_load_that_hovers_at_the_tolerance_does_not_turn_the_verdict():
    states = judged([1.0] * 5 + [1.07, 1.10, 1.06, 1.12, 1.09, 1.15, 1.05] * 6)
    assert states[-1] == Balance(False, WARMUP_BATCHES - 1)


@given(st.lists(st.sampled_from([1.0, 1.05, 1.1, 1.15, 1.25, 1.6]), min_size=3, max_size=30))
def test_verdict_turns_only_from_one_threshold_to_the_other(loads: list[float]):
    states = judged(loads)
    for end, (before, after) in enumerate(pairwise(states), 1):
        recent = median(loads[max(0, end - 4) : end + 1])
        if before is not None and after is not None and before != after:
            assert (recent > 1 + 2 * TOLERANCE) if after.held_up else (recent <= 1 + TOLERANCE + 0.01)
        if after is not None and recent > 1 + 2.2 * TOLERANCE and end >= 2:
            assert after.held_up
        if after is not None and recent <= 1:
            assert not after.held_up


def test_executor_holds_the_others_up_from_twice_the_tolerance_until_within_it():
    states = judged([1.0] * 5 + [1.2] * 8 + [1.12] * 8 + [1.02] * 8)
    turns = [state for state, before in zip(states[1:], states, strict=False) if state != before]
    assert [turn.held_up for turn in turns if turn is not None] == [False, True, False]
    begun, ended = turns[1], turns[2]
    assert begun == Balance(True, 7), "the median of five batches turns with the third"
    assert ended == Balance(False, 23), "1.12 is beyond the tolerance still"


def test_slow_batch_alone_does_not_turn_the_verdict():
    assert judged([1.0] * 5 + [3.0] + [1.0] * 5)[-1] == Balance(False, WARMUP_BATCHES - 1)


def test_batches_of_a_former_epoch_do_not_count():
    assert judged([2.0] * 6 + [1.0], [1] * 6 + [2])[-1] == Balance(False, 6)


def test_slow_first_batches_of_an_epoch_do_not_turn_the_verdict():
    states = judged([1.0] * 5 + [1.5, 1.5, 1.5], [1] * 5 + [2] * 3)
    assert states[-2] == Balance(False, WARMUP_BATCHES - 1)
    assert states[-1] == Balance(True, 7)


def test_first_batches_begin_no_verdict():
    assert judged([3.0] * WARMUP_BATCHES)[: WARMUP_BATCHES - 1] == [None] * (WARMUP_BATCHES - 1)


def test_batches_without_rows_leave_the_verdict():
    former = Balance(True, 4)
    empty = BatchOutcome(**{**vars(batch(9, 1.0)), "rows": 0, "reports": ()})
    assert judge(former, [measure(empty)] * 5, TOLERANCE) == former


def sentence(history: History, balance: Balance | None) -> tuple[VerdictState, str]:
    given = verdict(history, balance, recent_loads([measure(one) for one in history.batches]), TOLERANCE)
    return given.state, given.text


def test_verdict_names_the_slow_executor_and_the_planners_reason():
    history = run(6)
    assert sentence(history, Balance(True, 2)) == (VerdictState.ACT, "small-0 holds the others up: 2.2 × its fair share")
    history.judged(Hold(HoldReason.OFF))
    assert sentence(history, Balance(True, 2))[1].endswith("; rebalance is off")


def test_verdict_of_balanced_run_names_its_limit():
    history = run(6, reroute_at=0)
    assert sentence(history, Balance(False, 2)) == (VerdictState.GOOD, "Balanced since batch 2; limited by tail")
    small = run(6, reroute_at=0, rows=4_000)
    assert sentence(small, Balance(False, 2))[1].endswith(
        "of a batch is fixed cost: larger batches would help, routing would not"
    )


def test_verdict_beyond_the_tolerance_does_not_stand_beside_a_load_that_contradicts_it():
    history = History("flights", SLOTS, {})
    history.enter(Phase.RUNNING)
    for number in range(6):
        history.batch_done(batch(number, 1.12))
    assert sentence(history, Balance(False, 2))[1].startswith("Balanced to within 12 % since batch 2")
    history.enter(Phase.DONE)
    assert sentence(history, Balance(False, 2))[1].startswith("Balanced to within 12 % from batch 2 to the end")


def test_verdict_names_an_operator_of_little_work_that_is_far_from_even():
    history = History("flights", SLOTS, {})
    history.enter(Phase.RUNNING)
    for number in range(6):
        whole, small = batch(number, 1.0), batch(number, 1.37).reports
        lights = [replace(one, operator="alarms", rows=one.rows // 50, busy_seconds=one.busy_seconds / 50) for one in small]
        history.batch_done(replace(whole, reports=(*whole.reports, *lights)))
    text = sentence(history, Balance(False, 2))[1]
    assert text.startswith("Balanced apart from alarms (imbalance 37 %, 2 % of the work) since batch 2")


def test_verdict_says_which_key_is_the_bound():
    history = run(6, reroute_at=0)
    key = Binding(BindingKind.KEY, "tail", 1.27, 0.61, instance=1, key="00000000deadbeef", combinable=False)
    history.bound_by(key)
    sentences = "tail is bounded by one key: 00000000deadbeef alone takes 1.3 s at instance 1, all together would take 610 ms, "
    sentences += "the state of tail cannot be combined"
    assert sentence(history, Balance(False, 2))[1] == f"Balanced since batch 2; {sentences}"
    assert sentence(history, Balance(True, 2))[1].endswith(f"; {sentences}")
    history.bound_by(None)
    assert sentence(history, Balance(False, 2))[1] == "Balanced since batch 2; limited by tail"


@pytest.mark.parametrize("hides", [False, True])
def test_key_of_the_bound_is_hidden_where_keys_are(hides: bool):
    history = History("flights", SLOTS, {}, hides_keys=hides)
    made = outcome(0, {"tail": HASHED})
    heavy = replace(
        made.reports[0],
        heavy_hashes=np.array([7], np.uint64),
        heavy_rows=np.array([1]),
        heavy_seconds=np.zeros(1),
        heavy_bytes=np.array([8]),
        heavy_labels=("Berlin",),
    )
    history.batch_done(replace(made, reports=(heavy, *made.reports[1:])))
    history.bound_by(Binding(BindingKind.KEY, "tail", 1.27, 0.61, instance=1, key=f"{7:016x}"))
    assert history.binding is not None
    assert history.binding.key == (f"{7:016x}" if hides else "Berlin")


def test_verdict_waits_while_the_run_starts():
    history = History("flights", SLOTS, {})
    history.enter(Phase.STARTING, "starting executors 2/4")
    assert sentence(history, None) == (VerdictState.WAIT, "Starting executors 2/4")
    history.enter(Phase.RUNNING)
    assert sentence(history, None) == (VerdictState.WAIT, "No batch has run yet")
    history.batch_done(outcome(0, {"tail": HASHED}))
    assert sentence(history, None)[0] is VerdictState.WAIT


def test_verdict_on_a_stream_of_few_rows_says_so():
    history = History("flights", SLOTS, {})
    history.enter(Phase.RUNNING)
    for number in range(12):
        history.batch_done(outcome(number, {"tail": HASHED}, rows=40))
        starts = number < WARMUP_BATCHES
        expected = "Being measured; the first" if starts else "Too few rows to judge; loads are compared from 30 rows"
        state, text = sentence(history, None)
        assert (state, text[: len(expected)]) == (VerdictState.WAIT, expected)
    assert sentence(history, Balance(False, 2))[1].startswith("Too few rows")
    history.enter(Phase.DONE)
    assert sentence(history, None)[1].startswith("The run had too few rows to judge")


def test_verdict_watches_while_state_moves():
    history = run(5)
    history.batch_done(BatchOutcome(**{**vars(outcome(5, {"tail": HASHED})), "moving": True}))
    state, text = sentence(history, Balance(True, 2))
    assert (state, text.split("; ")[0]) == (VerdictState.WATCH, "A re-routing is under way")


@pytest.mark.parametrize("over", [1, 90])
def test_verdict_of_many_executors_counts_those_beyond_the_tolerance(over: int):
    history = many(100, batches=5, slow=over)
    state, text = sentence(history, Balance(True, 2))
    assert state is VerdictState.ACT
    assert ("beyond the tolerance" in text) == (over > 5)


def test_verdict_on_a_run_that_is_over_is_of_the_past():
    history = run(6)
    history.enter(Phase.DONE)
    assert sentence(history, Balance(True, 2))[1] == "small-0 held the others up: 2.2 × its fair share"
    assert sentence(history, None)[1].startswith("The run ended before it could be judged")
    balanced = run(6, reroute_at=0)
    balanced.enter(Phase.DONE)
    assert sentence(balanced, Balance(False, 2))[1].startswith("Balanced from batch 2 to the end")
    balanced.batch_done(replace(balanced.batches[-1], number=6, moving=True))
    assert sentence(balanced, Balance(False, 2)) == (
        VerdictState.WATCH,
        "The run ended in the middle of a re-routing; the next one continues it",
    )
    empty = History("flights", SLOTS, {})
    empty.enter(Phase.DONE)
    assert sentence(empty, None) == (VerdictState.WAIT, "The run is over; no batch has run")
