"""`report.json` has exactly the shape that other tools read, and its figures are what docs/reference/report.md defines."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.histories import CAPACITIES, HASHED, SLOTS, outcome, reconfiguration, run, sent_on, source_shares

from streamtopology.contract import formatting
from streamtopology.contract.stats import Messages
from streamtopology.jobs.observe.figures import (
    heaviest_operator,
    imbalance,
    imbalance_before_and_after,
    relative_loads,
    warm_throughput,
)
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.view.run_report import BASELINE, REROUTED, Check, Checked, build_report, summary_text

NUMBER, INTEGER, TEXT, TRUTH = (int, float), int, str, bool
MAYBE = (int, float, type(None))
INSTANCE = {"executor": TEXT, "class": TEXT, "rows": INTEGER, "busy_seconds": NUMBER, "capacity": MAYBE}
CHECK = {"rows_expected": INTEGER, "rows_seen": INTEGER, "lost": INTEGER, "duplicated": INTEGER, "equal": TRUTH}
SCHEMA = {
    "topology": TEXT,
    "batches": INTEGER,
    "rows": INTEGER,
    "seconds": NUMBER,
    "throughput": {
        "baseline": MAYBE,
        "rerouted": MAYBE,
        "rerouted_whole_run": MAYBE,
        "ratio": MAYBE,
        "speed": MAYBE,
        "unit": TEXT,
        "warmup_batches": INTEGER,
    },
    "capacity": {"bound": MAYBE, "reached": MAYBE, "offered": MAYBE},
    "waited": MAYBE,
    "batch": {"seconds": MAYBE, "working_seconds": MAYBE},
    "imbalance": {"operator": (str, type(None)), "before": MAYBE, "after": MAYBE},
    "operators": [{"name": TEXT, "policy": TEXT, "messages": {"count": INTEGER, "bytes": INTEGER}, "instances": [INSTANCE]}],
    "locality": [{"operator": TEXT, "to": TEXT, "before": MAYBE, "after": MAYBE}],
    "rerouting_count": INTEGER,
    "reconfigurations": [
        {
            "epoch": INTEGER,
            "batch": INTEGER,
            "operator": TEXT,
            "reason": TEXT,
            "keys_moved": INTEGER,
            "bytes_moved": INTEGER,
            "plan_seconds": NUMBER,
            "published_to_active_seconds": NUMBER,
            "predicted_gain": NUMBER,
            "batches": INTEGER,
            "measured_gain": MAYBE,
        }
    ],
    "check": CHECK,
    "checks": [{"run": TEXT, "operator": TEXT, **CHECK}],
}


def mismatches(value: object, schema: object, path: str = "report") -> list[str]:
    """The differences of `value` from the schema: keys missing or too many, wrong types."""
    if isinstance(schema, dict):
        if not isinstance(value, dict) or value.keys() != schema.keys():
            return [f"{path}: {value!r}"]
        return [wrong for key in schema for wrong in mismatches(value[key], schema[key], f"{path}.{key}")]
    if isinstance(schema, list):
        if not isinstance(value, list):
            return [f"{path}: {value!r}"]
        return [wrong for i, item in enumerate(value) for wrong in mismatches(item, schema[0], f"{path}[{i}]")]
    return [] if isinstance(value, schema) else [f"{path}: {value!r}"]  # type: ignore[arg-type]


def read_back(report: dict) -> dict:
    return json.loads(json.dumps(report, allow_nan=False))


EQUAL = Check(rows_expected=800_000, rows_seen=800_000, lost=0, duplicated=0, equal=True)
CHECKED = [Checked(run, operator, EQUAL) for run in (BASELINE, REROUTED) for operator in ("tail", "destination")]


def test_a_full_report_has_the_shape_of_the_design():
    rerouted = run(20, reroute_at=8, operators=("tail", "destination"), noise=0.05)
    report = build_report(rerouted, baseline=run(20, policy="fields"), bound=110_000.0, checks=CHECKED)
    assert mismatches(read_back(report), SCHEMA) == []
    assert [operator["name"] for operator in report["operators"]] == ["tail", "destination"]
    assert len(report["reconfigurations"]) == 1


@settings(max_examples=25)
@given(batches=st.integers(0, 12), reroute_at=st.none() | st.integers(0, 12), rows=st.sampled_from([0, 40_000]))
def test_any_run_has_a_report_and_a_summary(batches, reroute_at, rows):
    report = read_back(build_report(run(batches, reroute_at=reroute_at, rows=rows)))
    assert report["check"] is None
    assert mismatches(report, {**SCHEMA, "check": type(None)}) == []
    assert "flights" in summary_text(report, rerouted=True)


def test_throughput_leaves_out_the_first_three_batches_and_the_whole_run_does_not():
    history = History("flights", SLOTS, {"tail": "mixed"})
    for number, rows in enumerate((1, 1, 1, 70_000, 30_000)):
        history.batch_done(outcome(number, {"tail": HASHED}, rows=rows))
    seconds = [batch.seconds for batch in history.batches]
    figures = build_report(history)["throughput"]
    assert figures["rerouted"] == pytest.approx(100_000 / sum(seconds[3:]))
    assert figures["rerouted_whole_run"] == pytest.approx(100_003 / sum(seconds))
    assert figures["baseline"] is None
    assert figures["ratio"] is None


def test_ratio_and_share_of_the_bound_compare_the_throughput_after_warm_up():
    report = build_report(run(20, reroute_at=0), baseline=run(20), bound=132_000.0)
    figures = report["throughput"]
    assert figures["ratio"] == pytest.approx(figures["rerouted"] / figures["baseline"])
    assert figures["ratio"] > 1.5
    assert figures["speed"] == pytest.approx(1.0)
    slower = build_report(run(20, reroute_at=6, slower_from=6))
    assert round(slower["throughput"]["speed"], 2) == 0.33, "as the picture says"
    assert report["capacity"] == {"bound": 132_000.0, "reached": figures["rerouted"] / 132_000.0, "offered": None}


def test_imbalance_before_and_after_is_of_the_heaviest_operator():
    history = run(12, reroute_at=6, operators=("tail", "destination"))
    assert heaviest_operator(history) == "tail"
    before, after = imbalance_before_and_after(history)
    assert before == pytest.approx(median(imbalance(batch, "tail") for batch in history.batches[:6]))
    loads = [share / capacity for share, capacity in zip(HASHED, CAPACITIES, strict=True)]
    assert before == pytest.approx(max(loads) * sum(CAPACITIES) - 1, abs=1e-3)
    assert after == pytest.approx(0.0, abs=0.01)


def test_locality_is_that_before_the_first_rerouting_and_in_the_last_third():
    history = History("flights", SLOTS, {"tail": "locality"})
    for number, stayed in enumerate((2, 2, 4, 9, 8, 8)):
        history.batch_done(sent_on(number, stayed, messages={"tail": Messages("tail", 2, 10)}))
    history.rerouted(reconfiguration(batch=3))
    report = build_report(history)
    assert report["locality"] == [{"operator": "tail", "to": "next", "before": 0.2, "after": 0.8}]
    assert report["operators"][0]["messages"] == {"count": 12, "bytes": 60}


def test_imbalance_without_rerouting_is_the_same_before_and_after():
    before, after = imbalance_before_and_after(run(12))
    assert before == pytest.approx(after)


def test_relative_load_falls_back_to_busy_seconds_until_every_capacity_is_known():
    known = outcome(0, {"tail": HASHED})
    unknown = outcome(0, {"tail": HASHED}, capacities=None)
    assert dict(relative_loads(unknown, "tail")) == pytest.approx(dict(relative_loads(known, "tail")), rel=1e-3)


def test_rows_and_busy_seconds_add_up_over_the_run_and_capacity_is_the_newest():
    history = run(3)
    history.batch_done(outcome(3, {"tail": HASHED}, capacities=(1.0, 2.0, 3.0, 4.0)))
    instances = build_report(history)["operators"][0]["instances"]
    assert sum(instance["rows"] for instance in instances) == 4 * 40_000
    assert [instance["capacity"] for instance in instances] == [1.0, 2.0, 3.0, 4.0]
    assert [instance["executor"] for instance in instances] == ["large-0", "large-1", "large-2", "small-0"]
    assert instances[3]["busy_seconds"] == pytest.approx(4 * 40_000 * HASHED[3] / CAPACITIES[3])


def test_an_instance_that_never_had_a_capacity_estimate_has_none():
    history = History("flights", SLOTS, {"tail": "fields"})
    history.batch_done(outcome(0, {"tail": HASHED}, capacities=None))
    assert [i["capacity"] for i in build_report(history)["operators"][0]["instances"]] == [None] * 4


def test_the_summary_says_all_that_the_demo_promises():
    rerouted = run(20, reroute_at=8)
    rerouted.rerouted(reconfiguration(epoch=3, batch=15, keys_moved=88, published_to_active_seconds=0.3))
    text = summary_text(build_report(rerouted, baseline=run(20), bound=110_000.0, checks=CHECKED), rerouted=True)
    for promised in ("x", "of 110 k rows/s", "imbalance", "500 keys", "2.40 MB", "longest 900 ms", "0 lost", "equal"):
        assert promised in text


def test_a_small_share_of_the_bound_is_explained_by_the_fixed_cost_of_batches():
    small = build_report(run(20, rows=2_000), bound=132_000.0)
    assert small["batch"]["working_seconds"] < small["batch"]["seconds"] / 2
    text = summary_text(small, rerouted=False)
    assert re.search(r"fixed cost dominates: the rows take \d+ ms of a batch of \d+ ms", text)
    assert "maxFilesPerTrigger" in text
    large = summary_text(build_report(run(20), bound=132_000.0), rerouted=False)
    assert "fixed cost" not in large, "there the slowest instance decides"


def test_summary_says_how_many_batches_the_throughput_leaves_out():
    report = build_report(run(20))
    figures = report["throughput"]
    text = summary_text(report, rerouted=False)
    assert f"throughput                     {formatting.rate(figures['rerouted'])}" in text
    whole = formatting.rate(figures["rerouted_whole_run"])
    assert f"without the first 3 batches, in which code is compiled; with them {whole}" in text
    assert "without the first" not in summary_text(build_report(run(3)), rerouted=False), "so short a run counts as a whole"


def test_a_run_that_moved_nothing_is_not_called_rerouted():
    history = run(20)
    history.rerouted(reconfiguration(keys_moved=0, bytes_moved=0, predicted_gain=0.0))
    text = summary_text(build_report(history), rerouted=history.was_rerouted)
    assert "re-routed live" not in text
    assert "->" not in text
    assert re.search(r"imbalance of tail +142 %", text)


def test_each_epoch_says_of_every_stage_what_moved_and_why():
    history = run(20)
    history.rerouted(source_shares(epoch=2, batch=7))
    history.rerouted(replace(source_shares(epoch=2, batch=7), operator="tail", keys_moved=480, bytes_moved=912_000))
    history.rerouted(replace(source_shares(epoch=3, batch=9), operator="destination"))
    assert history.was_rerouted
    text = summary_text(build_report(history), rerouted=history.was_rerouted)
    assert re.search(r"re-routings +3 in 2 epochs, moved 480 keys", text)
    why = "(source: shares by measured capacity, imbalance 48.7%)"
    assert f"epoch 2 at batch 7: sources are read in other shares, tail moved 480 keys, 912 kB {why}" in text
    assert f"epoch 3 at batch 9: destination moved no keys {why}" in text


def test_a_higher_imbalance_after_rerouting_is_called_higher():
    report = build_report(run(20, reroute_at=8))
    report["imbalance"] |= {"before": 0.14, "after": 0.2}
    assert "14 % -> 20 %, higher than before" in summary_text(report, rerouted=True)
    report["imbalance"] |= {"before": 0.2, "after": 0.14}
    assert "higher" not in summary_text(report, rerouted=True)


def test_an_imbalance_that_grew_without_rerouting_is_not_hidden_by_the_median():
    report = build_report(run(20))
    report["imbalance"] |= {"before": 0.06, "after": 0.87}
    assert "imbalance of tail              6 % over the run, 87 % in its last third" in summary_text(report, rerouted=False)


def test_a_source_that_gives_no_more_is_named_as_the_limit():
    rate = warm_throughput(run(20))
    assert rate is not None
    text = summary_text(build_report(run(20), bound=3 * rate, offered=rate), rerouted=False)
    assert f"the sources make {formatting.rate(rate)}, and all of them were processed: more cannot be reached" in text
    text = summary_text(build_report(run(20), bound=3 * rate, offered=2 * rate), rerouted=False)
    assert "more cannot be reached" not in text


def test_waiting_for_rows_is_named_as_the_limit():
    history, at = run(0), 0.0
    for number in range(10):
        history.batch_done(outcome(number, {"tail": HASHED}, at=at))
        at = history.batches[-1].committed_at + history.batches[-1].seconds
    report = build_report(history, bound=1e6)
    assert report["waited"] == pytest.approx(0.5, abs=0.05)
    assert "in 50 % of the time no batch ran" in summary_text(report, rerouted=False)
    assert "no batch ran" not in summary_text(build_report(run(20), bound=1e6), rerouted=False)
    baseline = run(0)
    for batch in history.batches[:-1]:
        baseline.batch_done(replace(batch, committed_at=batch.committed_at + batch.seconds))
    assert build_report(history, baseline=baseline)["waited"] == pytest.approx(0.0, abs=0.05), "it ran in turns with the other"


def test_single_failed_check_shows_in_report_and_summary():
    failed = Check(rows_expected=10, rows_seen=11, lost=1, duplicated=2, equal=False)
    for number in range(4):
        checks = [replace(one, check=failed) if index == number else one for index, one in enumerate(CHECKED)]
        report = build_report(run(5), checks=checks)
        assert report["check"] == {
            "rows_expected": 2_400_010,
            "rows_seen": 2_400_011,
            "lost": 1,
            "duplicated": 2,
            "equal": False,
        }
        assert [one["equal"] for one in report["checks"]] == [index != number for index in range(4)]
        whole, *each = summary_text(report, rerouted=False).splitlines()[-5:]
        assert "NOT EQUAL" in whole
        assert "1 lost, 2 counted twice" in whole
        assert [("NOT EQUAL" in line) for line in each] == [index == number for index in range(4)]
    assert "fixed routing, tail" in each[0]
    assert "re-routed live, destination" in each[3]


def test_operators_without_a_policy_are_reported_after_those_of_the_topology():
    history = History("flights", SLOTS, {"tail": "mixed"})
    history.batch_done(outcome(0, {"merge": HASHED, "tail": HASHED}))
    assert [o["name"] for o in build_report(history)["operators"]] == ["tail", "merge"]


def test_rows_of_two_operators_are_kept_apart():
    history = run(4, operators=("tail", "destination"))
    rows = {o["name"]: sum(i["rows"] for i in o["instances"]) for o in build_report(history)["operators"]}
    assert rows == {"tail": 160_000, "destination": 160_000}


def test_instances_of_executors_that_came_or_went_are_listed_with_what_they_did() -> None:
    history = run(3)
    history.slots_are([*SLOTS[:3], replace(SLOTS[3], present=False)])
    history.batch_done(outcome(3, {"tail": HASHED[:3]}))
    listed = build_report(history)["operators"][0]["instances"]
    assert [entry["executor"] for entry in listed] == [slot.executor for slot in SLOTS]
    assert listed[3]["rows"] == round(3 * 40_000 * HASHED[3])
