"""State moves in portions on a real cluster: rows are still prefetched, and the counts are those of a plain count."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from streamtopology.jobs.checkpoint import Checkpoint

if TYPE_CHECKING:  # the plugin is imported by pytest, which then explains its assertions
    from support.topologies import Runner

from support.feeding import Feed
from support.manifests import counting, counts_in, files, manifest, memory_sink

pytest_plugins = ("support.topologies",)

# Bytes: of a portion, and the threshold of those whose state is pre-copied.
PORTION = AHEAD = 128


@pytest.mark.parametrize("threshold", ["1Gi", AHEAD], ids=["with the batches", "pre-copied"])
def test_state_moves_over_several_batches(runner: Runner, threshold: str | int) -> None:
    feed = Feed(runner.folder / "rows", 6_000)
    operator = counting("words", "simple", **{"with": {"costPerTuple": "10us"}})  # which moves most keys whenever it plans
    given = manifest(
        "portions",
        [files(feed.folder)],
        [operator],
        [memory_sink("portion-counts", "words")],
        trigger={},
        migration={"threshold": threshold, "portion": PORTION},
        rebalance={"interval": "1s", "tolerance": 0.02},
    )
    with runner.running(given) as running:
        history = running.history

        def moved() -> bool:
            """State has moved over several batches in the way that is looked at."""
            copied = {int(event.text.split()[1].rstrip(":")) for event in history.events if " are pre-copied" in event.text}
            return any(
                change.batches >= 3 and (change.epoch in copied) == (threshold == AHEAD) for change in history.reconfigurations
            )

        for first in (1, 1001, 2001, 3001):
            feed.until(running, moved, first, waiting=3, at_most=40)
        assert moved(), history.reconfigurations
        feed.files(running)
    under_way = [batch for batch in history.batches if batch.moving]
    ended_moving = len(list(itertools.takewhile(lambda batch: batch.moving, reversed(history.batches))))
    over_batches = {change.epoch: change.batches for change in history.reconfigurations}  # an epoch has one for each operator
    assert sum(batches - 1 for batches in over_batches.values()) == len(under_way) - ended_moving
    assert any(report.ahead for batch in under_way for report in batch.source_reports), "read while the former one was running"
    assert counts_in("portion-counts") == feed.expected
    checkpoint = Checkpoint.attach(str(runner.folder / "portions" / "checkpoint"))
    last = checkpoint.last_commit()
    assert last is not None
    over = last.epoch if last.switch is None else last.epoch - 1
    assert all(lease.epoch > over for lease in checkpoint.precopies.leases()), "nothing is held for a switch that is over"
