"""`streamtopology explain` and the page have one story of an epoch: its reason, its figures, and its gain."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import numpy as np
import pytest
from support.explained import KEY, LINES, REASON, TAKEN_BACK, WEIGHED, rerouted
from support.histories import HASHED, SLOTS, outcome, reconfiguration, run
from support.page_histories import recorded, served

from streamtopology.contract.epoch_story import EpochStory, story_lines
from streamtopology.contract.page import read_page
from streamtopology.contract.reasons import LinkMove
from streamtopology.contract.stats import read_stats
from streamtopology.contract.stats_question import Question
from streamtopology.jobs.admin.explain import as_text, as_value, divided_now, explain, story_of, with_gain
from streamtopology.jobs.admin.find_run import Where
from streamtopology.jobs.cli.main import main
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.local.control_socket import ControlServer
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.stats import Standing, build_stats
from streamtopology.routing.epochs.epoch import Epoch


def stats_of(history: History, standing: Standing = Standing(), **asked: Any) -> Any:  # noqa: B008 - immutable
    return read_stats(json.loads(json.dumps(build_stats(history, standing, Question(**asked)), allow_nan=False)))


def test_story_has_reason_figures_keys_and_gain():
    story = story_of(stats_of(rerouted()), None)
    assert story_lines(story) == LINES


def test_page_shows_the_same_lines():
    history = rerouted()
    (change,) = read_page(served(recorded(history))).reroutings
    assert change.story == story_lines(story_of(stats_of(history), 2)) == LINES


def test_hidden_keys_are_hashes_in_every_story():
    history = rerouted(hides_keys=True)
    assert f"key {KEY} of tail" in " ".join(story_lines(story_of(stats_of(history), None)))
    assert "N725MQ" not in json.dumps(build_stats(history))


def test_measured_gain_stands_beside_the_predicted_one():
    history = rerouted()
    history.gain_measured(2, 0.28)
    assert story_lines(story_of(stats_of(history), 2))[-1] == "gain: predicted 30 %, measured 28 %; helped as predicted; kept"


def test_epoch_that_lost_is_taken_back_by_the_next():
    history = rerouted()
    history.gain_measured(2, -0.1)
    history.rerouted(reconfiguration(epoch=3, batch=14, reason=TAKEN_BACK, predicted_gain=0.0))
    stats = stats_of(history)
    assert story_lines(story_of(stats, 2))[-1] == ("gain: predicted 30 %, measured -10 %; did not help; taken back by epoch 3")
    assert story_lines(story_of(stats, None)) == (
        "epoch 3, from batch 14 on: routed as before epoch 2, under which batches took 200 ms longer",
    )


def test_gain_of_an_operators_epoch_is_that_of_the_resource():
    """Its driver predicts and measures nothing: the figures of the prediction are in the epoch."""
    history = rerouted()
    history.rerouted(reconfiguration(epoch=4, batch=20, reason=REASON, predicted_gain=0.0))
    story = story_of(stats_of(history), 4)
    assert (story.predicted_gain, story.measured_gain) == (pytest.approx(0.3), None)
    assert with_gain(story, {4: 0.25}).measured_gain == 0.25
    assert with_gain(replace(story, measured_gain=0.1), {4: 0.25}).measured_gain == 0.1
    assert with_gain(story, {}) == story


def test_running_epoch_of_before_a_restart_is_known_by_its_own_figures():
    standing = Standing(routing=Epoch(7, {}, (), REASON))
    story = story_of(stats_of(run(3), standing), None)
    assert (story.epoch, story.batch) == (7, None)
    assert story_lines(story)[0] == "epoch 7: tail: imbalance 100.0%, planned 5.0%"
    assert "key N725MQ of tail" in " ".join(story_lines(story))


def test_controller_outside_gets_no_stories():
    assert stats_of(rerouted(), as_observed=True).epochs == ()


def test_epoch_that_nobody_remembers_is_wrong_use():
    stats = stats_of(rerouted())
    with pytest.raises(WrongUse, match="epoch 9 is not among those that the driver of 'flights' remembers: 2"):
        story_of(stats, 9)
    with pytest.raises(WrongUse, match="has not committed a batch yet"):
        story_of(stats_of(History("flights", SLOTS, {})), None)


def auto_history(hides_keys: bool = False) -> History:
    """Key 7 comes to all four instances of an operator that pours, and of another that does not."""
    history = History("flights", SLOTS, {"tail": "auto", "others": "mixed"}, hides_keys=hides_keys)
    history.batch_done(outcome(1, {"tail": HASHED, "others": HASHED}))
    history.rerouted(reconfiguration(epoch=2, batch=1, reason=REASON))
    return history


@pytest.mark.parametrize(("hides_keys", "name"), [(False, "N725MQ"), (True, f"{7:016x}")])
def test_divided_keys_are_named_with_the_number_of_instances(hides_keys: bool, name: str):
    history = auto_history(hides_keys)
    stats = stats_of(history)
    line = f"key {name} of tail, 4.00 k rows a batch, is divided over 4 instances"
    assert [key.text for key in stats.divided_keys] == [line]
    story = story_of(stats, None)
    assert as_text("flights", story, divided_now(stats, story)).endswith(f"\n  now {line}")
    value = as_value("flights", story, divided_now(stats, story))
    assert (value["divided_keys"][0]["instances"], value["text"][-1]) == (4, f"now {line}")
    assert not divided_now(stats, replace(story, epoch=1))
    assert not stats_of(history, since=-1, as_observed=True).divided_keys


def test_links_that_come_together_are_named():
    links = (LinkMove("first", "A", "second", "B", 900.0),)
    story = EpochStory(3, replace(REASON, weighed=replace(WEIGHED, keys=(), links=links, gain_seconds=-0.1, trust=1.0)))
    text = story_lines(story)
    assert "keys A of first and B of second, 900 rows a batch, come to one server" in text
    assert "loses 100 ms of a batch of 2.0 s, over 30 batches; costs 400 ms once" in text


class Driver(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path.startswith("/stats") else 404)
        self.end_headers()
        self.wfile.write(json.dumps(build_stats(rerouted())).encode())

    def log_message(self, format: str, *_: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Driver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("path", ["", "/", "/stats"])
def test_command_prints_the_story_of_an_address(path: str, address: str, capsys: pytest.CaptureFixture[str]):
    assert main(["explain", address + path]) == 0
    assert capsys.readouterr().out.splitlines() == [f"flights, {LINES[0]}", *(f"  {line}" for line in LINES[1:])]


def test_command_finds_a_topology_of_this_machine_and_prints_json(address: str, capsys: pytest.CaptureFixture[str]):
    name = f"explained-{os.getpid()}"
    with ControlServer(name, {"address": lambda: address}):
        assert explain(name, Where(here=True), 2, as_json=True) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["topology"], value["epoch"], value["predicted_gain"], value["text"]) == ("flights", 2, 0.3, list(LINES))
    assert value["reason"]["weighed"]["stages"][0]["planned_seconds"] == 0.7


def test_command_needs_a_name_on_a_cluster(capsys: pytest.CaptureFixture[str]):
    assert main(["explain", "-n", "streams"]) == 2
    assert "streamtopology explain NAME" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("label", "shown"), [("a\x1b[2Jb", "a\ufffd[2Jb"), ("line\nbreak", "line\ufffdbreak"), ("\ud800 alone", "\ufffd alone")]
)
def test_label_of_odd_characters_can_be_printed(label: str, shown: str):
    history = History("flights", SLOTS, {"tail": "mixed"})
    batch = outcome(0, {"tail": HASHED})
    history.batch_done(replace(batch, reports=tuple(replace(one, heavy_labels=(label,)) for one in batch.reports)))
    history.rerouted(reconfiguration(epoch=2, batch=8, reason=REASON))
    weighed = history.reconfigurations[0].reason.weighed
    assert weighed is not None
    assert weighed.keys[0].key == shown


def test_key_of_an_epoch_by_others_need_not_be_a_hash():
    history = rerouted()
    theirs = replace(REASON, weighed=replace(WEIGHED, keys=(replace(WEIGHED.keys[0], key="Berlin"),)))
    history.rerouted(reconfiguration(epoch=3, batch=9, reason=theirs))
    assert history.reconfigurations[-1].reason == theirs


def test_label_stays_a_hash_where_no_report_has_it():
    history = History("flights", SLOTS, {"tail": "mixed"})
    batch = outcome(0, {"tail": HASHED})
    light = tuple(replace(one, heavy_hashes=np.array([8], np.uint64)) for one in batch.reports)
    history.batch_done(replace(batch, reports=light))
    history.rerouted(reconfiguration(epoch=2, batch=8, reason=REASON))
    assert history.reconfigurations[0].reason == REASON
