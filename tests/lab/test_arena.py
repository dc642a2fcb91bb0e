"""The arena: an engine that cannot be had, or dies, has a row that says so; what has been measured is not measured again."""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from streamtopology.lab.arena.engines import ENGINES, Engine, Place
from streamtopology.lab.arena.nexmark import expected_counts
from streamtopology.lab.arena.page import nexmark_table
from streamtopology.lab.arena.peer import Arena, Measurement, PeerDied, run_script
from streamtopology.lab.nexmark.configuration import NexmarkConfiguration
from streamtopology.lab.nexmark.events import write_events
from streamtopology.lab.nexmark.sql import SQL

HERE = {"here": Engine("Here"), "nowhere": Engine("Nowhere", ("no-such @ file:///nowhere/no-such-1.0.whl",))}


def script(folder: Path, text: str) -> Path:
    path = folder / "peer.py"
    path.write_text("import json, sys, os, time\nrequest = json.loads(sys.argv[1])\n" + textwrap.dedent(text))
    return path


def arena(folder: Path, said: list[str], *, fresh: bool = False, engines: Mapping[str, Engine] = HERE) -> Arena:
    return Arena(engines, Place(folder), said.append, fresh=fresh)


def test_a_result_has_all_fields_that_were_printed_and_its_progress_is_shown(tmp_path: Path):
    peer = script(
        tmp_path,
        """
        print(json.dumps({"progress": "counts", "settings": {"a": 1}}), flush=True)
        print("a line for the log")
        print(json.dumps({"seconds": [request["wanted"]]}))
        """,
    )
    said: list[str] = []
    row = arena(tmp_path, said).row(Measurement("here", "case/q0", peer, {"wanted": 2.5}))
    assert row["settings"] == {"a": 1}
    assert row["seconds"] == [2.5]
    assert said == ["case/q0: Here: counts", "case/q0: Here: done"]
    assert not list((tmp_path / "work").iterdir())
    assert (tmp_path / "results/case/q0/here.log").read_text() == "a line for the log\n"


def test_a_done_measurement_is_not_run_again_unless_asked_differently_or_fresh(tmp_path: Path):
    peer = script(tmp_path, "print(json.dumps({'at': time.time()}))")

    def at(wanted: int, *, fresh: bool = False, pins: str = "1") -> float:
        engines = {"here": Engine("Here", jars=(pins,))}
        return arena(tmp_path, [], fresh=fresh, engines=engines).row(Measurement("here", "case", peer, {"wanted": wanted}))[
            "at"
        ]

    first = at(1)
    assert at(1) == first
    other = at(2)
    assert other != first
    assert at(2) == other
    assert at(2, fresh=True) != other
    newest = at(2)
    assert at(2, pins="2") != newest


def test_an_engine_that_cannot_be_had_has_a_row_and_the_others_stay(tmp_path: Path):
    peer = script(tmp_path, "print(json.dumps({'seconds': [1.0]}))")
    said: list[str] = []
    every = arena(tmp_path, said)
    rows = [every.row(Measurement(engine, "case", peer, {})) for engine in ("nowhere", "here", "nowhere")]
    assert "failed: " in rows[0]["failed"]
    assert "/nowhere/no-such-1.0.whl" in rows[0]["failed"]
    assert rows[1]["seconds"] == [1.0]
    assert rows[2]["failed"] == rows[0]["failed"]
    assert sum("makes" in line for line in said) == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("print(json.dumps({'count': 1}), flush=True); raise ValueError('no more memory')", "exit code 1: ValueError: no more"),
        ("print(json.dumps({'count': 1}), flush=True); os.kill(os.getpid(), 9)", "signal 9: it said nothing"),
        ("print('java.io.IOException: disk full'); print('... 9 more'); sys.exit(1)", "exit code 1: java.io.IOException: disk"),
        ("print('nothing of use')", "exit code 0: nothing of use"),
    ],
)
def test_a_peer_that_dies_in_the_middle_has_a_row_and_is_tried_again(tmp_path: Path, text: str, reason: str):
    every = arena(tmp_path, [])
    measurement = Measurement("here", "case", script(tmp_path, text), {})
    assert reason in every.row(measurement)["failed"]
    script(tmp_path, "print(json.dumps({'seconds': [1.0]}))")
    assert every.row(measurement)["seconds"] == [1.0]


