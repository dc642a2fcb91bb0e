"""Levels as commands: every failure counts, what passed at this very tree is not run again, only a machine's faults are."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from support.side_by_side import count
from support.steady import first_failure, runs_of_a_round
from support.tiers import CANARY, Record, Row, run_all_levels, run_level, table, tree_of

TESTS = Path(__file__).parent
FLAWED = """
from pathlib import Path
import pytest
TRIES = Path(__file__).with_suffix(".tries")

def test_good():
    pass

@pytest.mark.clusters
def test_port_that_is_taken_once():
    TRIES.touch()
    with TRIES.open("a") as tries:
        tries.write("x")
    if TRIES.read_text() == "x":
        raise OSError(98, "Address already in use")

@pytest.mark.clusters
def test_assertion_that_names_a_port():
    assert False, "Address already in use"

@pytest.mark.unstable("hopes", since="2026-11-25")
def test_that_hopes():
    assert False
"""
RED = 'def test_canary():\n    print("the story: it loses rows")\n    assert False\n'
GREEN = "def test_canary():\n    pass\n"
BROKEN = "import no_such_package\n"
OF_SEVERAL_LEVELS = """
import pytest

@pytest.mark.smoke
def test_that_gates():
    pass

def test_on_a_cluster():
    pass

@pytest.mark.long
def test_long():
    pass
"""
LONG = "import pytest\n\n@pytest.mark.long\ndef test_long():\n    pass\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small repository with tests of several levels, under this checkout's rules."""
    root = tmp_path / "checkout"
    for folder in ("tests/runs", "tests/node", "tests/canary"):
        (root / folder).mkdir(parents=True)
    (root / ".gitignore").write_text("build/\n*.tries\n__pycache__/\n.pytest_cache/\n")
    (root / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\naddopts = "-q -p no:cacheprovider --import-mode=importlib"\nnorecursedirs = ["canary"]\n'
        'markers = ["clusters", "long", "smoke", "unstable(symptom, since)"]\n'
    )
    (root / "tests" / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    shutil.copytree(TESTS / "support", root / "tests" / "support", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "tests" / "test_flawed.py").write_text(FLAWED)
    for words in (("init", "--quiet"), ("add", "--all")):
        subprocess.run(["git", *words], cwd=root, check=True)
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run(["git", *identity, "commit", "--quiet", "--message", "first"], cwd=root, check=True)
    return root


@pytest.mark.clusters
def test_machines_fault_is_tried_again_and_an_assertion_never_is(checkout: Path) -> None:
    record = run_level("clusters", checkout)
    assert (record.passed, record.failed, record.rerun) == (1, 1, 1)
    assert Record.read(checkout / "build" / "tests" / "clusters") == record


@pytest.mark.clusters
def test_unstable_test_is_no_part_of_its_level(checkout: Path) -> None:
    gate, unstable = run_level("gate", checkout), run_level("unstable", checkout)
    assert (gate.passed, gate.failed) == (1, 0)
    assert (unstable.passed, unstable.failed) == (0, 1)
    assert not Row("unstable", unstable, ran=True).red


@pytest.mark.clusters
@pytest.mark.parametrize(("canary", "failed"), [(RED, 0), (GREEN, 1), (BROKEN, 1)], ids=["red", "green", "broken"])
def test_long_level_fails_unless_its_canary_is_red(checkout: Path, canary: str, failed: int) -> None:
    (checkout / CANARY).write_text(canary)
    (checkout / "tests" / "test_long.py").write_text(LONG)
    (checkout / "tests" / "runs" / "test_simulated_lives.py").write_text(LONG)
    record = run_level("long", checkout)
    assert (record.passed, record.failed) == (3 - failed, failed)


@pytest.mark.clusters
@pytest.mark.parametrize(("level", "file"), [("gate", "runs"), ("clusters", "test_several"), ("long", "test_several")])
def test_file_in_runs_is_played_by_each_level_that_it_has_tests_of(checkout: Path, level: str, file: str) -> None:
    (checkout / CANARY).write_text(RED)
    (checkout / "tests" / "test_flawed.py").write_text(
        GREEN + LONG + "\n@pytest.mark.clusters\ndef test_cluster():\n    pass\n"
    )
    runs = checkout / "tests" / "runs"
    (runs / "test_several.py").write_text(OF_SEVERAL_LEVELS)
    (runs / "test_of_no_level.py").write_text("import pytest\n\n@pytest.mark.unstable\ndef test_hopes():\n    assert False\n")
    record = run_level(level, checkout)
    assert (record.passed, record.failed) == (3 if level == "long" else 2, 0)
    assert count(checkout / "build" / "tests" / level / f"{file}.xml") == (1, 0)


@pytest.mark.clusters
def test_file_in_runs_that_cannot_be_imported_is_red(checkout: Path) -> None:
    (checkout / "tests" / "runs" / "test_broken.py").write_text(BROKEN)
    (checkout / "tests" / "test_flawed.py").write_text(
        "import pytest\n\n@pytest.mark.clusters\ndef test_cluster():\n    pass\n"
    )
    record = run_level("clusters", checkout)
    assert (record.passed, record.failed) == (1, 1)


def test_tree_is_that_of_the_files_and_not_of_the_commit(checkout: Path) -> None:
    first = tree_of(checkout)
    (checkout / "build").mkdir()
    (checkout / "build" / "result").touch()
    assert tree_of(checkout) == first
    (checkout / "new.py").touch()
    assert tree_of(checkout) != first
    (checkout / "new.py").unlink()
    assert tree_of(checkout) == first


def test_all_levels_run_but_those_that_passed_at_this_tree(checkout: Path) -> None:
    tree, results = tree_of(checkout), checkout / "build" / "tests"
    for level, failed in (("gate", 0), ("clusters", 1), ("unstable", 0)):
        (results / level).mkdir(parents=True)
        Record(tree, 100.0, 60.0, 5, failed, 0).write(results / level)
    made: list[str] = []
    rows = run_all_levels(made.append, checkout)
    assert made == ["test-clusters", "test-kubernetes", "test-node", "test-long", "test-unstable"]
    assert [row.level for row in rows if row.red] == ["clusters", "kubernetes", "node", "long"]
    assert table(rows, 160.0)[1:3] == [
        "gate               5       0      0      1.0  passed at this tree 1 minutes ago",
        "clusters    did not run: see its output above",
    ]


def test_table_gives_the_age_of_a_whole_run() -> None:
    rows = [
        Row("gate", Record("t", 7200.0, 600.0, 3, 0, 0), ran=False),
        Row("long", Record("t", 9000.0, 60.0, 1, 0, 0), ran=True),
    ]
    assert table(rows, 9000.0)[-1] == "all levels passed at this tree, the first of them 40 minutes ago"


def test_round_of_a_mended_test_is_long_enough() -> None:
    assert runs_of_a_round(100, 300.0, 10.0) == 100
    assert runs_of_a_round(100, 300.0, 0.5) == 600
    assert first_failure(lambda runs: 0, 5, 100) is None
    codes = iter([0, 0, 1, 0])
    assert first_failure(lambda runs: next(codes), 4, 100) == 3
