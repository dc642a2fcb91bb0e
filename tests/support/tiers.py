"""A level of tests as one command, its record, and `make test-all`.

    python -m support.tiers gate      run the tests of this level (`make test`)
    python -m support.tiers gate FILE ...    but those of files that have just passed (`make rest`)
    python -m support.tiers all       run all levels, but those that passed at this very tree (`make test-all`)

A record is build/tests/LEVEL/record.json, in the folder of pytest's result files. A level continues after a failure.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from support.levels import SMOKE, Level
from support.side_by_side import NO_TESTS_COLLECTED, count, run_all, run_file, slowest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "build" / "tests"
# The tests marked so, of any level. `make test-all` reports them; they make nothing red.
UNSTABLE = "unstable"
TARGETS = {
    Level.GATE.mark: "test",
    Level.CLUSTERS.mark: "test-clusters",
    Level.KUBERNETES.mark: "test-kubernetes",
    Level.NODE.mark: "test-node",
    Level.LONG.mark: "test-long",
    UNSTABLE: "test-unstable",
}
# Tests that start clusters of their own.
RUNS = "tests/runs"
CANARY = "tests/canary/test_canary.py"
LISTED = 20
# Faults of the machine or of a registry, by the text of the exception: a test is tried again after one, but in the gate.
MACHINE_FAULTS = (
    "Address already in use",
    "Temporary failure in name resolution",
    "Could not transfer artifact",
    "TLS handshake timeout",
)
# The gate commits thousands of small files, each synced: on a disk that is a sixth of its CPU, and minutes of waiting.
MEMORY = Path("/dev/shm")
LEAST_FREE = 4 << 30
# A node of the tests with the pods of one topology; on a machine with less than two of them its tests run one by one.
MEMORY_OF_A_NODE = 8 << 30


@dataclass(frozen=True)
class Record:
    """The result of a level. `tree`: its files (`tree_of`); `ended`: seconds of the Unix epoch; `rerun`: second tries."""

    tree: str
    ended: float
    seconds: float
    passed: int
    failed: int
    rerun: int

    @staticmethod
    def read(results: Path) -> Record | None:
        """The record in the folder of a level, or None."""
        file = results / "record.json"
        return Record(**json.loads(file.read_text())) if file.exists() else None

    def write(self, results: Path) -> None:
        (results / "record.json").write_text(json.dumps(asdict(self)))


@dataclass(frozen=True)
class Row:
    """One line of the table: a level, its record (None: it could not begin), and whether it was run now."""

    level: str
    record: Record | None
    ran: bool

    @property
    def red(self) -> bool:
        return self.level != UNSTABLE and (self.record is None or self.record.failed > 0)


def tree_of(root: Path) -> str:
    """Git's name for the files of a checkout as they are now: changed and new ones included, ignored ones not."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "GIT_INDEX_FILE": f"{folder}/index"}
        for words in (("read-tree", "HEAD"), ("add", "--all")):
            subprocess.run(["git", *words], cwd=root, env=environment, check=True)
        tree = subprocess.run(["git", "write-tree"], cwd=root, env=environment, check=True, capture_output=True, text=True)
    return tree.stdout.strip()


# One level


def run_level(level: str, root: Path = ROOT, passed_files: Sequence[str] = ()) -> Record:
    """Run all tests of a level, but those of `passed_files`, and put its record down."""
    results = root / "build" / "tests" / level
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    tree, started = tree_of(root), time.time()
    if level == Level.GATE.mark:
        with _files_in_memory(root):
            counts = _run_at_once(level, root, results, passed_files)
    else:
        counts = _run_in_turn(level, root, results)
    if level == Level.LONG.mark:
        counts.append(_run_canary(root, results))
    passed, failed = (sum(column) for column in zip(*counts, strict=True))
    reruns = _reruns(results)
    rerun = len(reruns.read_text().splitlines()) if reruns.exists() else 0
    record = Record(tree, time.time(), time.time() - started, passed, failed, rerun)
    record.write(results)
    return record


@contextmanager
def _files_in_memory(root: Path) -> Generator[None]:
    """Give processes that start in this context a temporary folder in memory, where the machine has enough of it.

    A checkout has one such folder, so that what a killed gate leaves goes with the next.
    """
    if "TMPDIR" in os.environ or not MEMORY.is_dir() or shutil.disk_usage(MEMORY).free < LEAST_FREE:
        yield
        return
    folder = MEMORY / sha256(bytes(root)).hexdigest()[:4]  # the path of a socket has at most 107 letters
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    os.environ["TMPDIR"] = str(folder)
    try:
        yield
    finally:
        del os.environ["TMPDIR"]
        shutil.rmtree(folder, ignore_errors=True)


def _run_in_turn(level: str, root: Path, results: Path) -> list[tuple[int, int]]:
    return [_run_together(level, root, results), _run_side_by_side(level, root, results)]


def _run_at_once(level: str, root: Path, results: Path, passed_files: Sequence[str]) -> list[tuple[int, int]]:
    """Real clusters wait for a third of their time, and the other tests use it: these step back for the clusters."""
    with ThreadPoolExecutor(1) as clusters:
        side_by_side = clusters.submit(_run_side_by_side, level, root, results)
        ignored = [f"--ignore={file}" for file in passed_files]
        return [_run_together(level, root, results, before=("nice", "-n", "10"), but=ignored), side_by_side.result()]


