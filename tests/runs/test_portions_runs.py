"""State moves in portions on a real cluster: rows go on being read ahead, and the counts are those of a plain count."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from streamtopology.jobs.checkpoint import Checkpoint

if TYPE_CHECKING:  # the plugin is imported by pytest, which then explains its assertions
    from support.topologies import Runner

from support.manifests import counting, counts_in, files, manifest, memory_sink, write_rows

pytest_plugins = ("support.topologies",)
pytestmark = pytest.mark.spark

HALF = 14
"""Batches until the stream drifts, and as many after it."""


@pytest.mark.parametrize("threshold", ["1Gi", "1Ki"], ids=["with the batches", "copied ahead"])
def test_state_moves_over_several_batches(runner: Runner, threshold: str) -> None:
    rows = runner.folder / "rows"
    firsts = [1] * HALF + [1001] * HALF
    expected = sum((write_rows(rows, number, rows=6_000, first=first) for number, first in enumerate(firsts)), Counter[int]())
    operator = counting("words", "simple", **{"with": {"costPerTuple": "10us"}})  # which moves most keys whenever it plans
    history = runner.run(
        manifest(
            "portions", [files(rows)], [operator], [memory_sink("portion-counts", "words")],
            migration={"threshold": threshold, "portion": 128}, rebalance={"interval": "1s", "tolerance": 0.02},
        )
    )  # fmt: skip
    changes = [change for change in history.reconfigurations if change.operator == "words" and change.keys_moved]
    assert any(change.batches >= 3 for change in changes), changes
    under_way = [batch for batch in history.batches if batch.moving]
    ended_amid = len(list(itertools.takewhile(lambda batch: batch.moving, reversed(history.batches))))
    assert sum(change.batches - 1 for change in changes) == len(under_way) - ended_amid
    assert any(report.ahead for batch in under_way for report in batch.source_reports), "read while the one before was at work"
    assert counts_in("portion-counts") == expected
    checkpoint = Checkpoint.attach(str(runner.folder / "portions" / "checkpoint"))
    last = checkpoint.last_commit()
    assert last is not None
    over = last.epoch if last.switch is None else last.epoch - 1
    assert all(lease.epoch > over for lease in checkpoint.migrations.leases()), "nothing is held for a switch that is over"
