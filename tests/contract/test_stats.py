"""`/stats` has one schema: an answer that 0.1.0 wrote is read, and what is written comes back."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamtopology.contract.reasons import Binding, BindingKind, EpochReason
from streamtopology.contract.stats import DriverRefusal, LiveExecutor, Rerouting, Slot, StatsFormatError, read_stats

# An answer of 0.1.0: two batches, a re-routing, a refused epoch. Never written again: a later version reads or refuses it.
STORED = Path(__file__).parent / "stats-1.json"


def stored() -> dict[str, Any]:
    return json.loads(STORED.read_text())


def test_answer_of_0_1_0_is_read() -> None:
    stats = read_stats(stored(), "flights")
    assert (stats.activity.phase, stats.generation, stats.epoch, stats.newest_epoch, stats.batch) == ("running", 4, 2, 2, 5)
    assert (stats.checkpoint, stats.bound_rows_per_second, stats.policies) == ("/data/checkpoint", 132_000.0, {"tail": "mixed"})
    assert stats.refused == DriverRefusal(7, 3, "epoch 7 was planned for generation 3, this run is of 4")
    assert stats.slots[0] == Slot(0, "large-0", "large", 1.0)
    assert stats.executors == (
        LiveExecutor("12", "small", "flights-small-0", 3, True),
        LiveExecutor("13", "old", None, None, False),
    )
    assert stats.reconfigurations == (
        Rerouting(2, 4, "tail", EpochReason.of_text("tail: imbalance 142.0%, planned 2.1%"), 412, 1_200_000, 0.9, 0.04, 0.38),
    )
    assert [batch.number for batch in stats.batches] == [4, 5]
    assert stats.batches[-1] == stats.last_batch
    assert [len(batch.reports) for batch in stats.batches] == [4, 4]
    assert (stats.slots_by_class, stats.admitted_by_class) == ({"large": 3, "small": 1}, {"small": 1})
    assert stats.cpu == (1.0, 1.0, 1.0, 0.3)


def test_stats_survive_a_round_trip() -> None:
    assert json.loads(json.dumps(read_stats(stored()).to_wire(), allow_nan=False)) == stored()


def test_constraint_of_batches_comes_back() -> None:
    bound = Binding(BindingKind.KEY, "tail", 1.27, 0.61, 0.1, instance=1, key="Berlin", combinable=True)
    answer = json.loads(json.dumps(replace(read_stats(stored()), binding=bound).to_wire(), allow_nan=False))
    assert read_stats(answer).binding == bound


def test_unknown_fields_are_passed_over_and_missing_ones_are_named() -> None:
    answer = stored()
    answer["weather"] = "fine"
    assert read_stats(answer) == read_stats(stored())
    for holder, place in (("", "executors"), ("slots[0].", "present"), ("batches[0].", "attempt")):
        within = {"": answer, "slots[0].": answer["slots"][0], "batches[0].": answer["batches"][0]}[holder]
        without = within.pop(place)
        with pytest.raises(StatsFormatError, match=rf"hold: {re.escape(holder)}{place} is missing"):
            read_stats(answer)
        within[place] = without


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
        ({"format": 2}, "this answer was written by a version of StreamTopology that writes format 2, not 1: .*one version"),
        ({"format": None}, "this answer was written by a version of StreamTopology before 0.1.0: this one cannot read it"),
        ({"topology": "other"}, "topology 'other', not of 'flights'"),
        ({"slots": [{}]}, r"do not hold: slots\[0\].index is missing"),
        ({"batch": "x"}, r"do not hold: (last_batch.number|batch) is 'x', not a whole number"),
        ({"policies": []}, r"do not hold: policies is \[\], not a JSON object"),
        ({"policies": {"tail": None}}, "do not hold: policies.tail is None, not a text"),
        ({"executors": None}, "do not hold: executors is None, not a list"),
        ({"binding": {"kind": "odd"}}, "do not hold: binding.kind is 'odd', not one of capacity, instance"),
        ({"rows_per_second": math.inf}, "do not hold: rows_per_second is inf, not a finite number"),
        ({"epoch": 2**63}, "do not hold: epoch is 9223372036854775808, not a whole number of at most 64 bits"),
        ({"slots": [{**stored()["slots"][0], "cpu": True}]}, r"do not hold: slots\[0\].cpu is True, not a finite number"),
    ],
)
def test_damaged_answer_is_refused_with_the_reason(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(StatsFormatError, match=why):
        read_stats({**stored(), **changed}, "flights")
