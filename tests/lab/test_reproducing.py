"""`streamtopology reproduce`: what it prints, writes and exits with, for experiments that hold, do not hold, or fail."""

from __future__ import annotations

import io
import json
import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console
from support.experiments import DICE, FAILING, LOADED, measuring
from support.histories import Clock, reconfiguration, sent_on

from streamtopology.contract.reasons import EpochCause, EpochReason, RemedyKind, StageReason
from streamtopology.jobs.cli.main import main
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.lab.bench.cluster import Ran
from streamtopology.lab.palette import COLORS
from streamtopology.lab.reproduce.experiment import Claim, Plot
from streamtopology.lab.reproduce.experiments import EXPERIMENTS
from streamtopology.lab.reproduce.figure import draw
from streamtopology.lab.reproduce.on_spark import NOT_BUILT, ON_SPARK, consistent, locality, mixed, posg
from streamtopology.lab.reproduce.page import html, themed
from streamtopology.lab.reproduce.progress import Progress
from streamtopology.lab.reproduce.runner import Request, reproduce, to_run
from streamtopology.lab.reproduce.verdict import SEEDS_APART, over_seeds
from streamtopology.lab.reproduce.workers import WorkerEnded, Workers

ALL = {experiment.id: experiment for experiment in (DICE, FAILING, LOADED)}


def console() -> Console:
    return Console(file=io.StringIO(), width=200)


def printed(screen: Console) -> str:
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def test_holding_experiment_is_reported_and_written(tmp_path: Path):
    screen = console()
    file = tmp_path / "new" / "one.json"
    assert reproduce("dice-mean", Request(json_file=file), ALL, screen) == 0
    result = json.loads(file.read_text())
    assert {"id", "parameters", "runs", "series", "summary", "paper", "holds"} <= set(result)
    assert (result["id"], result["holds"], result["paper"]) == ("dice-mean", True, {"mean of a die": 3.5})
    assert (result["seeds"], result["verdict"]) == ([1, 10001, 20001, 30001, 40001], "holds")
    line = next(line for line in printed(screen).splitlines() if line.startswith("dice-mean"))
    assert re.fullmatch(r"dice-mean +holds +\d+ ms +1 of 1 claims", line)
    assert "1 of 1 hold; 1 of 1 claims" in printed(screen)


def test_a_claim_that_some_seeds_bear_out_depends_and_is_shown_with_its_interval():
    lucky = Claim("a die shows a little more than 3.5", lambda s: s["mean of a die"] > 3.5, {"mean of a die": 3.6})
    sure = Claim(
        "a die shows no more than it has sides", lambda s: s["mean of a die"] <= 6, by_construction="6 is its largest."
    )
    broken = replace(sure, sentence="a die shows a 7", holds=lambda s: s["mean of a die"] == 7)
    dice = replace(DICE, claims=(*DICE.claims, lucky, sure, broken))
    screen = console()
    assert reproduce("dice-mean", Request(seeds=8), {"dice-mean": dice}, screen) == 1
    text = printed(screen)
    assert re.search(r"dice-mean +does not hold .* 1 of 3 claims, 1 depends on the seed, 1 more by construction", text)
    interval = r"\[mean of a die: paper 3\.6, here 3\.\d+ \(3\.4\d* to 3\.5\d*\)\]"
    assert re.search(rf"depends on the seed, holds with [1-7] of 8: a die shows a little more than 3.5 {interval}", text)
    assert "not: a die shows a 7" in text, "a claim that cannot fail counts once it does"
    assert "cannot fail" not in text


def test_seeds_are_as_asked_for_and_share_nothing(tmp_path: Path):
    file = tmp_path / "one.json"
    reproduce("dice-mean", Request(json_file=file, seed=7, seeds=2, runs=3), ALL, console())
    both = json.loads(file.read_text())
    reproduce("dice-mean", Request(json_file=file, seed=10007, seeds=1, runs=3), ALL, console())
    second = json.loads(file.read_text())
    assert (both["seeds"], second["seeds"]) == ([7, 10007], [10007])
    assert second["series"] == [row for row in both["series"] if row["seed"] == 10007]
    assert both["spread"]["mean of a die"][0] < both["summary"]["mean of a die"] < both["spread"]["mean of a die"][1]


