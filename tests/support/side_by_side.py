"""Run test files side by side, each in a process of its own, and list the slowest tests of all runs so far.

    python -m support.side_by_side -n 2 tests/runs/test_*.py
    python -m support.side_by_side --slowest 30

A process has one Spark session, so test files that start clusters of their own cannot share one. What a file prints is
printed when it has ended, as one piece.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).parents[2] / "build" / "tests"
HEARTBEAT_SECONDS = 60.0
NO_TESTS_COLLECTED = 5


@dataclass(frozen=True)
class Ended:
    """One file's run. `code`: pytest's exit code; `passed` and `failed`: tests, errors included in `failed`."""

    file: str
    code: int
    seconds: float
    output: str
    passed: int
    failed: int


def run_file(file: str, options: Sequence[str] = (), results: Path = RESULTS) -> Ended:
    """Run pytest on `file` in a new process. A file without a result, or without any test, counts as one failed test."""
    result = results / f"{Path(file).stem}.xml"
    result.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", file, *options, f"--junitxml={result}"]
    started = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    seconds = time.perf_counter() - started
    passed, failed = count(result) if result.exists() else (0, 1)
    if done.returncode == NO_TESTS_COLLECTED or (done.returncode != 0 and failed == 0):
        failed = 1
    return Ended(file, done.returncode, seconds, done.stdout, passed, failed)


def count(result: Path) -> tuple[int, int]:
    """Tests that passed, and tests that failed or ended in an error, by pytest's JUnit file. Skipped ones are neither."""
    suites = ElementTree.parse(result).getroot().iter("testsuite")
    totals = [[int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")] for suite in suites]
    tests, failures, errors, skipped = (sum(column) for column in zip(*totals, strict=True))
    return tests - failures - errors - skipped, failures + errors


def slowest(results: Path, most: int) -> list[tuple[float, str]]:
    """(seconds, test) of the slowest tests in all JUnit files of the folder, the slowest first."""
    cases = [case for file in results.glob("*.xml") for case in ElementTree.parse(file).getroot().iter("testcase")]
    timed = [(float(case.get("time", 0)), f"{case.get('classname')}::{case.get('name')}") for case in cases]
    return sorted(timed, reverse=True)[:most]


def run_all(files: Sequence[str], processes: int, options: Sequence[str] = (), results: Path = RESULTS) -> list[Ended]:
    """Run the files in the order given, `processes` at a time, and print each when it has ended."""
    waiting = set(files)
    finished = threading.Event()

    def heartbeat() -> None:
        started = time.perf_counter()
        while not finished.wait(HEARTBEAT_SECONDS):
            print(f"[{time.perf_counter() - started:5.0f} s] {len(waiting)} of {len(files)} files not ended", flush=True)

    threading.Thread(target=heartbeat, daemon=True).start()
    ended: list[Ended] = []
    with ThreadPoolExecutor(processes) as pool:
        for future in as_completed([pool.submit(run_file, file, options, results) for file in files]):
            one = future.result()
            waiting.discard(one.file)
            ended.append(one)
            print(f"\n--- {one.file}: {one.passed} passed, {one.failed} failed, {one.seconds:.0f} s\n{one.output}", flush=True)
    finished.set()
    return ended


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m support.side_by_side")
    parser.add_argument("files", nargs="*")
    parser.add_argument("-n", dest="processes", type=int, default=2, help="files at a time")
    parser.add_argument("-m", dest="marker", help="pytest's marker expression")
    parser.add_argument("--slowest", type=int, default=0, help="list this number of the slowest tests of the newest results")
    given = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    ended = run_all(given.files, given.processes, ["-m", given.marker] if given.marker else []) if given.files else []
    for seconds, test in slowest(RESULTS, given.slowest):
        print(f"  {seconds:7.1f} s  {test}")
    if ended:
        print(f"{sum(one.passed for one in ended)} passed, {sum(one.failed for one in ended)} failed")
    return 1 if any(one.code != 0 or one.failed for one in ended) else 0


if __name__ == "__main__":
    sys.exit(main())
