"""The arena's keyed count: what is said of a run by its samples, and the samples that are taken."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtopology.jobs.errors import WrongUse
from streamtopology.lab.arena import keyed_rows
from streamtopology.lab.arena.engines import ENGINES, EngineMissing, Place
from streamtopology.lab.arena.keyed import COUNT, Case, Keyed, judge, measure, worker_cpu
from streamtopology.lab.arena.keyed_page import keyed_table, picture
from streamtopology.lab.arena.limits import WorkerGroups
from streamtopology.lab.arena.peer import SCRIPTS, Arena
from streamtopology.lab.arena.run import run_keyed
from streamtopology.lab.arena.timeline import Moving, Slowing, Timeline, lead, rate, so_far


def run_of(after: float, back: float, *, busy: float = 0.9) -> dict[str, Any]:
    """100 rows/s until second 90, none for `back` seconds, then `after`; of four workers of half a core `busy` works."""

    def rows(second: float) -> float:
        return 100 * min(second, 90) + after * max(0.0, second - 90 - back)

    def cpu(second: float) -> list[float]:
        fast = busy * 0.5 * second
        return [fast, fast, fast, busy * (0.5 * min(second, 90) + 0.15 * max(0.0, second - 90))]

    return {
        "engine": "flink",
        "skew": 1.0,
        "change": "slowed",
        "run": 0,
        "request": {"cpus": [0.5] * 4, "change": {"worker": 3, "cpu": 0.15, "at": 90.0}, "seconds": 180.0},
        "changed_at": 90.0,
        "rows_at": [(second, rows(second)) for second in range(1, 181)],
        "cpu_at": [(second / 2, cpu(second / 2)) for second in range(1, 361)],
        "found": [3, 10, 5],
        "expected": [3, 10, 5],
        "settings": {"a": 1},
        "pins": "flink==1",
    }


def test_a_run_is_judged_by_what_was_before_and_what_is_left_to_pay():
    found = judge(run_of(after=80.0, back=4.0))
    assert found.before == pytest.approx(100)
    assert found.after == pytest.approx(80)
    assert found.busy_before == pytest.approx(0.9)
    assert found.busy_after == pytest.approx(0.9)
    assert found.share_of_bound == pytest.approx(0.80 / (1.65 / 2))
    assert found.back_after == pytest.approx(4, abs=0.5)


def test_a_run_that_stays_below_the_bound_is_not_back():
    assert judge(run_of(after=90.0, back=0.0)).back_after == pytest.approx(0, abs=0.5)
    assert judge(run_of(after=70.0, back=0.0)).back_after is None


def test_keys_that_move_leave_the_bound_where_it_was_and_batches_count_until_it_is_reached():
    run = run_of(after=98.0, back=4.0)
    moved = {"at": 90.0, "link": "rows", "target": "others"}
    found = judge({**run, "request": {**run["request"], "change": moved, "files_of_a_batch": 8}})
    assert found.share_of_bound == pytest.approx(0.98)
    assert found.back_after == pytest.approx(4, abs=0.5)
    assert found.batches == 4


SAMPLES = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 50)), min_size=1, max_size=20, unique_by=lambda s: s[0]).map(
    lambda steps: [(float(at), float(sum(more for before, more in steps if before <= at))) for at, _ in sorted(steps)]
)


@given(SAMPLES, st.floats(-5, 105), st.floats(0.1, 50))
def test_rows_so_far_are_those_of_the_line_between_samples(samples: list[tuple[float, float]], at: float, seconds: float):
    def slow(second: float) -> float:
        before = max((sample for sample in samples if sample[0] <= second), default=samples[0])
        after = min((sample for sample in samples if sample[0] >= second), default=samples[-1])
        if before[0] >= after[0]:
            return before[1]
        return before[1] + (after[1] - before[1]) * (second - before[0]) / (after[0] - before[0])

    assert so_far(samples, at) == pytest.approx(slow(at))
    assert rate(samples, at, at + seconds) == pytest.approx((slow(at + seconds) - slow(at)) / seconds)


class Groups(WorkerGroups):
    """Remembers what was limited, in place of cgroups."""

    def __init__(self) -> None:
        self.limits: list[tuple[int, float]] = []
        self.limited = threading.Event()

    def limit(self, worker: int, cpu: float) -> None:
        self.limits.append((worker, cpu))
        self.limited.set()

    def cpu_seconds(self) -> list[float]:
        return [1.0, 2.0]


def test_a_timeline_slows_the_worker_once_and_keeps_the_rows_that_it_hears():
    groups = Groups()
    with Timeline(Slowing(1, 0.3, at=0.0), groups) as timeline:
        timeline.heard({"rows": 5, "at": 0.0})
        assert not groups.limits
        timeline.heard({"began": True})
        timeline.heard({"rows": 7, "at": 1e12})
        assert groups.limited.wait(60)
    found = timeline.found()
    assert groups.limits == [(1, 0.3)]
    assert [rows for _, rows in found["rows_at"]] == [7]
    assert found["cpu_at"][0][1] == [1.0, 2.0]
    assert found["changed_at"] >= 0


def test_keys_move_under_the_names_that_a_reader_knows(tmp_path: Path):
    for folder in ("first", "others"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "rows").write_text(folder)
    now = tmp_path / "now"
    lead(now, tmp_path / "first")
    opened = (now / "rows").open()
    with opened, Timeline(Moving(str(now), str(tmp_path / "others"), at=0.0), Groups()) as timeline:
        timeline.heard({"began": True})
        while timeline.found()["changed_at"] is None:
            time.sleep(0.01)
        assert opened.read() == "first"
    assert (now / "rows").read_text() == "others"


def test_files_with_other_names_have_the_sizes_and_counts_of_those_that_they_replace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name, value in {"KEYS": 100, "ROWS_PER_FILE": 1_000, "DIFFERENT_FILES": 3, "FILES": 7, "SMALL_FILES": 2}.items():
        monkeypatch.setattr(keyed_rows, name, value)
    keyed_rows.write_rows(tmp_path, 1.0)

    def counts(file: Path) -> list[int]:
        return sorted(np.unique(pq.read_table(file)["k"].to_numpy(), return_counts=True)[1].tolist())

    for kind, rows in (("parquet", 1_000), ("small", 500)):
        first, others = ([*sorted((tmp_path / f"{kind}-{names}").iterdir())] for names in keyed_rows.NAMES)
        assert len(first) == 7
        for one, other in zip(first, others, strict=True):
            assert (one.name, one.stat().st_size, one.stat().st_mtime) == (
                other.name,
                other.stat().st_size,
                other.stat().st_mtime,
            )
            assert counts(one) == counts(other)
            assert pq.read_table(one) != pq.read_table(other)
        (once,) = (tmp_path / f"{kind}-once").iterdir()
        of_once = counts(once)
        assert json.loads((tmp_path / "expected.json").read_text())[kind] == [len(of_once), rows, of_once[-1]]


def test_a_run_that_never_begins_has_no_samples():
    with Timeline(Slowing(1, 0.3, at=0.0), Groups()) as timeline:
        timeline.heard({"progress": "counts"})
    assert timeline.found() == {"rows_at": [], "cpu_at": [], "changed_at": None}


def table(**changed: Any) -> str:
    return keyed_table([{**run_of(66.0, 4.0), **changed}])


@pytest.mark.parametrize(
    ("changed", "cells"),
    [
        ({}, "| Flink SQL 2.3.0 | 0 | 0 | 90% | 90% | 80% | not |  |  |"),
        ({"found": [3, 11, 5]}, "| - | - | - | - | - | - | - | counts [3, 11, 5], right is [3, 10, 5]: no speed |"),
        ({"rows_at": []}, "| - | - | - | - | - | - | - | no rows after the change: no speed |"),
        ({"failed": "died | badly"}, "| - | - | - | - | - | - | - | died / badly |"),
    ],
)
def test_the_table_has_a_line_an_engine_and_says_what_failed(changed: Mapping[str, Any], cells: str):
    said = table(**changed)
    assert cells in said
    assert "## Keys by Zipf's law with exponent 1: one of 4 workers falls to 30%" in said
    assert "`a: 1`" in said


def test_the_picture_has_a_line_for_each_engine_that_counts_right():
    drawn = picture([run_of(66.0, 4.0), {**run_of(66.0, 4.0), "engine": "spark", "failed": "died"}], 1.0, "slowed")
    assert "Flink SQL 2.3.0" in drawn.svg
    assert "Spark SQL" not in drawn.svg
    assert picture([{**run_of(66.0, 4.0), "failed": "died"}], 1.0, "slowed").problem


def test_every_peer_has_a_script_and_the_workers_leave_room_for_what_is_beside_them():
    assert all((SCRIPTS / script).is_file() for script, _ in COUNT.peers.values())
    assert worker_cpu(2) == 0.375
    assert worker_cpu(64) == 1.0


def test_an_engine_whose_java_cannot_be_built_has_a_row_that_says_so(tmp_path: Path):
    def write(data: Path, skew: float) -> None:
        (data / "expected.json").write_text('{"parquet": [1, 1, 1]}')

    def more(engine: str, *_: Any) -> Mapping[str, Any]:
        raise EngineMissing(f"javac is not on PATH: install it for {engine}")

    case = Case("own", "Own", {"streamtopology": ("streamtopology_keyed.py", {})}, write, more)
    asked = Keyed(case, (1.0,), ("slowed",), 1, ("streamtopology",))
    (row,) = measure(asked, Arena(ENGINES, Place(tmp_path), print), Place(tmp_path), print)
    assert row["failed"] == "javac is not on PATH: install it for streamtopology"


def test_an_engine_that_there_is_not_is_refused_before_anything_is_made(tmp_path: Path):
    with pytest.raises(WrongUse, match="--engine storm: there is no such engine; there are streamtopology, "):
        run_keyed(Keyed(COUNT, (1.0,), ("slowed",), 1, ("storm",)), Place(tmp_path), fresh=False)
