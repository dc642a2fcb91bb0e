"""One more executor of a class: three instances of 100,000 rows/s and one of 30,000, fixed seconds 0.05."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.four_instances import RATES, counting, model

from streamtopology.contract.reasons import SOURCE
from streamtopology.routing.control.assessment import one_more
from streamtopology.routing.control.slot_model import SlotModel
from streamtopology.routing.control.stages import ShareStage

CLASSES = {"large": [0, 1, 2], "small": [3]}
EVEN = (30_000, 30_000, 30_000, 9_000)


def gains(
    *, fixed: float = 0.0, elsewhere: float = 0.0, key_rows: int = 0, growing: tuple[str, ...] = ("count",)
) -> dict[str, float]:
    return one_more([counting(EVEN, key_rows)], model(fixed), elsewhere, CLASSES, growing)


def test_executor_brings_its_part_of_the_capacity() -> None:
    assert gains() == {"large": pytest.approx(4.3 / 3.3), "small": pytest.approx(3.6 / 3.3)}


def test_seconds_outside_of_the_stages_stay() -> None:
    stage = 99_000 / 3.3e5
    assert gains(elsewhere=0.3)["large"] == pytest.approx((stage + 0.3) / (stage * 3.3 / 4.3 + 0.3))


def test_slow_executor_brings_nothing_where_its_fixed_seconds_are_too_long() -> None:
    slow = SlotModel(RATES / 1e5, {"count": 1e5}, {"count": RATES}, {"count": np.array([0.0, 0.0, 0.0, 5.0])})
    assert one_more([counting(EVEN)], slow, 0.0, CLASSES, {"count"})["small"] == 1.0


def test_stage_of_a_fixed_number_of_instances_does_not_grow() -> None:
    assert gains(growing=()) == {"large": 1.0, "small": 1.0}


def test_key_that_cannot_be_divided_is_not_done_earlier() -> None:
    assert gains(key_rows=30_000)["large"] < gains()["large"]
    alone = one_more([counting((0, 99_000, 0, 0), 99_000)], model(0.0), 0.0, CLASSES, {"count"})
    assert alone == {"large": 1.0, "small": 1.0}


def test_source_and_operators_count_together() -> None:
    source = ShareStage(SOURCE, (0, 1, 2, 3), 99_000, RATES / RATES.sum())
    both = one_more([source, counting(EVEN)], model(0.0), 0.0, CLASSES, {SOURCE, "count"})
    assert both["large"] == pytest.approx(4.3 / 3.3)


@settings(max_examples=100)
@given(
    rows=st.tuples(*[st.integers(0, 10**6)] * 4).filter(any),
    fixed=st.floats(0, 2),
    elsewhere=st.floats(0, 100),
    key_share=st.floats(0, 1),
)
def test_executor_never_makes_a_batch_longer(
    rows: tuple[int, int, int, int], fixed: float, elsewhere: float, key_share: float
) -> None:
    found = one_more([counting(rows, int(rows[1] * key_share))], model(fixed), elsewhere, CLASSES, {"count"})
    assert all(1 - 1e-9 <= gain <= 2.01 for gain in found.values())
