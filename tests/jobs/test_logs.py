"""Lines of a pod's log say which batch and instance they are of, whoever writes them."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import threading

import pytest

from streamtopology.jobs import logs
from streamtopology.jobs.logs import TaggedLines, working_on

STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    monkeypatch.setattr(logs, "_begun", logs._Begun())
    return io.StringIO()


def lines(written: io.StringIO) -> list[str]:
    """What was written, without its times."""
    found = written.getvalue().splitlines()
    assert all(re.match(STAMP + " ", line) for line in found)
    return [re.sub(f"^{STAMP} ", "", line) for line in found]


def test_every_line_is_tagged_and_only_whole_lines_are(written: io.StringIO) -> None:
    out = TaggedLines(written)
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
    logs._begun.batch = 3
    out = TaggedLines(written)
    with working_on(2, "counts/0"):
        thread = threading.Thread(target=print, args=("elsewhere",), kwargs={"file": out})
        thread.start()
        thread.join()
        print("here", file=out)
    assert lines(written) == ["batch=3 instance=- elsewhere", "batch=2 instance=counts/0 here"]


def test_what_an_operator_logs_is_tagged_as_what_it_prints() -> None:
    program = """
import logging
from streamtopology.jobs.logs import tag_lines, working_on
tag_lines()
tag_lines()
with working_on(4, "mine/1"):
    print("printed")
    logging.getLogger("mine").warning("logged")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert re.fullmatch(f"{STAMP} batch=4 instance=mine/1 printed\n", ran.stdout)
    assert re.fullmatch(f"{STAMP} batch=4 instance=mine/1 WARNING mine: logged\n", ran.stderr)


def test_what_children_write_is_tagged_on_its_way_and_nothing_is_lost_at_the_end() -> None:
    program = """
import subprocess, sys
from streamtopology.jobs.logs import tag_all, working_on
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
    said = [re.sub(f"^{STAMP} ", "", line) for line in ran.stdout.splitlines()]
    assert said[:4] == [
        "batch=- instance=- from a child", "batch=- instance=- its error", "batch=4 instance=mine/1 printed",
        "batch=9 instance=a/1 tagged already",
    ]  # fmt: skip
    assert said[4] == "batch=- instance=- " + "x" * 100_000
    assert said[-1] == "batch=- instance=- ValueError: the end"
    assert all(line.startswith("batch=- instance=- ") for line in said[4:])
