"""The first stage of the next batch is started early, and is used only if the batch is the foreseen one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.stages import SLOTS, Flow, Loss, manifest, random_table

from streamtopology.routing.control.window import MIN_BATCHES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def counted_flow(folder: Path, batches: int) -> tuple[Flow, Counter[int]]:
    """A flow that counts keys, and that has been running for `batches` batches, with what it should have counted."""
    operator = {"name": "n", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "count"}
    flow = Flow(folder, manifest([operator], {"s": "k BIGINT"}))
    for _ in range(batches):
        flow.batch(s=pa.table({"k": list(range(40))}))
    return flow, Counter(dict.fromkeys(range(40), batches))


def counts_of(flow: Flow) -> Counter[int]:
    return Counter({row["k"]: row["count"] for row in flow.state("n")})


def was_read_ahead(flow: Flow) -> set[bool]:
    return {report.ahead for report in flow.router.done[-1].results.sources}


def test_rows_that_were_read_ahead_count_once(folder: Path) -> None:
    flow, expected = counted_flow(folder, MIN_BATCHES)
    for start in range(0, 60, 20):
        flow.comes_next(s=pa.table({"k": list(range(start, start + 30))}))
        flow.batch(s=pa.table({"k": [1, 2, 3]}))
        flow.batch()
        assert was_read_ahead(flow) == {True}
        expected += Counter([1, 2, 3, *range(start, start + 30)])
    assert counts_of(flow) == expected


def test_a_runs_first_batches_are_not_read_ahead(folder: Path) -> None:
    flow, _ = counted_flow(folder, MIN_BATCHES - 1)
    flow.comes_next(s=pa.table({"k": [1]}))
    flow.batch(s=pa.table({"k": [1]}))
    flow.batch()
    assert was_read_ahead(flow) == {False}


def other_routing(flow: Flow) -> None:
    flow.router.reroute({"n": random_table(np.random.default_rng(1), SLOTS)})


def other_executors(flow: Flow) -> None:
    flow.slots = flow.slots[1:]


def executors_restarted(flow: Flow) -> None:
    flow.host = "there"


def another_executor_dies(flow: Flow) -> None:
    flow.losses = [Loss(1, 0, returns=False)]


def other_rows(flow: Flow) -> None:
    flow._next = [flow._descriptors_of({"s": pa.table({"k": list(range(10))})})]


@pytest.mark.parametrize("change", [other_routing, other_executors, executors_restarted, another_executor_dies, other_rows])
@pytest.mark.parametrize("when", ["before it is read", "after it was read"])
def test_prefetch_is_discarded_when_the_batch_differs(folder: Path, change: Callable[[Flow], None], when: str) -> None:
    flow, expected = counted_flow(folder, MIN_BATCHES)
    if when == "before it is read":
        flow.meanwhile.append(lambda: change(flow))
    flow.comes_next(s=pa.table({"k": list(range(10))}))
    flow.batch(s=pa.table({"k": [1, 2, 3]}))
    if when == "after it was read":
        change(flow)
    flow.batch()
    assert counts_of(flow) == expected + Counter([1, 2, 3, *range(10)])
    known_in_time = change is other_routing and when == "before it is read"
    assert was_read_ahead(flow) == {known_in_time}
