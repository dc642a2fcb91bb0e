"""The value behind the page: its schema, its figures for a known run, and its size at 1,000 executors."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from support.histories import SLOTS, Clock, outcome, reconfiguration, run
from support.page_histories import HOSTILE, NOW, flights, many, many_batch, played, recorded, served, standing_of

from streamtopology.contract import page as contract
from streamtopology.contract.environment import HIDE_KEYS
from streamtopology.contract.formatting import clipped
from streamtopology.contract.page import PageFormatError, VerdictState, read_page
from streamtopology.contract.phases import Phase
from streamtopology.contract.reason_text import describe
from streamtopology.contract.reasons import SOURCE, EpochCause, EpochReason, Hold, HoldReason, RemedyKind, StageReason
from streamtopology.contract.stats import NumberedBatch, RunFigures, Slot
from streamtopology.contract.stats_question import Question
from streamtopology.contract.wire_values import wire_name
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.stats import Standing, build_stats
from streamtopology.jobs.view.formatting import rate_text
from streamtopology.jobs.view.hidden_keys import hides_keys
from streamtopology.jobs.view.page.state import MOST_BATCHES, MOST_BYTES, MOST_LISTED, ONE_BY_ONE
from streamtopology.routing.epochs.epoch import Epoch, Route
from streamtopology.routing.table.table import BUCKETS, RoutingTable

REFERENCE = Path(__file__).parents[2] / "docs/reference/page.md"


def test_page_value_survives_a_round_trip():
    _, record = played(12, reroute_at=6, topology=flights())
    for value in (served(record, standing=standing_of()), served(recorded(many(80, 4, slow=3, keys=HOSTILE)))):
        assert read_page(value).to_wire() == value


def test_answers_that_are_no_page_are_refused():
    value = served(recorded(run(2)))
    with pytest.raises(PageFormatError, match="not a JSON object"):
        read_page([])
    with pytest.raises(PageFormatError, match=r"this page was written by .* that writes format 2, not 1"):
        read_page({**value, "format": 2})
    with pytest.raises(PageFormatError, match="does not hold: verdict is missing"):
        read_page({name: given for name, given in value.items() if name != "verdict"})
    glad = {"state": "glad", "text": ""}
    for wrong in ({"batch": "five"}, {"executors": [7]}, {"verdict": glad}, {"now": True}, {"rows_per_second": float("nan")}):
        with pytest.raises(PageFormatError, match="does not hold"):
            read_page({**value, **wrong})


def test_reader_passes_over_fields_of_a_newer_driver():
    value = served(recorded(run(2)))
    newer = {**value, "weather": "fine", "last_batch": {**value["last_batch"], "mood": 1}}
    assert read_page(newer) == read_page(value)


def test_reference_lists_every_field():
    values = [kind for kind in vars(contract).values() if isinstance(kind, type) and is_dataclass(kind)]
    values = [kind for kind in values if kind not in (NumberedBatch, RunFigures)]  # bases alone
    sections = dict(re.findall(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", REFERENCE.read_text(), re.MULTILINE | re.DOTALL))
    assert sections.keys() == {kind.__name__ for kind in values}
    for kind in values:
        listed = re.findall(r"^\| `(\w+)` \|", sections[kind.__name__], re.MULTILINE)
        names = [wire_name(field) for field in fields(kind)]
        assert listed == (["format", *names] if kind is contract.Page else names), kind.__name__


def test_page_of_a_slow_executor_shows_load_reason_and_effect():
    history, record = played(20, reroute_at=12, topology=flights())
    history.gain_measured(2, 0.35)
    page = read_page(served(record, standing=standing_of()))
    assert (page.run, page.now, page.mode, page.tolerance) == ("run-1", NOW, "Auto", 0.08)
    assert (page.verdict.state, page.verdict.since_batch) == (VerdictState.GOOD, 12)
    assert [executor.name for executor in page.executors] == ["large-0", "large-1", "large-2", "small-0"]
    small = page.executors[3]
    assert (small.class_name, small.load, small.speed) == ("small", pytest.approx(1, abs=0.03), pytest.approx(0.3, abs=0.02))
    (change,) = page.reroutings
    assert (change.batch, change.at, change.helped) == (
        12,
        pytest.approx(history.batches[12].committed_at),
        "helped as predicted",
    )
    assert re.fullmatch(
        r"small-0 needed \d+ ms for its part of a batch, 2\.\d × its fair share, and large-2 only \d+ ms; "
        "so 412 keys of tail changed owner.",
        change.why,
    )
    assert change.cost == "1.20 MB of state moved with one batch; planned in 40 ms, in force 900 ms later."
    loads = [batch.loads for batch in page.batches]
    assert loads[5] is not None
    assert loads[5]["3"] > 2
    assert loads[15] is not None
    assert loads[15]["3"] == pytest.approx(1, abs=0.1)


def test_page_of_a_source_that_spark_reads_has_no_other_executors():
    history = run(0)
    record = recorded(history, flights())
    for batch in run(12).batches:
        idle = replace(batch.source_reports[0], rows=0, busy_seconds=1e-5)
        anywhere = [replace(one, slot=-1) for one in batch.source_reports]
        history.batch_done(replace(batch, source_reports=(idle, *anywhere)))
    history.rerouted(reconfiguration(epoch=2, batch=12))
    page = read_page(served(record, standing=standing_of()))
    assert page.stages == ("tail",)
    assert all(batch.loads is not None and set(batch.loads) == {"0", "1", "2", "3"} for batch in page.batches)
    assert [executor.load for executor in page.executors] == [executor.loads["tail"] for executor in page.executors]
    assert page.reroutings[0].why.count("slot") == 0
    assert page.verdict.text == "small-0 holds the others up: 2.4 × its fair share"
    assert sum(node.busy_share or 0 for node in page.nodes) < 1, "reading is work, too"


def test_batch_that_runs_is_timed_until_it_is_committed():
    clock = Clock()
    history = History("flights", SLOTS, {"tail": "mixed"}, clock)
    history.enter(Phase.RUNNING)
    record = recorded(history)
    history.batch_begins(0, None)
    clock.now = 95.04
    assert (served(record)["running_seconds"], served(record)["idle_seconds"]) == (95.0, None)
    history.batch_done(outcome(0, {"tail": (0.25,) * 4}))
    clock.now = 97.0
    assert (served(record)["running_seconds"], served(record)["idle_seconds"]) == (None, pytest.approx(1.96))


def test_run_is_not_idle_while_input_waits():
    clock = Clock()
    history = History("flights", SLOTS, {"tail": "mixed"}, clock)
    history.enter(Phase.RUNNING)
    record = recorded(history)
    history.input_waits(True)
    clock.now = 28.0
    assert served(record)["idle_seconds"] is None
    assert not rate_text(history).startswith("no new rows")
    history.batch_begins(0, None)
    history.batch_done(outcome(0, {"tail": (0.25,) * 4}))
    clock.now = 60.0
    assert served(record)["idle_seconds"] == 32.0
    assert rate_text(history) == "no new rows for 32 s"


def test_events_are_in_the_order_in_which_they_happened():
    history = run(2)
    for number in range(30):
        history.event(NOW + number, 1, f"event {number}")
    history.event(NOW + 27.5, 1, "noted late")
    texts = [event.text for event in read_page(served(recorded(history))).events]
    assert texts == [*(f"event {number}" for number in range(21, 28)), "noted late", "event 28", "event 29"]


def test_reason_names_the_executor_whose_speed_changed():
    history = run(0)
    record = recorded(history)
    for number in range(20):
        batch = outcome(number, {"tail": (0.303, 0.303, 0.303, 0.091)})
        if number >= 12:
            slow = (replace(one, busy_seconds=one.busy_seconds * 4) if one.slot == 3 else one for one in batch.reports)
            batch = replace(batch, reports=tuple(slow))
        history.batch_done(batch)
    history.rerouted(reconfiguration(epoch=2, batch=20))
    (change,) = read_page(served(record)).reroutings
    assert change.why.startswith("small-0 had fallen to 25 % of its speed; small-0 needed")


def test_epoch_of_another_cause_keeps_its_own_reason():
    history = run(8)
    record = recorded(history)
    applied = EpochReason(EpochCause.APPLIED, changes=("replicas of large: 3 to 4",))
    history.rerouted(reconfiguration(epoch=2, batch=8, operator=SOURCE, reason=applied, predicted_gain=0.0))
    (change,) = read_page(served(record)).reroutings
    assert (change.why, change.helped) == ("Replicas of large: 3 to 4.", "")


def test_parts_of_one_epoch_are_one_rerouting():
    history = run(8)
    record = recorded(history)
    for operator, keys in ((SOURCE, 0), ("next", 3), ("tail", 4)):
        history.rerouted(reconfiguration(epoch=2, batch=8, operator=operator, keys_moved=keys, bytes_moved=keys))
    (change,) = read_page(served(record)).reroutings
    assert (change.operators, change.keys_moved, change.bytes_moved) == (("next", "tail"), 7, 7)
    assert change.why.endswith("so 7 keys of next and tail changed owner.")


def test_graph_has_keys_figures_and_the_limiting_operator():
    history, record = played(6, topology=flights())
    history.batch_done(replace(outcome(6, {"tail": (0.25,) * 4}), rows_out={"totals": 20_000}))
    page = read_page(served(record, standing=standing_of()))
    nodes = {node.name: node for node in page.nodes}
    assert [(node.name, node.kind, node.format) for node in page.nodes] == [
        ("flights", "source", "parquet"),
        ("tail", "operator", None),
        ("totals", "sink", "parquet"),
    ]
    assert (nodes["tail"].policy, nodes["tail"].instances, nodes["tail"].limits) == ("mixed", 4, True)
    assert nodes["tail"].state_keys == sum(report.state_keys for report in history.batches[-1].reports)
    into, out = page.edges
    assert (into.from_node, into.to_node, into.key) == ("flights", "tail", ("tail",))
    assert page.rows_per_second is not None
    assert into.rows_per_second == pytest.approx(page.rows_per_second, rel=0.01)
    assert (out.from_node, out.to_node, out.key) == ("tail", "totals", ())
    assert out.rows_per_second == pytest.approx(page.rows_per_second / 2, rel=0.01)


def test_heavy_keys_have_their_owners_and_place():
    history, record = played(3)
    table = RoutingTable(np.array([7], np.uint64), np.array([3], np.int32), np.zeros(BUCKETS, np.int32))
    epoch = Epoch(1, {"tail": Route("mixed", table, (0, 1, 2, 3))}, (), EpochReason(EpochCause.FIRST))
    page = read_page(served(record, standing=standing_of(epoch)))
    (key,) = page.keys
    assert (key.operator, key.hash, key.label, key.entry, key.owned_by) == ("tail", f"{7:016x}", "N725MQ", True, 4)
    assert key.share == pytest.approx(0.1, rel=0.01)
    assert key.owners[0].executor == "large-0"
    assert sum(owner.share for owner in key.owners) == pytest.approx(1, rel=0.01)
    assert page.executors[3].heaviest is not None
    assert (page.keys_of[0].operator, page.keys_of[0].top) == ("tail", 1)
    assert len(history.batches) == 3


def test_hostile_keys_are_passed_on_as_text_of_bounded_length():
    page = read_page(served(recorded(many(3, 3, keys=HOSTILE))))
    labels = {key.label for key in page.keys}
    assert labels <= {clipped(label, contract.MOST_LABEL) for label in HOSTILE}
    assert max(map(len, labels)) <= contract.MOST_LABEL


def test_page_before_the_first_batch_has_the_phase():
    history = History("flights", SLOTS, {"tail": "mixed"})
    record = recorded(history)
    history.enter(Phase.STARTING, "starting executors 2/4")
    page = read_page(served(record))
    assert (str(page.activity), page.verdict.state) == ("starting executors 2/4", VerdictState.WAIT)
    assert (page.batch, page.last_batch, page.batches, page.executors[0].load) == (None, None, (), None)


def test_page_before_the_executors_are_known_has_the_phase():
    page = read_page(served(recorded(History("flights", (), {}))))
    assert (page.executors, page.nodes, page.verdict.state) == ((), (), VerdictState.WAIT)


def test_only_newer_batches_are_sent_and_all_to_a_reader_of_another_run():
    history, record = played(6)
    assert [batch.number for batch in read_page(served(record, since=3)).batches] == [4, 5]
    assert [batch.number for batch in read_page(served(record, since=5)).batches] == []
    assert len(read_page(served(record, since=900)).batches) == len(history.batches)


def test_record_keeps_more_batches_than_one_asks_for_at_once():
    history = run(0)
    record = recorded(history)
    for number in range(MOST_BATCHES + 20):
        history.batch_done(replace(outcome(0, {"tail": (0.25,) * 4}), number=number))
    batches = read_page(served(record)).batches
    assert [batch.number for batch in (batches[0], batches[-1])] == [20, MOST_BATCHES + 19]


def test_executor_that_is_gone_is_not_listed():
    history = run(6)
    record = recorded(history)
    history.slots_are([*SLOTS[:3], replace(SLOTS[3], present=False)])
    page = read_page(served(record))
    assert [executor.name for executor in page.executors] == ["large-0", "large-1", "large-2"]
    assert {one.name: one.executors for one in page.classes} == {"large": 3}


def test_verdict_of_the_record_outlives_the_batches_of_the_history():
    history = run(0)
    record = recorded(history)
    for number in range(1100):
        history.batch_done(replace(outcome(0, {"tail": (0.303, 0.303, 0.303, 0.091)}), number=number))
    assert read_page(served(record)).verdict.since_batch == 2


@pytest.mark.parametrize("executors", [ONE_BY_ONE, 1000])
def test_page_of_many_executors_keeps_its_size(executors: int):
    stages = ("first", "second", "third")
    slots = tuple(Slot(n, f"large-{n}", f"class-{n % 4}", 1.0) for n in range(executors))
    history = History("flights", slots, dict.fromkeys(stages, "mixed"))
    record = recorded(history)
    history.enter(Phase.RUNNING)
    keys = [f"{n} {'日' * 400}" for n in range(20)]
    made = many_batch(0, executors, slow=3, stages=stages, keys=keys)
    light = many_batch(0, min(executors, 2 * ONE_BY_ONE), 3, stages[:1])
    for number in range(MOST_BATCHES):
        history.batch_done(replace(light if number < MOST_BATCHES - 5 else made, number=number))
    for epoch in range(60):
        history.rerouted(reconfiguration(epoch=epoch, batch=MOST_BATCHES))
    for number in range(20):
        history.event(NOW, number, "x" * 5000)
    body = json.dumps(record.page(Standing(bound=1.0), -1), separators=(",", ":")).encode()
    page = read_page(json.loads(body))
    assert len(body) <= MOST_BYTES
    assert len(gzip.compress(body, 1)) <= MOST_BYTES / 4
    if executors > ONE_BY_ONE:
        assert len(page.executors) == MOST_LISTED
        assert {executor.slot for executor in page.executors[:3]} == {997, 998, 999}
        assert page.distribution is not None
        assert sum(map(sum, page.distribution.classes.values())) == page.distribution.total == executors
        assert page.distribution.over == 3
        assert page.batches[-1].loads is None
        assert page.batches[-1].spread is not None
    else:
        assert len(page.executors) == executors
        assert page.distribution is None


def test_page_shows_what_recommend_would_do_until_it_is_judged_again():
    history, record = played(20, topology=flights())
    assert served(record)["recommended"] is None
    advised = EpochReason(EpochCause.REBALANCED, (StageReason(RemedyKind.TABLE, "tail", 1.4, 0.02),))
    history.judged(Hold(HoldReason.NOT_DUE, due_seconds=1.0))
    history.judged(advised)
    history.judged(Hold(HoldReason.NOT_DUE, due_seconds=1.0))
    page = served(record)
    assert (page["recommended"], page["judgement"]) == (describe(advised), None)
    history.judged(Hold(HoldReason.NO_BETTER_PLAN, stages=("tail",)))
    page = served(record)
    assert page["recommended"] is None
    assert "no plan is noticeably better" in page["judgement"]
    history.judged(advised)
    history.judged(None)
    assert served(record)["recommended"] is None


def test_page_has_lag_by_source_and_the_watermark():
    topology = flights()
    record = recorded(run(3), topology)
    page = served(record, standing=Standing(lag={"flights": 1200}, watermark=1_700_000_000.5))
    assert [node["lag_rows"] for node in page["nodes"]] == [1200, None, None]
    assert (page["lag_rows"], page["watermark"]) == (1200, 1_700_000_000.5)
    unknown = Standing(lag={"flights": 7, "other": None})
    assert (unknown.lag_rows, Standing().lag_rows, Standing(lag={"a": 0}).lag_rows) == (None, None, 0)


def test_hidden_keys_are_in_no_answer():
    shown, history = many(4, 3, slow=1, keys=HOSTILE), History("flights", SLOTS, {"tail": "mixed"}, hides_keys=True)
    for batch in shown.batches:
        history.batch_done(batch)
    answers = json.dumps([served(recorded(history)), build_stats(history, Standing(), Question(since=-1))])
    labels = [label for label in HOSTILE if len(label) > 4]
    assert not [label for label in labels if json.dumps(label)[1:-1] in answers]
    assert [key["label"] == key["hash"] for key in served(recorded(history))["keys"]] == [True] * 12
    assert {key["label"] for key in served(recorded(shown))["keys"]} & set(HOSTILE), "shown without the switch"


def test_switch_that_hides_keys_is_true_or_false():
    assert [hides_keys(given) for given in ({}, {HIDE_KEYS: "false"}, {HIDE_KEYS: "true"})] == [False, False, True]
    with pytest.raises(WrongUse, match="STREAMTOPOLOGY_HIDE_KEYS='yes': expected true or false"):
        hides_keys({HIDE_KEYS: "yes"})
