"""The quickstart does what it says, block by block, as printed: own data, a change while it runs, a kill, a stop."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from support.printed import blocks, clone, kill, run, running
from support.waiting import eventually

PAGE = "docs/start/quickstart.md"
INSTALL = blocks(PAGE, "Quickstart")[0]

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clone(tmp_path_factory.mktemp("quickstart"))


@pytest.fixture(autouse=True)
def own_sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Topologies of the same names may run beside the test; a socket's path may have no more than 107 characters."""
    with tempfile.TemporaryDirectory() as short:
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        yield


def test_own_files_are_totalled_once_and_later_ones_are_added(folder: Path) -> None:
    first, more = blocks(PAGE, "Your own data")
    printed = run(INSTALL + first, folder, 400)
    assert "valid" in printed
    assert _totals(folder / "out/flights") == _group_by(folder / "data/flights")
    same_again = first.splitlines()[-1]
    printed = run(f"{INSTALL}{same_again}", folder, 200)
    assert "nothing new" in printed
    run(INSTALL + more, folder, 200)
    assert len(list((folder / "data/flights").glob("*.parquet"))) == 33
    assert _totals(folder / "out/flights") == _group_by(folder / "data/flights")


def test_clicks_resized_killed_started_again_and_stopped_count_once_each(folder: Path) -> None:
    endless, second_shell = blocks(PAGE, "Change it while it runs")
    *changes, stop = second_shell.splitlines()
    log = folder / "clicks.log"
    with running(INSTALL + endless, folder, log) as shell:
        eventually(lambda: _has_counted(folder), 200)
        for change in changes:
            run(f"{INSTALL}{change}", folder, 100)
        kill(shell)
    before = _clicks(folder)
    with running(INSTALL + endless, folder, log) as shell:
        eventually(lambda: _clicks(folder) > before, 200)
        run(f"{INSTALL}{stop}", folder, 100)
        assert shell.wait(100) == 0, log.read_text()
    assert _counts(folder) == _expected_counts(_clicks(folder))


def _totals(results: Path) -> list[tuple[object, ...]]:
    """The newest row of each destination in a sink of updates: the one that has counted most."""
    return duckdb.execute(f"""
        SELECT dest, max(rows), arg_max(total_distance, rows), arg_max(total_dep_delay, rows)
        FROM '{results}/batch-*.parquet' GROUP BY dest ORDER BY dest
    """).fetchall()


def _group_by(data: Path) -> list[tuple[object, ...]]:
    return duckdb.execute(
        f"SELECT dest, count(*), sum(distance), sum(dep_delay) FROM '{data}/*.parquet' GROUP BY dest ORDER BY dest"
    ).fetchall()


def _has_counted(folder: Path) -> bool:
    return any((folder / "build/pages").glob("batch-*.parquet"))


def _counts(folder: Path) -> list[tuple[int, int]]:
    """The newest count of each page; what a kill leaves of a file has a name with a dot, which is no data."""
    return duckdb.execute(
        f"SELECT page, max(count) FROM '{folder}/build/pages/batch-*.parquet' GROUP BY page ORDER BY page"
    ).fetchall()


def _clicks(folder: Path) -> int:
    return sum(count for _, count in _counts(folder))


def _expected_counts(clicks: int) -> list[tuple[int, int]]:
    """The same counts from the numbers that Spark's `rate` counts up: all below `clicks`, each once."""
    return duckdb.execute(f"""
        SELECT floor(1000 * power((value * 7919 % 1000003) / 1000003, 4))::BIGINT AS page, count(*)
        FROM range({clicks}) AS rate(value) GROUP BY page ORDER BY page
    """).fetchall()
