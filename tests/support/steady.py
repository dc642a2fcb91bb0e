"""Run tests again and again next to two busy processes, until one run fails: `make steady`, `make mended`.

    python -m support.steady --rounds 10 --runs 1 tests/x.py::test_y
    python -m support.steady --rounds 5 --runs 100 --seconds 300 tests/x.py::test_y

A round is a pytest process that runs each test `--runs` times, or as often as fits into `--seconds` if that is more.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

BUSY = 2


@contextmanager
def busy_processes(number: int = BUSY) -> Iterator[None]:
    """While entered, `number` processes compute without end."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def runs_of_a_round(at_least: int, seconds: float, of_one: float) -> int:
    """The number of runs in a round: `at_least`, or what takes `seconds` where one run takes `of_one` seconds."""
    return max(at_least, math.ceil(seconds / of_one))


def first_failure(round_: Callable[[int], int], rounds: int, runs: int) -> int | None:
    """Call `round_(runs)` until it does not return 0; returns the number of that round, from 1 on, or None."""
    for number in range(1, rounds + 1):
        if round_(runs) != 0:
            return number
        print(f"round {number} of {rounds}: {runs} runs of each test passed", flush=True)
    return None


def pytest_round(tests: Sequence[str]) -> Callable[[int], int]:
    """A function that runs `tests` that number of times in a new process and returns pytest's exit code."""
    command = [sys.executable, "-m", "pytest", "--exitfirst", *tests]
    return lambda runs: subprocess.run([*command, f"--count={runs}"], check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m support.steady")
    parser.add_argument("tests", nargs="+")
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=0.0)
    given = parser.parse_args()
    round_ = pytest_round(given.tests)
    started = time.perf_counter()
    if round_(1) != 0:
        return 1
    runs = runs_of_a_round(given.runs, given.seconds, time.perf_counter() - started)
    with busy_processes():
        failed = first_failure(round_, given.rounds, runs)
    print(f"not steady: round {failed} failed" if failed else f"steady: {given.rounds} rounds of {runs} runs")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