def _options(level: str, results: Path) -> list[str]:
    if level == Level.GATE.mark:  # exact, so never tried again
        return ["--level", level, "-o", "tmp_path_retention_policy=failed"]
    chosen = ["--unstable"] if level == UNSTABLE else ["--level", level]
    faults = [word for fault in MACHINE_FAULTS for word in ("--only-rerun", fault)]
    return [*chosen, "--reruns", "2", "--rerun-except", "AssertionError", *faults, "--rerun-log", str(_reruns(results))]


def _reruns(results: Path) -> Path:
    return results / "reruns.txt"


def _run_together(
    level: str, root: Path, results: Path, before: Sequence[str] = (), but: Sequence[str] = ()
) -> tuple[int, int]:
    """Run what can share processes, in two of them; unstable tests in one. Returns (passed, failed).

    Each of the two begins with one half, so that most fixtures of a file are made once, and helps the other in the end.
    """
    result = results / "together.xml"
    where = {Level.NODE.mark: ["tests/node", "-n", str(_nodes())], UNSTABLE: ["tests"]}
    parallel = ["tests", "-n", "2", "--dist", "worksteal", "--ignore", RUNS, "--ignore", "tests/node"]
    chosen = [*where.get(level, parallel), *_options(level, results), *but, f"--junitxml={result}"]
    command = [*before, sys.executable, "-m", "pytest", *chosen]
    code = subprocess.run(command, cwd=root, check=False).returncode
    if code == NO_TESTS_COLLECTED and level == UNSTABLE:
        return 0, 0
    passed, failed = count(result) if result.exists() else (0, 1)
    return passed, failed or int(code != 0)


def _nodes() -> int:
    """The number of Kubernetes nodes that this machine has the memory for, two at most."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 2 if memory >= 2 * MEMORY_OF_A_NODE else 1


def _run_side_by_side(level: str, root: Path, results: Path) -> tuple[int, int]:
    """Run the files that need a process each; those of the gate share one, and its cluster. Returns (passed, failed)."""
    files = [] if level == UNSTABLE else _files_in_runs(level, root)
    processes = 2 if level == Level.CLUSTERS.mark else 1
    ended = run_all(files, processes, _options(level, results), results, root)
    return sum(one.passed for one in ended), sum(one.failed for one in ended)


def _files_in_runs(level: str, root: Path) -> list[str]:
    """The files with tests of this level, as pytest finds them; the folder, which then is red, if one cannot be imported.

    For the gate the folder at once: pytest takes seconds to find them.
    """
    if level == Level.GATE.mark:
        return [RUNS] if any(f"mark.{SMOKE}" in file.read_text() for file in (root / RUNS).glob("test_*.py")) else []
    command = [sys.executable, "-m", "pytest", RUNS, "--level", level, "--collect-only", "-qq"]
    listed = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=False)
    if listed.returncode not in (0, NO_TESTS_COLLECTED):
        return [RUNS]
    return re.findall(r"^(\S+\.py): \d+$", listed.stdout, re.MULTILINE)


def _run_canary(root: Path, results: Path) -> tuple[int, int]:
    """Run the test that has to fail by its own finding; passed: it did. Returns (passed, failed)."""
    ended = run_file(CANARY, (), results / "canary", root)
    red = (ended.passed, ended.failed) == (0, 1) and "the story:" in ended.output
    print("the canary is red, as it has to be" if red else f"the canary is not red:\n{ended.output}", flush=True)
    return (1, 0) if red else (0, 1)


# All levels


def run_all_levels(make: Callable[[str], None], root: Path = ROOT) -> list[Row]:
    """Run each level by its target of make, one after the other; one that passed at this very tree keeps its record."""
    tree, rows = tree_of(root), []
    for level, target in TARGETS.items():
        results = root / "build" / "tests" / level
        record = Record.read(results)
        if record is not None and record.tree == tree and record.failed == 0 and level != UNSTABLE:
            rows.append(Row(level, record, ran=False))
            continue
        (results / "record.json").unlink(missing_ok=True)
        make(target)
        rows.append(Row(level, Record.read(results), ran=True))
    return rows


def table(rows: Sequence[Row], now: float) -> list[str]:
    """Lines for people: what each level found, how long it took, and the age of the oldest of these results."""
    lines = [f"{'level':<12}{'passed':>8}{'failed':>8}{'rerun':>7}{'minutes':>9}"]
    for row in rows:
        if row.record is None:
            lines.append(f"{row.level:<12}{'did not run: see its output above':>32}")
            continue
        one, age = row.record, "" if row.ran else f"  passed at this tree {_age(now - row.record.ended)} ago"
        lines.append(f"{row.level:<12}{one.passed:>8}{one.failed:>8}{one.rerun:>7}{one.seconds / 60:>9.1f}{age}")
    if all(row.record is not None and not row.red for row in rows):
        began = min(row.record.ended - row.record.seconds for row in rows if row.record is not None)
        lines.append(f"all levels passed at this tree, the first of them {_age(now - began)} ago")
    return lines


def _age(seconds: float) -> str:
    return f"{seconds / 3600:.1f} hours" if seconds >= 3600 else f"{seconds / 60:.0f} minutes"


def main(level: str, *passed_files: str) -> int:
    if level != "all":
        record = run_level(level, passed_files=passed_files)
        print(f"{record.passed} passed, {record.failed} failed")
        return 1 if record.failed and level != UNSTABLE else 0
    rows = run_all_levels(lambda target: subprocess.run(["make", "--no-print-directory", target], cwd=ROOT, check=False))
    print(f"the slowest {LISTED} tests:")
    for seconds, test in slowest(RESULTS, LISTED):
        print(f"  {seconds:7.1f} s  {test}")
    print("\n".join(table(rows, time.time())))
    return 1 if any(row.red for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
