"""`/stats` has one schema: an answer that an earlier release wrote is read, and what is written comes back."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamtopology.contract.reasons import Binding, BindingKind, EpochCause, EpochReason, RemedyKind, StageReason
from streamtopology.contract.stats import Executor, Reconfiguration, Refusal, Slot, StatsFormatError, read_stats

STORED = Path(__file__).parent / "stats-2.json"
"""Written by a driver of before the schema moved here: two batches, a re-routing, a refused epoch."""


def stored() -> dict[str, Any]:
    return json.loads(STORED.read_text())


def test_answer_of_the_release_before_is_read() -> None:
    stats = read_stats(stored(), "flights")
    assert (stats.activity.phase, stats.generation, stats.epoch, stats.newest_epoch, stats.batch) == ("running", 4, 2, 2, 5)
    assert (stats.checkpoint, stats.bound_rows_per_second, stats.policies) == ("/data/checkpoint", 132_000.0, {"tail": "mixed"})
    assert stats.refused == Refusal(7, 3, "epoch 7 was planned for generation 3, this run is of 4")
    assert stats.slots[0] == Slot(0, "large-0", "large", 1.0)
    assert stats.executors == (
        Executor("12", "small", "flights-small-0", 3, True),
        Executor("13", "old", None, None, False),
    )
    assert stats.reconfigurations == (
        Reconfiguration(2, 4, "tail", "tail: imbalance 142.0%, planned 2.1%", 412, 1_200_000, 0.9, 0.04, 0.38),
    )
    assert [batch.number for batch in stats.batches] == [4, 5]
    assert stats.batches[-1] == stats.last_batch
    assert [len(batch.reports) for batch in stats.batches] == [4, 4]
    assert (stats.slots_by_class, stats.admitted_by_class) == ({"large": 3, "small": 1}, {"small": 1})
    assert stats.cpu == (1.0, 1.0, 1.0, 0.3)


def test_answer_of_the_version_before_has_defaults_for_what_it_does_not_say() -> None:
    late = {"generation", "newest_epoch", "refused", "bound_rows_per_second", "checkpoint", "executors", "reconfigurations",
            "batches"}  # fmt: skip
    answer = {name: value for name, value in stored().items() if name not in late}
    stats = read_stats({**answer, "version": 1}, "flights")
    assert (stats.batch, stats.slots_by_class, stats.batches) == (5, {"large": 3, "small": 1}, ())
    assert not stats.settled, "so nothing is decided on it"


def test_stats_survive_a_round_trip() -> None:
    late = {"lag_rows": 1200, "idle_seconds": 4.5}
    assert json.loads(json.dumps(read_stats(stored() | late).to_wire(), allow_nan=False)) == stored() | late


def test_constraint_of_batches_comes_back_and_one_of_a_newer_release_is_none() -> None:
    bound = Binding(BindingKind.KEY, "tail", 1.27, 0.61, 0.1, instance=1, key="Berlin", combinable=True)
    answer = json.loads(json.dumps(replace(read_stats(stored()), binding=bound).to_wire(), allow_nan=False))
    assert read_stats(answer).binding == bound
    assert read_stats({**answer, "binding": {**answer["binding"], "kind": "network", "link": 3}}).binding is None
    del answer["binding"]["combinable"]
    assert read_stats(answer).binding == replace(bound, combinable=None)


def test_reason_that_an_older_driver_passes_on_unread_is_a_text_for_people() -> None:
    answer, reason = stored(), EpochReason(EpochCause.REBALANCED, (StageReason(RemedyKind.TABLE, "tail", 1.42, 0.021),))
    answer["reconfigurations"][0]["reason"] = reason.to_wire()
    assert read_stats(answer).reconfigurations[0].reason == "tail: imbalance 142.0%, planned 2.1%"


def test_unknown_fields_are_passed_over_and_missing_late_ones_have_defaults() -> None:
    answer = stored()
    answer["weather"] = "fine"
    for batch in (answer["last_batch"], *answer["batches"]):
        for late in ("moving", "messages", "locality", "attempt"):
            del batch[late]
    for slot in answer["slots"]:
        del slot["present"]
    del answer["executors"], answer["bound_rows_per_second"], answer["reconfigurations"][0]["batches"]
    stats = read_stats(answer)
    assert [slot.present for slot in stats.slots] == [True] * 4
    assert (stats.executors, stats.bound_rows_per_second, stats.reconfigurations[0].batches) == ((), None, 1)
    assert stats.last_batch is not None
    assert (stats.last_batch.moving, stats.last_batch.attempt, stats.last_batch.messages) == (False, 1, ())


def test_without_reports_keeps_what_decisions_read() -> None:
    stats = read_stats(stored())
    small = stats.without_reports()
    assert small.routing is None
    assert [batch.reports for batch in small.batches] == [(), ()]
    assert (small.imbalance, small.settled, small.slots) == (stats.imbalance, stats.settled, stats.slots)
    assert [batch.began_at for batch in small.batches] == [batch.began_at for batch in stats.batches]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"version": 3}, "version 3, this program reads 1 and 2: let the program be of the driver's release, or of the next"),
        ({"version": 0}, "version 0, this program reads 1 and 2"),
        ({"topology": "other"}, "topology 'other', not of 'flights'"),
        ({"slots": [{}]}, "lack 'class'"),
        ({"batch": "x"}, "do not hold: invalid literal"),
        ({"policies": []}, "do not hold"),
        ({"rows_per_second": math.inf}, "do not hold: inf is no finite number"),
        ({"epoch": 2**63}, "do not hold: a number has more than 64 bits"),
    ],
)
def test_damaged_answer_is_refused_with_the_reason(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(StatsFormatError, match=why):
        read_stats({**stored(), **changed}, "flights")