def test_repetitions_that_would_reach_the_next_seed_are_refused() -> None:
    for request in (Request(), Request(quick=True), Request(seeds=1)):
        assert all(request.runs_of(experiment) <= SEEDS_APART for experiment in EXPERIMENTS.values())
    with pytest.raises(WrongUse, match="--runs 10001: the next seed's repetitions begin after 10000; raise --seeds instead"):
        reproduce("dice-mean", Request(runs=SEEDS_APART + 1), ALL, console())


def test_an_experiments_repetitions_are_shared_out_over_its_seeds():
    often = replace(DICE, runs=100, seconds=200.0)
    assert Request().runs_of(often) == 20
    assert Request(seeds=1).runs_of(often) == 100
    assert (Request(runs=7).runs_of(often), Request().runs_of(DICE), Request(seeds=9).runs_of(DICE)) == (7, 1, 1)
    assert (Request().seconds_of(often), Request(seeds=10, runs=20).seconds_of(often)) == (200, 400)


def test_seeds_side_by_side_give_what_they_give_in_turn(tmp_path: Path):
    results = []
    for processes in (0, 2):
        file = tmp_path / f"{processes}.json"
        request = Request(quick=True, json_file=file, seeds=3)
        assert reproduce("all", request, ALL, console(), processes=processes) == 1
        results.append([{**result, "seconds": 0, "cpu_seconds": 0} for result in json.loads(file.read_text())])
    in_turn, side_by_side = results
    assert [result["id"] for result in in_turn] == list(ALL)
    lost = [{name: value for name, value in result[1].items() if name != "trace"} for result in results]
    assert lost[0] == lost[1]
    assert [in_turn[0], in_turn[2]] == [side_by_side[0], side_by_side[2]]


def test_a_process_that_is_killed_ends_the_run_with_its_exit_code():
    with (
        Workers[int, None](lambda task, advance: os.kill(os.getpid(), signal.SIGKILL), 1) as workers,
        pytest.raises(WorkerEnded, match="exit code -9"),
    ):
        workers.results([1], lambda share: None)


def test_parameters_are_set_for_one_experiment_and_refused_with_what_it_takes(tmp_path: Path):
    file = tmp_path / "one.json"
    reproduce("dice-mean", Request(json_file=file, given={"sides": 20}), ALL, console())
    assert json.loads(file.read_text())["parameters"]["sides"] == 20
    for given, message in (
        ({"colour": "red"}, "--set: dice-mean has no parameter colour; it has sides, throws, dice"),
        ({"sides": "six"}, "--set: dice-mean: sides: 'six' is a text; it takes a number such as 6"),
        ({"dice": 4}, r"--set: dice-mean: dice: 4 is a number; it takes a list such as \[1, 2, 3, 4\]"),
    ):
        with pytest.raises(WrongUse, match=message):
            reproduce("dice-mean", Request(given=given), ALL, console())
    with pytest.raises(WrongUse, match="--set sides: parameters are those of one experiment; name it in place of 'all'"):
        reproduce("all", Request(given={"sides": 20}), ALL, console())
    assert main(["reproduce", "dkg-k", "--set", "theta"]) == 2


def test_missed_claim_is_reported_with_its_reason():
    screen = console()
    assert reproduce("dice-loaded", Request(runs=2), ALL, screen) == 1
    text = printed(screen)
    assert re.search(r"dice-loaded +does not hold +\d+ ms +1 of 2 claims", text)
    assert re.search(r"not: a die shows 6 always \[mean of a die: paper 6, here 3\.\d+ \(3\.\d+ to 3\.\d+\)\]", text)
    assert "why: these dice are fair & square" in text
    assert "0 of 1 hold" in text


def test_failed_experiment_does_not_lose_the_others(tmp_path: Path):
    screen = console()
    request = Request(quick=True, json_file=tmp_path / "all.json", report_dir=tmp_path / "report", seeds=1)
    assert reproduce("all", request, ALL, screen) == 1
    dice, lost, loaded = json.loads((tmp_path / "all.json").read_text())
    assert [dice["holds"], lost["holds"], loaded["holds"]] == [True, False, False]
    assert re.fullmatch(r"ZeroDivisionError: no dice \(experiments\.py, line \d+\)", lost["error"])
    assert loaded["series"]
    assert "1 of 3 hold, 1 failed" in printed(screen)
    page = (tmp_path / "report" / "index.html").read_text()
    assert all(f'<section id="{name}">' in page for name in ALL)
    assert "raise ZeroDivisionError" in page


