"""The worked example of docs/run/watch.md is what a made-up stream without noise brings."""

from __future__ import annotations

import re
from pathlib import Path

from support.observed import Stream
from support.rerouted import Run

from streamtopology.contract.epoch_story import EpochStory
from streamtopology.jobs.admin.explain import as_text
from streamtopology.routing.control.controller import HORIZON_INTERVALS
from streamtopology.routing.load.key_label import with_labels
from streamtopology.topology import Rebalance

PAGE = (Path(__file__).parents[2] / "docs/run/watch.md").read_text()
SECTION = PAGE.split("## The story of an epoch\n")[1].split("\n## ")[0]


def test_worked_example_is_recomputed():
    run = Run(Stream(seed=4, noise=0.0)).go(40)
    batch, decision = run.reroutes[0]
    (outcome,) = (one for one in run.controller.outcomes if one.epoch == decision.epoch.number)
    weighed = decision.reason.weighed
    assert weighed is not None
    _, reports, _ = run.stream.batch(decision.epoch)
    story = EpochStory(
        epoch=decision.epoch.number,
        reason=with_labels(decision.reason, reports),
        batch=batch + 1,
        predicted_gain=weighed.gain_seconds / weighed.batch_seconds,
        measured_gain=outcome.measured_gain_seconds / outcome.batch_seconds_before,
    )
    (example,) = re.findall(r"^```\n(.*?)\n```$", SECTION, re.MULTILINE | re.DOTALL)
    assert example == as_text("flights", story)


def test_sum_of_the_example_is_that_of_its_stages():
    kept, planned = (
        [int(found) for found in re.findall(pattern, SECTION)]
        for pattern in (r"kept as it was (\d+) ms", r"(?:another table|other shares) (\d+) ms")
    )
    (saved,) = re.findall(r"saves (\d+) ms", SECTION)
    assert sum(kept) - sum(planned) == int(saved)
    (batch_ms, batches), horizon = re.findall(r"batch of (\d+) ms, over (\d+) batches", SECTION)[0], "six intervals (60 s)"
    assert horizon in SECTION
    assert HORIZON_INTERVALS * Rebalance().interval_seconds == 60
    assert round(60_000 / int(batch_ms)) == int(batches)
    assert f"{kept[0]} - {planned[0]} + {kept[1]} - {planned[1]} = {saved} ms" in SECTION
