"""Run test files side by side, each in a process of its own, and count what pytest wrote down.

A process has one Spark session, so test files that start clusters of their own cannot share one. The output of a file is
printed when the file has ended, as one piece.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

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


def run_file(file: str, options: Sequence[str], results: Path, root: Path) -> Ended:
    """Run pytest on `file` in a new process, in the folder `root`.

    A file without a result, or without any test, counts as one failed test.
    """
    results.mkdir(parents=True, exist_ok=True)
    result = results / f"{Path(file).stem}.xml"
    result.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", file, *options, f"--junitxml={result}"]
    started = time.perf_counter()
    done = subprocess.run(
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False
    )
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
    """(seconds, test) of the slowest tests in all JUnit files below the folder, the slowest first."""
    cases = [case for file in results.rglob("*.xml") for case in ElementTree.parse(file).getroot().iter("testcase")]
    timed = [(float(case.get("time", 0)), f"{case.get('classname')}::{case.get('name')}") for case in cases]
    return sorted(timed, reverse=True)[:most]


def run_all(files: Sequence[str], processes: int, options: Sequence[str], results: Path, root: Path) -> list[Ended]:
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
        for future in as_completed([pool.submit(run_file, file, options, results, root) for file in files]):
            one = future.result()
            waiting.discard(one.file)
            ended.append(one)
            print(f"\n--- {one.file}: {one.passed} passed, {one.failed} failed, {one.seconds:.0f} s\n{one.output}", flush=True)
    finished.set()
    return ended