def test_rows_on_spark_are_run_when_asked_for_and_those_not_built_are_named():
    assert "cg-cluster" not in to_run(on_spark=False)
    assert to_run(on_spark=True).keys() == EXPERIMENTS.keys() | ON_SPARK.keys()
    with pytest.raises(WrongUse, match="cg-cluster is measured on Spark, on an embedded cluster: add --spark"):
        reproduce("cg-cluster", Request(), to_run(on_spark=False), console())
    screen = console()
    reproduce("all", Request(), {"dice-mean": DICE, "cg-cluster": measuring([], {}, id="cg-cluster")}, screen)
    assert [line.split(":")[1].strip() for line in printed(screen).splitlines() if line.startswith("not built")] == list(
        NOT_BUILT
    )


def test_experiments_on_spark_state_duration_and_reasons_for_misses():
    for name, experiment in ON_SPARK.items():
        assert experiment.expected_seconds(quick=True), name
        assert experiment.expected_seconds(), name
        assert [claim.sentence for claim in experiment.claims if claim.paper and not claim.why_not] == [], name


def test_consistent_grouping_on_spark_is_judged_by_medians_over_runs():
    seconds = {"KG": [6.0, 7.0, 8.0], "PKG": [4.0, 4.0, 4.0], "SG": [4.0, 5.0, 4.0], "CG": [2.0, 2.0, 2.0]}
    found = consistent.summary(seconds, {"KG": [100.0] * 3, "PKG": [120.0] * 3, "SG": [200.0] * 3, "CG": [130.0] * 3})
    assert found["cg_over_kg"] == 3.5
    assert found["cg_over_sg"] == 2.0
    assert found["sg_keys_over_kg"] == 2.0
    assert [claim.holds(found) for claim in consistent.CG_CLUSTER.claims] == [True, True, True, True]
    slower = consistent.summary({**seconds, "CG": [4.5] * 3}, {name: [100.0] * 3 for name in seconds})
    assert [claim.holds(slower) for claim in consistent.CG_CLUSTER.claims] == [False, False, True, False]


def test_posg_on_spark_is_held_against_round_robin():
    seconds = {"round robin": [3.0, 3.0], "posg": [2.0, 2.2], "posg-merged": [1.5, 1.5], "earliest-finish": [1.2, 1.4]}
    found = posg.summary(seconds, {policy: [4.0, 4.0] for policy in seconds})
    assert found["earliest_finish_speed_up"] == pytest.approx((3 / 1.2 + 3 / 1.4) / 2)
    assert [claim.holds(found) for claim in posg.POSG_CLUSTER.claims] == [True, True, True, True]
    slow = posg.summary({**seconds, "posg": [3.0] * 2, "earliest-finish": [1.8] * 2}, {policy: [5.0] for policy in seconds})
    assert [claim.holds(slow) for claim in posg.POSG_CLUSTER.claims] == [False, False, False, False]


def test_mixed_on_spark_is_held_against_hash_readj_pkg_and_what_could_be_had():
    schemes = {"hash": [2.0, 1.6], "Readj": [2.0, 2.0], "MinTable": [4.0, 4.0], "Mixed": [4.0, 4.0], "Ideal": [4.5, 4.5]}
    throughputs = {"words": {**schemes, "PKG": [3.4, 3.6]}, "self-join": schemes, "q5": schemes}
    found = mixed.summary(throughputs)
    assert found["words_over_hash"] == 2.25
    assert [claim.holds(found) for claim in mixed.MIXED_THROUGHPUT.claims] == [True] * 5
    slow = {workload: {**rows, "Mixed": [1.5, 1.5]} for workload, rows in throughputs.items()}
    assert [claim.holds(mixed.summary(slow)) for claim in mixed.MIXED_THROUGHPUT.claims] == [False] * 5


