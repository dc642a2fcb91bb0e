"""Attempts by long-lived workers give what attempts in one process give, whatever is lost on the way."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.real_time import OnProcesses, on_processes
from support.stages import SLOTS, Flow, counted, counting, counts, random_table


@pytest.fixture
def processes() -> Iterator[OnProcesses]:
    with on_processes() as made:
        yield made


def keys_of(rng: np.random.Generator) -> list[int]:
    return rng.integers(0, 40, 300).tolist()


def table(keys: list[int]) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64())})


def test_counts_are_right_while_keys_move_and_batches_are_read_ahead(processes: OnProcesses, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    flow = Flow(tmp_path, counting(), runner=processes)
    flow.warm_up()
    batches = [keys_of(rng) for _ in range(6)]
    for number, keys in enumerate(batches):
        if number % 2 == 1:
            flow.router.reroute({"n": random_table(rng, SLOTS)})
        if number + 1 < len(batches):
            flow.comes_next(s=table(batches[number + 1]))
        flow.batch(**({} if number else {"s": table(keys)}))
    assert counts(flow) == counted(batches)


def test_a_killed_worker_is_replaced_and_nothing_is_lost(processes: OnProcesses, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    flow = Flow(tmp_path, counting(), runner=processes)
    batches = [keys_of(rng) for _ in range(SLOTS)]
    for number, keys in enumerate(batches):
        flow.batch(s=table(keys))
        processes.workers.kill(f"slot-{number}", signal.SIGKILL)
    assert counts(flow) == counted(batches)