def test_a_peer_that_hangs_is_ended_with_all_that_it_has_started(tmp_path: Path):
    peer = script(
        tmp_path,
        """
        import subprocess
        child = subprocess.Popen(["sleep", "600"])
        print(json.dumps({"progress": str(child.pid)}), flush=True)
        child.wait()
        """,
    )
    said: list[dict[str, Any]] = []
    with pytest.raises(PeerDied, match="took more than"):
        run_script(["python3", str(peer), "{}"], tmp_path / "log", said.append, seconds=3)
    pid = said[0]["progress"]
    while Path("/proc", pid).exists() and "Z" not in Path("/proc", pid, "stat").read_text().rsplit(")", 1)[1]:
        time.sleep(0.05)


def test_a_changed_script_makes_its_results_another_ones(tmp_path: Path):
    first = arena(tmp_path, []).row(Measurement("here", "case", script(tmp_path, "print(json.dumps({'found': 1}))"), {}))
    assert first["found"] == 1
    second = arena(tmp_path, []).row(Measurement("here", "case", script(tmp_path, "print(json.dumps({'found': 2}))"), {}))
    assert second["found"] == 2


def row(engine: str, query: str, **found: Any) -> dict[str, Any]:
    known = {"engine": engine, "query": query, "events": 1_000_000, "expected": 10, "count": 10, "pins": ""}
    return {**known, **found}


def test_the_table_says_where_flink_is_faster_and_what_failed():
    rows = [
        row("streamtopology", "q0", seconds=[3.0, 1.0, 2.0], settings={"executors": 2}),
        row("flink", "q0", seconds=[1.0], pins="apache-flink==2.3.0", settings={"parallelism.default": "2"}),
        row("streamtopology", "q1", seconds=[1.0]),
        row("flink", "q1", seconds=[8.0]),
        row("streamtopology", "q2", seconds=[1.0]),
        row("flink", "q2", failed="exit code 1: a | b"),
        row("streamtopology", "q3", seconds=[1.0]),
        row("flink", "q3", seconds=[1.0], count=9),
        row("flink", "q4", seconds=[2.0], count=5, expected=None),
        row("flink", "q5", seconds=[2.0], count=0, expected=None),
        row("streamtopology", "q10", seconds=[1.0]),
        row("flink", "q10", seconds=[1.0]),
    ]
    table = nexmark_table(rows)
    assert "| q0 | 500 | 1,000 | 0.50 x | Flink is faster, 2.00 x |" in table
    assert "| q1 | 1,000 | 125 | 8.00 x |  |" in table
    assert "| q2 | 1,000 | - |  | Flink SQL 2.3.0: exit code 1: a / b |" in table
    assert "| q3 | 1,000 | - |  | Flink SQL 2.3.0 gives 9 rows, DuckDB 10: no speed |" in table
    assert "| q4 | - | 500 |  | Flink SQL 2.3.0: rows not checked |" in table
    assert "| q5 | - | - |  | Flink SQL 2.3.0: rows not checked, and there are none: no speed |" in table
    assert "| q10 | 1,000 | 1,000 |  |  |" in table
    assert "Geometric mean of 2 queries: 2.00 x Flink. Flink is faster in 1 of them." in table
    assert "Flink SQL 2.3.0 (apache-flink==2.3.0): `parallelism.default: 2`" in table


def test_a_table_without_a_speed_has_no_mean():
    assert "there is no mean" in nexmark_table([row("streamtopology", "q0", failed="it died")])


def test_every_query_has_an_expected_count(tmp_path: Path):
    write_events(tmp_path, NexmarkConfiguration(first_event_rate=100), 5_000, 2)
    counts = expected_counts(tmp_path)
    assert counts.keys() == SQL.keys()
    assert counts["q0"] == counts["q12"] == 4_600
    assert counts["q18"] < counts["q0"]


def test_engines_have_pinned_versions():
    for engine in ENGINES.values():
        assert all("==" in package for package in engine.packages)
        assert all(jar.count(":") == 2 for jar in engine.jars)


def test_a_kept_result_that_is_no_json_is_measured_again(tmp_path: Path):
    peer = script(tmp_path, "print(json.dumps({'seconds': [1.0]}))")
    (tmp_path / "results").mkdir()
    (tmp_path / "results/case").mkdir()
    (tmp_path / "results/case/here.json").write_text(json.dumps({"seconds": [2.0]})[:5])
    assert arena(tmp_path, []).row(Measurement("here", "case", peer, {}))["seconds"] == [1.0]
