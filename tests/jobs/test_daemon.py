"""The process that forks Spark's Python workers, and its effects on them."""

from __future__ import annotations

import gc
import sys

import pytest

from streamtopology.jobs.spark.worker_daemon import freeze_at_powers_of_two, print_unless_disconnected


def test_survivors_of_tasks_1_2_4_and_8_leave_garbage_collection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: done.append("collect"))
    monkeypatch.setattr(gc, "freeze", lambda: done.append("freeze"))
    task = freeze_at_powers_of_two(lambda socket, authenticated: done.append("task") or 7)
    assert [task("socket", True) for _ in range(9)] == [7] * 9
    first_two, third, fourth = ["task", "collect", "freeze"] * 2, ["task"], ["task", "collect", "freeze"]
    assert done == [*first_two, *third, *fourth, *["task"] * 3, *fourth, "task"]


def test_a_reader_that_spark_hangs_up_on_is_not_printed_and_everything_else_is(capsys: pytest.CaptureFixture[str]) -> None:
    reported = "PySpark daemon failed to flush the output to the worker process:\nTraceback: "
    print_unless_disconnected(reported + "BrokenPipeError: [Errno 32] Broken pipe", file=sys.stderr)
    print_unless_disconnected(reported + "OSError: [Errno 28] No space left on device", file=sys.stderr)
    assert capsys.readouterr().err == reported + "OSError: [Errno 28] No space left on device\n"
