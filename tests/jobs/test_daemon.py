"""What the process that forks Spark's Python workers does to them."""

from __future__ import annotations

import gc
import sys

import pytest

from streamtopology.jobs.daemon import freeze_at_powers_of_two, print_unless_hung_up


def test_what_lives_after_the_1st_2nd_4th_and_8th_task_is_taken_out_of_garbage_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: done.append("collect"))
    monkeypatch.setattr(gc, "freeze", lambda: done.append("freeze"))
    task = freeze_at_powers_of_two(lambda socket, authenticated: done.append("task") or 7)
    assert [task("socket", True) for _ in range(9)] == [7] * 9
    first_two, third, fourth = ["task", "collect", "freeze"] * 2, ["task"], ["task", "collect", "freeze"]
    assert done == [*first_two, *third, *fourth, *["task"] * 3, *fourth, "task"]


def test_a_reader_that_spark_hangs_up_on_is_not_told_of_and_everything_else_is(capsys: pytest.CaptureFixture[str]) -> None:
    told = "PySpark daemon failed to flush the output to the worker process:\nTraceback: "
    print_unless_hung_up(told + "BrokenPipeError: [Errno 32] Broken pipe", file=sys.stderr)
    print_unless_hung_up(told + "OSError: [Errno 28] No space left on device", file=sys.stderr)
    assert capsys.readouterr().err == told + "OSError: [Errno 28] No space left on device\n"
