"""Lines of a pod's log name their batch and instance, whatever their origin."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import threading

import pytest

from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.log_tags import TaggedBatch, TaggedLines, json_line, working_on
from streamtopology.jobs.pods.environment import logs_json

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.fixture
def written() -> io.StringIO:
    return io.StringIO()


def lines(written: io.StringIO) -> list[str]:
    """The written lines, without their times."""
    found = written.getvalue().splitlines()
    assert all(re.match(STAMP + " ", line) for line in found)
    return [re.sub(f"^{STAMP} ", "", line) for line in found]


def test_every_line_is_tagged_and_only_whole_lines_are(written: io.StringIO) -> None:
    out = TaggedLines(written, TaggedBatch())
    print("waiting", file=out)
    with working_on(7, "counts/2"):
        print("a tuple", "of two\nlines", file=out)
        with working_on(7):
            print("reading", file=out)
        out.write("half")
        assert lines(written)[-1] == "batch=7 instance=- reading"
        out.write(" a line\n")
    print("done", file=out)
    assert lines(written) == [
        "batch=- instance=- waiting",
        "batch=7 instance=counts/2 a tuple of two",
        "batch=7 instance=counts/2 lines",
        "batch=7 instance=- reading",
        "batch=7 instance=counts/2 half a line",
        "batch=- instance=- done",
    ]


def test_lines_of_other_threads_are_of_the_batch_that_has_begun(written: io.StringIO) -> None:
    out = TaggedLines(written, TaggedBatch(3))
    with working_on(2, "counts/0"):
        thread = threading.Thread(target=print, args=("elsewhere",), kwargs={"file": out})
        thread.start()
        thread.join()
        print("here", file=out)
    assert lines(written) == ["batch=3 instance=- elsewhere", "batch=2 instance=counts/0 here"]


def test_logged_lines_of_an_operator_are_tagged_like_printed_ones() -> None:
    program = """
import logging
from streamtopology.jobs.log_tags import tag_lines, working_on
tag_lines()
tag_lines()
with working_on(4, "mine/1"):
    print("printed")
    logging.getLogger("mine").warning("logged")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert re.fullmatch(f"{STAMP} batch=4 instance=mine/1 printed\n", ran.stdout)
    assert re.fullmatch(f"{STAMP} batch=4 instance=mine/1 WARNING mine: logged\n", ran.stderr)


def test_output_of_children_is_tagged_and_complete() -> None:
    program = """
import subprocess, sys
from streamtopology.jobs.log_tags import tag_all, working_on
tag_all()
subprocess.run(["/bin/sh", "-c", "echo from a child; echo its error >&2"], check=True)
with working_on(4, "mine/1"):
    print("printed")
    subprocess.run([sys.executable, "-c", "print('2026-11-22T02:11:08.412Z batch=9 instance=a/1 tagged already')"], check=True)
print("x" * 100_000)
raise ValueError("the end")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stderr) == (1, "")
    output = [re.sub(f"^{STAMP} ", "", line) for line in ran.stdout.splitlines()]
    assert output[:4] == [
        "batch=- instance=- from a child", "batch=- instance=- its error", "batch=4 instance=mine/1 printed",
        "batch=9 instance=a/1 tagged already",
    ]  # fmt: skip
    assert output[4] == "batch=- instance=- " + "x" * 100_000
    assert output[-1] == "batch=- instance=- ValueError: the end"
    assert all(line.startswith("batch=- instance=- ") for line in output[4:])


def test_lines_of_all_processes_are_json_objects_where_that_is_asked_for() -> None:
    program = """
import logging, subprocess
from streamtopology.jobs.log_tags import tag_all, working_on
tag_all(as_json=True)
subprocess.run(["/bin/sh", "-c", "echo from a child"], check=True)
with working_on(4, "mine/1"):
    print('printed "with quotes"')
    logging.getLogger("mine").warning("logged")
raise ValueError("the end")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    objects = [json.loads(line) for line in ran.stdout.splitlines()]
    assert all(re.fullmatch(STAMP, each.pop("time")) for each in objects)
    assert objects[:3] == [
        {"level": "INFO", "batch": None, "instance": None, "message": "from a child"},
        {"level": "INFO", "batch": 4, "instance": "mine/1", "message": 'printed "with quotes"'},
        {"level": "WARNING", "batch": 4, "instance": "mine/1", "logger": "mine", "message": "logged"},
    ]
    assert objects[-1]["message"] == "ValueError: the end"


@pytest.mark.parametrize(
    ("line", "level", "logger", "message"),
    [
        (b"ERROR o.a.s.Executor: lost\n", "ERROR", "o.a.s.Executor", "lost"),
        (b"WARN TaskSetManager: slow\n", "WARNING", "TaskSetManager", "slow"),
        (b"ERRORS: none\n", "INFO", None, "ERRORS: none"),
        (b"\xff\n", "INFO", None, "\ufffd"),
        (b"\n", "INFO", None, ""),
    ],
)
def test_level_and_logger_are_those_that_a_line_begins_with(line: bytes, level: str, logger: str | None, message: str) -> None:
    shown = json.loads(json_line(b"2026-11-22T02:11:08.412Z batch=- instance=- " + line))
    assert (shown["level"], shown.get("logger"), shown["message"]) == (level, logger, message)


def test_another_form_of_lines_is_refused() -> None:
    assert [logs_json({}), logs_json({"STREAMTOPOLOGY_LOG_FORMAT": "json"})] == [False, True]
    with pytest.raises(WrongUse, match="STREAMTOPOLOGY_LOG_FORMAT='xml': expected one of text, json"):
        logs_json({"STREAMTOPOLOGY_LOG_FORMAT": "xml"})
