"""The steps of a start: numbered, with what waits for what, and the time that a start usually takes on this machine."""

from __future__ import annotations

from pathlib import Path

from support.histories import Clock

from streamtopology.contract.phases import Phase
from streamtopology.jobs.local.start_steps import StartSteps
from streamtopology.jobs.observe.history import History


def steps(folder: Path, executors: int = 4) -> tuple[StartSteps, list[str]]:
    reported: list[str] = []
    return StartSteps(executors, reported.append, folder), reported


def test_each_step_has_its_number_and_says_what_waits_for_what(tmp_path: Path):
    start, reported = steps(tmp_path)
    start.cluster()
    start.detail("removed the remains of a dead process")
    start.driver()
    start.executors(3)
    start.query()
    assert [text.split(",")[0] for text in [*reported, start.warm_up()]] == [
        "step 1 of 5", "step 1 of 5", "step 2 of 5", "step 3 of 5", "step 4 of 5", "step 5 of 5",
    ]  # fmt: skip
    assert "3 of 4 executors are warm; the first batch waits for all" in reported[3]


def test_news_of_an_executor_leave_the_count_in_sight(tmp_path: Path):
    start, reported = steps(tmp_path)
    start.executors(1)
    start.detail("executor 2 is warm and admitted")
    assert reported[-1].endswith("1 of 4 executors are warm; executor 2 is warm and admitted")


def test_a_single_executor_is_no_plural(tmp_path: Path):
    start, reported = steps(tmp_path, executors=1)
    start.cluster()
    start.executors(0)
    assert [text.partition(": ")[2] for text in reported] == [
        "starting Spark's driver, then 1 executor",
        "0 of 1 executor is warm; the first batch waits for all",
    ]


def test_the_usual_time_is_the_range_of_the_last_five_starts_of_that_size(tmp_path: Path):
    assert "usually 20 to 60 s" in steps(tmp_path)[0].warm_up(), "nothing is known of this machine"
    steps(tmp_path)[0].remember(90.0)
    assert "usually 1 min 30 s in all" in steps(tmp_path)[0].warm_up()
    for seconds in (31.0, 29.0, 33.0, 30.0, 28.0):
        steps(tmp_path)[0].remember(seconds)
    assert "usually 28 s to 33 s in all" in steps(tmp_path)[0].warm_up()
    assert "usually 20 to 60 s" in steps(tmp_path, executors=2)[0].warm_up()
    (tmp_path / "starts.json").write_text("[]")
    assert "usually 20 to 60 s" in steps(tmp_path)[0].warm_up()


def test_a_start_is_remembered_once_when_batches_run(tmp_path: Path):
    clock, history = Clock(), History("flights", (), {})
    steps(tmp_path)[0].remember_when_running(history, clock)
    clock.now = 5.0
    history.enter(Phase.WARMING_UP)
    clock.now = 25.0
    history.enter(Phase.RUNNING)
    clock.now = 99.0
    history.event(0.0, 1, "news")
    assert "usually 25 s in all" in steps(tmp_path)[0].warm_up()


def test_news_after_the_start_have_no_step(tmp_path: Path):
    start, reported = steps(tmp_path)
    start.executors(4)
    start.warm_up()
    start.detail("executor 3 is lost")
    assert reported[-1] == "executor 3 is lost"
