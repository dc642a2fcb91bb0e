"""The page in a real browser, over made-up runs: its words, hands and eyes of all kinds, hostile texts, lost drivers."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry
from support.explained import LINES
from support.explained import rerouted as explained
from support.page_histories import HOSTILE, NOW, flights, many, played, recorded, standing_of

from streamtopology.contract.page import PageCondition
from streamtopology.contract.reasons import EpochCause, EpochReason, RemedyKind, StageReason
from streamtopology.contract.stats import BatchSteps
from streamtopology.contract.wire_values import to_wire
from streamtopology.jobs.admin.ask_cluster import Unreachable
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.stats import Standing, build_stats
from streamtopology.jobs.view.http_server import PageServer, StatusServer
from streamtopology.jobs.view.page.record import PageRecord

if TYPE_CHECKING:  # the plugins are imported by pytest, which then explains their assertions
    from support.browser import Tab

pytest_plugins = ("support.browser",)
pytestmark = pytest.mark.timeout(300)

OpenTab = Callable[..., "Tab"]


@contextmanager
def served(record: PageRecord, history: History, port: int = 0) -> Iterator[StatusServer]:
    """A status server of this record, at the same port again if one is given."""
    with StatusServer(
        CollectorRegistry(),
        lambda asked: build_stats(history, asked=asked),
        lambda since: record.page(standing_of(), since),
        history.is_ready,
        port=port,
    ) as server:
        yield server


def address(server: StatusServer) -> str:
    return f"http://127.0.0.1:{server.port}/"


@pytest.fixture(scope="module")
def rerouted() -> Iterator[StatusServer]:
    """A run whose small executor is slow until the re-routing at batch 20."""
    history, record = played(40, reroute_at=20, topology=flights())
    with served(record, history) as server:
        yield server


@pytest.fixture(scope="module")
def slow() -> Iterator[StatusServer]:
    """A run whose small executor is slow to its end."""
    history, record = played(30, topology=flights())
    with served(record, history) as server:
        yield server


@pytest.fixture(scope="module")
def thousand() -> Iterator[StatusServer]:
    history = many(1000, 30, slow=3, keys=("a", "b"))
    with served(recorded(history), history) as server:
        yield server


def test_slow_executor_is_named_by_the_first_screen(slow: StatusServer, open_tab: OpenTab) -> None:
    tab = open_tab(address(slow))
    assert re.search(r"small-0 .*fair share", tab.text("#executors-summary"))
    assert "small-0" in tab.text(".verdict")
    assert tab.page.title().startswith("flights: ")
    assert tab.page.evaluate("document.querySelector('#executors').getBoundingClientRect().top") < 900


def test_rerouting_has_its_mark_reason_and_gain(rerouted: StatusServer, open_tab: OpenTab) -> None:
    tab = open_tab(address(rerouted))
    card = tab.text("#reroutings .card")
    assert "batch 20" in card
    assert "small-0" in card
    assert "predicted" in card
    mark = tab.page.locator(".flag")
    mark.focus()
    tab.page.wait_for_selector("#tip:not([hidden])")
    assert "small-0" in tab.text("#tip")
    tab.page.keyboard.press("Escape")
    tab.page.wait_for_selector("#tip[hidden]", state="attached")


def test_story_of_a_rerouting_opens_and_stays_open(open_tab: OpenTab) -> None:
    history = explained()
    with served(recorded(history, flights()), history) as server:
        tab = open_tab(address(server), bypass_csp=True)
        button = tab.page.locator("#reroutings .story button")
        assert button.get_attribute("aria-expanded") == "false"
        button.click()
        tab.page.wait_for_selector("#reroutings .story li")
        history.gain_measured(2, 0.28)
        tab.page.wait_for_function("document.querySelector('#reroutings .story').textContent.includes('measured 28 %')")
        lines = tab.page.locator("#reroutings .story li").all_inner_texts()
        assert lines == [*LINES[:-1], "gain: predicted 30 %, measured 28 %; helped as predicted; kept"]
        assert tab.violations() == []
        tab.page.close()


@pytest.mark.parametrize("width", [360, 414, 768, 1024, 1280, 1600, 2200])
@pytest.mark.parametrize("run_of", ["slow", "rerouted", "thousand"])
def test_page_fits_every_window(run_of: str, width: int, request: pytest.FixtureRequest, open_tab: OpenTab) -> None:
    tab = open_tab(address(request.getfixturevalue(run_of)), width=width)
    assert tab.overflows() <= 0


@pytest.mark.parametrize("run_of", ["slow", "rerouted", "thousand"])
@pytest.mark.parametrize("emulated", [{"color_scheme": "light"}, {"color_scheme": "dark"}, {"forced_colors": "active"}])
def test_page_has_no_barrier_that_axe_finds(
    run_of: str, emulated: dict[str, str], request: pytest.FixtureRequest, open_tab: OpenTab
) -> None:
    tab = open_tab(address(request.getfixturevalue(run_of)), bypass_csp=True, **emulated)
    assert tab.violations() == []


def test_page_stands_still_for_those_who_ask_for_it(slow: StatusServer, open_tab: OpenTab) -> None:
    tab = open_tab(address(slow), reduced_motion="reduce")
    moving = """[...document.querySelectorAll('*')].filter((at) => {
        const style = getComputedStyle(at);
        const durations = `${style.transitionDuration}, ${style.animationDuration}`.split(', ');
        return durations.some((one) => parseFloat(one));
    }).map((at) => at.outerHTML)"""
    assert tab.page.evaluate(moving) == []


def test_keyboard_reaches_timeline_marks_and_stages(rerouted: StatusServer, open_tab: OpenTab) -> None:
    tab = open_tab(address(rerouted))
    reached: list[str] = []
    for _ in range(30):
        tab.page.keyboard.press("Tab")
        at = "document.activeElement"
        reached.append(tab.page.evaluate(f"{at}.dataset.act ?? {at}.className"))
        if reached[-1] == "cursor" and "moved" not in reached:
            tab.page.keyboard.press("ArrowLeft")
            tab.wait("() => document.activeElement.getAttribute('aria-valuenow') === '38'")
            tab.page.keyboard.press("Home")
            tab.wait("() => document.activeElement.getAttribute('aria-valuenow') === '0'")
            assert tab.text("#readout").startswith("batch 0: ")
            reached.append("moved")
        if reached[-1] == "stage" and "pressed" not in reached:
            tab.page.keyboard.press("Tab")
            tab.page.keyboard.press("Enter")
            tab.wait("() => document.activeElement.getAttribute('aria-pressed') === 'true'")
            reached.append("pressed")
    assert {"skip", "moved", "flag", "pressed"} <= set(reached)


def test_focus_outlives_the_figures(slow: StatusServer, open_tab: OpenTab) -> None:
    tab = open_tab(address(slow))
    tab.page.locator("[data-act=stage]").nth(1).focus()
    for _ in range(2):
        with tab.page.expect_response(lambda answer: "page.json" in answer.url):
            pass
    assert tab.page.evaluate("document.activeElement.dataset.act") == "stage"


def test_keys_of_any_content_are_text(open_tab: OpenTab) -> None:
    history = many(3, 5, keys=HOSTILE)
    with served(recorded(history), history) as server:
        tab = open_tab(address(server))
        keys = tab.page.locator("#keys-body .key").all_inner_texts()
        assert any("<img src=x onerror=alert(1)>" in key for key in keys)
        assert tab.page.locator("#keys-body img, #keys-body script, body > script").count() == 0
        tab.page.locator("[data-act=key]").first.click()
        tab.page.wait_for_selector("[data-act=key][aria-expanded=true]")
        assert tab.overflows() <= 0


def test_script_that_a_text_smuggled_in_would_not_run(slow: StatusServer, open_tab: OpenTab) -> None:
    tab = open_tab(address(slow))
    tab.page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x: onerror=\"window.ran = true\">')")
    tab.wait("() => document.querySelector('img').complete")
    assert tab.page.evaluate("window.ran") is None
    assert tab.faults
    tab.faults.clear()


def test_thousand_executors_are_a_distribution_and_the_worst_ten(thousand: StatusServer, open_tab: OpenTab) -> None:
    tab = open_tab(address(thousand))
    assert "1,000 executors by load" in tab.text("#executors-body")
    assert tab.page.locator("#executors-body [role=row]").count() == 11
    assert "executors of 1,000 beyond the tolerance" in tab.text("#executors-summary")


def test_summary_of_a_stage_speaks_of_the_listed_executors_alone(thousand: StatusServer, open_tab: OpenTab) -> None:
    tab = open_tab(address(thousand))
    tab.page.get_by_role("button", name="source").click()
    tab.wait_for_text("#executors-summary", "None of the 10 executors with the highest load is more than")
    assert "1,000 executors by load over all work" in tab.text("#executors-body")
    tab.page.get_by_role("button", name="tail").click()
    tab.wait_for_text("#executors-summary", "its fair share, the most of those listed.")


@pytest.mark.parametrize("width", [360, 1280])
def test_wide_graph_scrolls_in_its_panel(width: int, open_tab: OpenTab) -> None:
    _, record = played(10, topology=flights())
    value = record.page(standing_of(), -1)
    nodes = [{**node, "name": f"{node['name']}-{n}"} for node in value["nodes"] for n in range(60)]
    edges = [{**edge, "from": f"{edge['from']}-{n}", "to": f"{edge['to']}-{n}"} for edge in value["edges"] for n in range(60)]
    with PageServer(lambda since: {**value, "nodes": nodes, "edges": edges}) as server:
        tab = open_tab(f"{server.url}/", width=width, bypass_csp=True)
        widths = "[...document.querySelectorAll('#graph rect')].map((at) => at.getBoundingClientRect().width)"
        assert min(tab.page.evaluate(widths)) > 100
        assert tab.page.locator("#graph rect").count() == 180
        assert tab.overflows() <= 0
        assert tab.violations() == []
        graph = tab.page.locator("#graph")
        graph.focus()
        tab.page.keyboard.press("ArrowRight")
        tab.wait("() => document.querySelector('#graph').scrollLeft > 0")
        tab.page.close()


@pytest.mark.parametrize("width", [1100, 1300])
def test_graph_of_two_operators_and_three_sinks_is_shown_whole(width: int, open_tab: OpenTab) -> None:
    """It takes the whole width of the page where a third cuts it, and gives it back."""
    value = played(10, topology=flights())[1].page(standing_of(), -1)
    source, operator, sink = value["nodes"]
    nodes = [
        source,
        *({**operator, "name": f"operator-{n}"} for n in range(2)),
        *({**sink, "name": f"sink-{n}"} for n in range(3)),
    ]
    edge = value["edges"][0]
    ways = [(source["name"], "operator-0"), ("operator-0", "operator-1"), ("operator-0", "sink-0"), ("operator-0", "sink-1")]
    edges = [{**edge, "from": start, "to": end} for start, end in [*ways, ("operator-1", "sink-2")]]
    shown = {"nodes": nodes, "edges": edges}
    with PageServer(lambda since: {**value, **shown}) as server:
        tab = open_tab(f"{server.url}/", width=width)
        graph = "document.querySelector('#graph')"
        assert tab.page.evaluate(f"{graph}.scrollWidth - {graph}.clientWidth") <= 0
        assert "…" not in tab.page.evaluate(f"{graph}.textContent")
        wide = tab.page.evaluate(f"{graph}.clientWidth")
        shown.clear()
        tab.wait(f"(wide) => {graph}.clientWidth < wide / 2", wide)
        tab.page.close()


def test_batch_that_runs_for_long_is_named(open_tab: OpenTab) -> None:
    _, record = played(10, topology=flights())
    runs = {"seconds": 5.0}
    with PageServer(lambda since: {**record.page(standing_of(), since), "running_seconds": runs["seconds"]}) as server:
        tab = open_tab(f"{server.url}/")
        assert "40,000 rows" in tab.text(".figures")
        runs["seconds"] = 127.0
        tab.wait_for_text(".figures", "▲ the next runs for 127 s")
        tab.page.close()


def test_operators_have_the_same_tints_where_spark_reads_the_source(open_tab: OpenTab) -> None:
    value = played(10, topology=flights())[1].page(standing_of(), -1)
    tints = "[...document.querySelectorAll('.legend .swatch')].map((at) => at.className.split(' ').at(-1))"
    for stages, expected in ((["(source)", "tail"], ["tint0", "tint1"]), (["tail"], ["tint1"])):
        with PageServer(lambda since, stages=stages: {**value, "stages": stages}) as server:
            tab = open_tab(f"{server.url}/")
            assert tab.page.evaluate(tints) == expected
            tab.page.close()


def test_lag_of_a_broker_that_does_not_answer_is_not_known_now(open_tab: OpenTab) -> None:
    value = played(10, topology=flights())[1].page(standing_of(), -1)
    known, unknown = ({**value["nodes"][0], "name": name, "format": "kafka"} for name in ("known", "unknown"))
    nodes = [{**known, "lag_rows": 1200}, unknown, *value["nodes"]]
    with PageServer(lambda since: {**value, "nodes": nodes}) as server:
        tab = open_tab(f"{server.url}/")
        assert "Lag – not known now" in " ".join(tab.text(".figures").split())
        facts = " ".join(tab.text("#health .facts").split())
        assert "Lag of known 1,200 rows Lag of unknown not known now" in facts
        assert "Lag of flights" not in facts
        tab.page.close()


def test_condition_of_long_words_stays_in_its_panel(open_tab: OpenTab) -> None:
    _, record = played(10, topology=flights())
    long = PageCondition("Ready", "False", "R" * 300, "m" * 3000)
    with PageServer(lambda since: {**record.page(standing_of(), since), "conditions": [to_wire(long)]}) as server:
        tab = open_tab(f"{server.url}/", width=360)
        assert tab.overflows() <= 0
        tab.page.close()


def test_bars_are_printed(slow: StatusServer, open_tab: OpenTab) -> None:
    tab = open_tab(address(slow))
    tab.page.emulate_media(media="print")
    assert tab.page.evaluate("getComputedStyle(document.querySelector('.lane .part')).printColorAdjust") == "exact"


def test_page_says_that_the_driver_is_gone_and_finds_it_again(open_tab: OpenTab) -> None:
    history, record = played(10, topology=flights())
    with served(record, history) as server:
        tab, port = open_tab(address(server)), server.port
    tab.wait_for_text("#notice", "the figures are from then")
    again, newer = played(4, topology=flights())
    newer = recorded(again, flights(), run_id="run-2")
    for batch in again.batches:
        history.batch_done(batch)
    with served(newer, again, port):
        tab.wait_for_text("#notice", "The driver has restarted")
        assert "figures are from then" not in tab.text("#notice")
    assert all("ERR_CONNECTION" in fault or "Failed to load" in fault for fault in tab.faults)
    tab.faults.clear()


def test_page_says_that_a_driver_hangs(open_tab: OpenTab) -> None:
    _, record = played(10, topology=flights())
    awake = threading.Event()
    awake.set()

    def hanging(since: int) -> Mapping[str, object]:
        awake.wait()
        return record.page(standing_of(), since)

    with PageServer(hanging) as server:
        tab = open_tab(f"{server.url}/")
        assert not tab.page.is_visible("#notice")
        awake.clear()
        tab.wait_for_text("#notice", "the figures are from then")
        awake.set()
        tab.page.wait_for_selector("#notice[hidden]", state="attached")
        tab.page.close()


def test_page_gives_the_reason_of_a_server_that_reaches_no_driver(open_tab: OpenTab) -> None:
    _, record = played(10, topology=flights())
    reaches = threading.Event()
    reaches.set()

    def asked(since: int) -> Mapping[str, object]:
        if not reaches.is_set():
            raise Unreachable("no pod of its driver runs; see kubectl get pods -n team-a")
        return record.page(standing_of(), since)

    with PageServer(asked) as server:
        tab = open_tab(f"{server.url}/")
        reaches.clear()
        tab.wait_for_text("#notice", "(no pod of its driver runs; see kubectl get pods -n team-a).")
        tab.page.close()
    assert all("502" in fault for fault in tab.faults)
    tab.faults.clear()


def test_events_have_marks_on_the_axis_and_their_words_at_the_batch(open_tab: OpenTab) -> None:
    history, record = played(30, topology=flights())
    history.event(1_000.0, 20, "class small: 4 executors in place of 2")
    with served(record, history) as server:
        tab = open_tab(address(server))
        tab.page.wait_for_selector("#plot circle.event")
        assert tab.page.locator("#plot circle.event").count() == 1
        slider = tab.page.get_by_role("slider")
        slider.focus()
        for _ in range(29 - 20):
            tab.page.keyboard.press("ArrowLeft")
        tab.wait_for_text("#readout", "batch 20")
        assert "4 executors in place of 2" in tab.text("#readout")


def test_where_the_newest_batchs_time_went_is_said(open_tab: OpenTab) -> None:
    history, record = played(3, topology=flights())
    steps = BatchSteps(choosing=0.001, working=0.0042, passing=0.0078, committing=0.002, publishing=0.0)
    history.batch_done(replace(history.batches[-1], number=3, steps=steps))
    with served(record, history) as server:
        tab = open_tab(address(server))
        tab.wait_for_text("#health-body", "Time of a batch")
        said = "1 ms to choose its plan, 4 ms of work on executors, 8 ms between stages, 2 ms to commit, 0 s to publish"
        assert said in tab.text("#health-body")


def test_batches_before_a_gap_are_not_drawn(open_tab: OpenTab) -> None:
    value = played(10, topology=flights())[1].page(standing_of(), -1)
    late = [{**batch, "number": batch["number"] + 5_000} for batch in value["batches"]]
    with PageServer(lambda since: value if since < 0 else {**value, "batch": 5_009, "batches": late}) as server:
        tab = open_tab(f"{server.url}/")
        tab.wait("() => document.querySelector('[role=slider]')?.getAttribute('aria-valuenow') === '5009'")
        assert tab.page.get_by_role("slider").get_attribute("aria-valuemin") == "5000"
        tab.page.close()


def test_hidden_tab_asks_for_nothing(slow: StatusServer, open_tab: OpenTab) -> None:
    tab = open_tab(address(slow))
    tab.page.evaluate("""() => {
        Object.defineProperty(document, 'hidden', { get: () => window.away ?? false });
        window.away = true;
    }""")
    with tab.page.expect_response(lambda answer: "page.json" in answer.url):
        pass
    asked = len(tab.asked)
    tab.page.evaluate("new Promise((done) => setTimeout(done, 3000))")
    assert len(tab.asked) <= asked + 1
    tab.page.evaluate("() => { window.away = false; document.dispatchEvent(new Event('visibilitychange')); }")
    with tab.page.expect_response(lambda answer: "page.json" in answer.url):
        pass


def test_recommendation_conditions_lag_and_watermark_can_be_read(open_tab: OpenTab) -> None:
    history, record = played(20, topology=flights())
    history.judged(EpochReason(EpochCause.REBALANCED, (StageReason(RemedyKind.TABLE, "tail", 1.4, 0.02),)))
    standing = Standing(lag={"flights": 1200}, watermark=1_700_000_000.0)
    with PageServer(lambda since: record.page(standing, since)) as server:
        tab = open_tab(f"{server.url}/")
        advice = tab.text("#reroutings .advice")
        assert "would re-route: tail" in advice
        assert "rebalance: {mode: Auto}" in advice
        facts = tab.text("#health .facts")
        assert "Lag of flights 1,200 rows" in " ".join(facts.split())
        assert "2023-11-14 22:13:20 UTC" in facts
        tab.page.close()

    message = "mode is Recommend; would re-route: <b>tail</b>"
    balanced = PageCondition("Balanced", "False", "Recommended", message, NOW - 30)
    more = {"namespace": "team-a", "conditions": [to_wire(balanced)], "recommended": None}
    with PageServer(lambda since: {**record.page(standing, since), **more}) as server:
        tab = open_tab(f"{server.url}/", bypass_csp=True)
        assert message in tab.text("#reroutings .advice")
        command = """kubectl patch stopo flights -n team-a --type merge -p '{"spec":{"rebalance":{"mode":"Auto"}}}'"""
        assert tab.text("#reroutings .advice code") == command
        assert "Balanced False: Recommended, 30 s ago" in tab.text("#health .conditions")
        assert tab.violations() == []
        tab.page.close()