def test_locality_on_spark_is_that_of_the_batches_around_the_switch():
    def batch(number: int, stayed: int, seconds: float) -> BatchOutcome:
        return sent_on(number, stayed, edge=("first", "second"), seconds=seconds)

    figures = [(2, 9), (2, 1), (3, 1), (10, 1.2), (9, 0.5), (9, 0.5)]
    batches = tuple(batch(number, stayed, seconds) for number, (stayed, seconds) in enumerate(figures))
    planned = StageReason(RemedyKind.LOCALITY, "first+second", 0.1, local_before=0.25, local_planned=1.0)
    change = reconfiguration(batch=3, reason=EpochReason(EpochCause.REBALANCED, (planned,)))
    found = locality.summary(Ran(batches, (change,), 0.0))
    assert found == pytest.approx(
        {
            "locality_before": 0.25,
            "locality_at_once": 1.0,
            "locality_after": 0.9,
            "slowest_after_over_before": 1.2,
            "throughput_gain": 2.0,
        }
    )
    with pytest.raises(ValueError, match="re-routed for locality in batch 6 of 6: too few"):
        locality.summary(Ran(batches, (), 0.0))


def test_results_so_far_are_kept_when_a_run_is_stopped(tmp_path: Path):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    stopped = {**ALL, "dice-lost": replace(measuring([], {}, id="dice-lost"), measure=interrupted)}
    request = Request(json_file=tmp_path / "all.json", report_dir=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        reproduce("all", request, stopped, console())
    assert [result["id"] for result in json.loads((tmp_path / "all.json").read_text())] == ["dice-mean"]
    assert '<section id="dice-mean">' in (tmp_path / "index.html").read_text()


def test_wrong_use_names_what_there_is(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(WrongUse, match=r"no experiment 'dice'; there is 'all', or one of:\n  dice-mean +The mean of dice"):
        reproduce("dice", Request(), ALL, console())
    assert main(["reproduce", "no-such-one"]) == 2
    assert "streamtopology: there is no experiment 'no-such-one'" in capsys.readouterr().err
    assert main(["reproduce", "all", "--runs", "0"]) == 2


def test_the_page_has_each_figure_claim_and_stand_in_and_is_one_file(tmp_path: Path):
    reproduce("all", Request(quick=True, report_dir=tmp_path), ALL, console())
    page = (tmp_path / "index.html").read_text()
    assert page.count("<svg") == 2
    assert "a die shows 6 always" in page
    assert "these dice are fair &amp; square" in page
    assert "Loaded &lt;dice&gt;" in page
    assert "numpy&#x27;s generator for &lt;real&gt; dice" in page
    assert 'href="#dice-loaded"' in page
    assert "<code>--quick</code>" in page
    assert not re.search(r'(?:src|href)="(?!#)', page), "nothing is fetched from elsewhere"
    assert "prefers-color-scheme: dark" in page


def test_the_markdown_says_the_same_and_its_figures_are_files(tmp_path: Path):
    reproduce("all", Request(report_dir=tmp_path), ALL, console())
    report = (tmp_path / "report.md").read_text()
    figures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", report)
    assert figures == ["figures/dice-mean-1.svg", "figures/dice-loaded-1.svg"]
    assert all(ElementTree.parse(tmp_path / file) for file in figures)
    assert "**1 of 3 experiments hold**, 0 depend on the seed, 1 failed to run; 2 of 3 claims" in report
    assert "- **does not hold**: a die shows 6 always\n  Why not: these dice are fair & square" in report
    assert re.search(r"\| mean of a die \| 3\.\d+ \| 3\.\d+ to 3\.\d+ \| 3\.5 \|", report)
    assert "--quick" not in report


def test_a_figure_has_our_lines_and_the_papers_points():
    series = [{"k": k, "y": k * slope, "of": name} for k in (1, 2, 4) for name, slope in (("ours", 1), ("other", 2))]
    plot = Plot("Growth", "k", "y", "of", log_x=True, log_y=True, paper=[{"k": 2, "y": 3, "of": "theirs"}])
    svg = draw(plot, series).svg
    ElementTree.fromstring(svg)
    for text in ("Growth", "ours", "other", "theirs", "hollow: the paper"):
        assert f">{text}</text>" in svg
    assert all(color in svg for color in COLORS[:3])
    assert COLORS[3] not in svg
    assert svg == draw(plot, series).svg


def test_axes_and_lines_are_named_in_words():
    series = [{"x": k, "y": k, "of_keys": keys} for k in (1, 2) for keys in (5_000, 100)]
    svg = draw(Plot("Named", "x", "y", "of_keys", y_label="seconds"), series).svg
    assert all(f">{text}</text>" in svg for text in ("of keys 5,000", "of keys 100", "seconds"))
    assert not re.search(">[xy]</text>", svg)


def test_a_figure_takes_words_gaps_and_several_runs_at_a_point():
    series = [{"k": k, "y": y, "of": "a"} for k, ys in (("uniform", (1, 3)), ("zipf", (None, 2)), ("x", (None,))) for y in ys]
    svg = draw(Plot("Words", "k", "y", "of"), series).svg
    assert all(f">{word}</text>" in svg for word in ("uniform", "zipf", "x"))
    assert "fill-opacity" in svg  # the band between the runs


def test_a_figure_that_cannot_be_drawn_says_why_and_the_others_stay():
    plots = (Plot("Nothing", "dice", "sum", "kind", only={"dice": 9}), DICE.plots[0])
    one = measuring([{"dice": 1, "sum": 2, "kind": "a"}], {"mean of a die": 3.5})
    results = [{**over_seeds([one.carry_out({}, lambda _: None)]), "seconds": 1.0}]
    page = html(results, {"dice-mean": [draw(plot, results[0]["series"]) for plot in plots]})
    assert "Not drawn. plot &#x27;Nothing&#x27;: no row of the series has dice, sum, kind, dice = 9" in page
    assert page.count("<svg") == 1


def test_the_figures_of_the_page_take_its_colours():
    svg = draw(DICE.plots[0], [{"dice": 1, "sum": 2, "kind": "a"}]).svg
    element = themed(svg)
    assert element.startswith("<svg")
    assert not re.search(r"#[0-9a-f]{6}\b", element), "every colour is one of the page's"
    assert "var(--c1)" in element


def test_progress_guesses_from_what_is_done():
    clock = Clock()
    progress = Progress([None] * 4, console(), clock)
    progress.begin("a")
    clock.now = 1.0
    progress.advance(0.01)
    assert progress.seconds_left() is None
    clock.now = 5.0
    progress.advance(0.5)
    assert progress.seconds_left() == pytest.approx(5 + 3 * 10)
    assert progress.line() == "[   5.0 s] a 50 %, 0 of 4 done, about 35 s left"
    clock.now = 20.0
    progress.end(["a holds"])
    assert progress.seconds_left() == pytest.approx(3 * 20)
    progress.begin("b")
    clock.now = 25.0
    assert progress.seconds_left() == pytest.approx(15 + 2 * 20)
    progress.advance(0.5)
    assert progress.seconds_left() == pytest.approx(5 + 2 * 15)


def test_rows_on_spark_are_expected_to_take_what_they_say():
    clock = Clock()
    short = measuring([], {}, id="short")
    long = measuring([], {}, id="long", seconds=600.0, quick_seconds=90.0, runs=3, quick_runs=1)
    assert [long.expected_seconds(), long.expected_seconds(runs=1), long.expected_seconds(quick=True, runs=2)] == [
        600,
        200,
        180,
    ]
    progress = Progress([one.expected_seconds() for one in (short, short, long, long)], console(), clock)
    progress.begin("short")
    clock.now = 30.0
    progress.end([])
    assert progress.seconds_left() == pytest.approx(30 + 2 * 600), (
        "not 3 * 30: the duration of rows on Spark is known beforehand"
    )
    progress.begin("short")
    clock.now = 40.0
    progress.end([])
    progress.begin("long")
    clock.now = 140.0
    assert progress.seconds_left() == pytest.approx(500 + 600)
    progress.advance(0.1)
    assert progress.seconds_left() == pytest.approx(900 + 600), "what is seen counts for more than what was expected"
    clock.now = 1040.0
    progress.end([])
    assert progress.seconds_left() == pytest.approx(600)


def test_without_a_terminal_a_line_every_ten_seconds():
    clock, screen = Clock(), console()
    with Progress([None], screen, clock) as progress:
        progress.begin("a")
        for clock.now in range(1, 26):
            progress.advance(clock.now / 25)
        progress.end(["a holds"])
    assert printed(screen).splitlines() == [
        "[  10.0 s] a 40 %, 0 of 1 done, about 15 s left",
        "[  20.0 s] a 80 %, 0 of 1 done, about 5.0 s left",
        "a holds",
    ]


def test_in_a_terminal_the_line_is_live():
    screen = Console(file=io.StringIO(), width=120, force_terminal=True)
    assert reproduce("dice-mean", Request(quick=True, seeds=1), ALL, screen) == 0
    assert "0 of 1 done" in printed(screen)
    assert "dice-mean" in printed(screen)
