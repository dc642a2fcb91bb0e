"""Ctrl-C and SIGTERM: the first one stops a run after its batch, before it and after it they end the process at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from streamtopology.jobs.local.interrupts import Interrupts


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def left() -> list[int]:
    return []


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def _ctrl_c_of_a_terminal() -> Iterator[None]:
    """A shell's background job, as CI may be, ignores Ctrl-C; a run heeds that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _logging_again() -> Iterator[None]:
    import logging

    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(("number", "name", "code"), [(signal.SIGINT, "Ctrl-C", 130), (signal.SIGTERM, "SIGTERM", 143)])
def test_first_signal_stops_the_run_and_the_process_lives(
    left: list[int], clock: Clock, number: signal.Signals, name: str, code: int
) -> None:
    interrupts, stopped = Interrupts(left.append, clock), threading.Event()
    with interrupts.caught(), interrupts.stopping(stopped.set):
        os.kill(os.getpid(), number)
        assert stopped.wait(20)
    assert (interrupts.name, interrupts.exit_code, left) == (name, code, [])


def test_second_signal_ends_the_process_after_its_last_words(left: list[int], clock: Clock) -> None:
    interrupts, words = Interrupts(left.append, clock), list[str]()
    interrupts.last_words = lambda: words.append("a report")
    with interrupts.stopping(lambda: None):
        interrupts.take(signal.SIGINT)
        assert (words, left) == ([], [])
        clock.now += 1
        interrupts.take(signal.SIGTERM)
    assert (words, left) == (["a report"], [130])


def test_same_signal_passed_on_by_a_parent_counts_once(left: list[int], clock: Clock) -> None:
    interrupts = Interrupts(left.append, clock)
    with interrupts.stopping(lambda: None):
        interrupts.take(signal.SIGINT)
        clock.now += 0.1
        interrupts.take(signal.SIGINT)
    assert left == []


def test_signal_while_nothing_runs_ends_the_process(left: list[int], clock: Clock) -> None:
    interrupts = Interrupts(left.append, clock)
    interrupts.take(signal.SIGINT)
    assert left == [130]


def test_last_words_that_hang_do_not_keep_the_process(left: list[int]) -> None:
    interrupts, never = Interrupts(left.append, last_words_seconds=0.01), threading.Event()
    interrupts.last_words = never.wait
    interrupts.take(signal.SIGINT)
    never.set()
    assert left == [130]


def test_handlers_of_before_are_restored(left: list[int]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts(left.append).caught():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before


def test_ctrl_c_while_modules_load_is_one_line(capfd: pytest.CaptureFixture) -> None:
    program = (
        "import sys, builtins; load = builtins.__import__\n"
        "def broken_off(name, *given):\n"
        "    if name == 'click': raise KeyboardInterrupt\n"
        "    return load(name, *given)\n"
        "builtins.__import__ = broken_off\n"
        "from streamtopology.jobs.cli.process import main; sys.exit(main())"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 130
    assert capfd.readouterr() == ("", "Ctrl-C: ended before anything was done\n")
