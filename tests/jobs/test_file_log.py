"""The log of a file source names the same files for ever, in few files of its own, also if a process dies while it merges."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.jobs.connectors.sources.files.file_log import RECORDS_APART, FileLog, KnownPaths, LoggedFile


def file(number: int) -> LoggedFile:
    return LoggedFile(f"/in/{number:07d}.parquet", 1000 + number, (number, 7))


def filled(folder: Path, batches: int, files_a_batch: int = 1) -> FileLog:
    log = FileLog(folder)
    for _ in range(batches):
        log.append([file(len(log) + i) for i in range(files_a_batch)])
    return log


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_log_of_many_batches_has_few_files(tmp_path: Path) -> None:
    counts = []
    for batches in (500, 1000, 2000):
        filled(tmp_path / str(batches), batches)
        counts.append(len(names(tmp_path / str(batches))))
    assert max(counts) <= 2 * RECORDS_APART + 6, "a segment more for twice the batches"


@settings(max_examples=10)
@given(batches=st.lists(st.integers(1, 5), min_size=1, max_size=400), starts=st.lists(st.integers(0, 2000), max_size=5))
def test_merged_log_names_the_same_files_after_a_restart(
    tmp_path_factory: pytest.TempPathFactory, batches: list[int], starts: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log = FileLog(folder)
    for size in batches:
        log.append([file(len(log) + i) for i in range(size)])
    for again in (log, FileLog(folder)):
        assert len(again) == sum(batches)
        for start in starts:
            assert again.between(start, start + 9) == [file(i) for i in range(start, min(start + 9, len(log)))]
        assert again.unknown(["/in/new", file(0).path, file(len(log) - 1).path]) == ["/in/new"]


def test_any_death_while_records_are_merged_leaves_the_whole_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every state of the folder while records are merged is a log with all files, which continues and is tidied up."""
    folder = tmp_path / "log"
    filled(folder, 2 * RECORDS_APART - 1)
    states: list[Path] = []
    watch_changes(monkeypatch, lambda: (states.append(tmp_path / f"state-{len(states)}"), shutil.copytree(folder, states[-1])))
    filled(folder, 1)
    monkeypatch.undo()
    assert len(states) > RECORDS_APART
    for state in states[:: RECORDS_APART // 8]:
        log = FileLog(state)
        assert log.between(0, len(log)) == [file(i) for i in range(len(log))]
        assert 2 * RECORDS_APART - 1 <= len(log) <= 2 * RECORDS_APART
        filled(state, 2 * RECORDS_APART)
        assert len(names(state)) <= 2 * RECORDS_APART + 4
        assert not [name for name in names(state) if name.startswith(".")], "drafts go, too"


def watch_changes(monkeypatch: pytest.MonkeyPatch, seen: Callable[[], object]) -> None:
    """Call `seen` before every change of a folder."""
    for name in ("link", "unlink"):
        change = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, change=change, **given: (seen(), change(*args, **given))[1])


def test_second_reader_follows_a_log_that_is_merged(tmp_path: Path) -> None:
    """The driver reads the log that Spark's process writes."""
    writer, reader = FileLog(tmp_path), FileLog(tmp_path)
    for batch in range(3 * RECORDS_APART):
        writer.append([file(batch)])
        if batch % 7 == 0:
            reader.reopen_at(batch + 1)
            assert reader.between(batch, batch + 1) == [file(batch)]
    assert FileLog(tmp_path).between(0, 3) == reader.between(0, 3) == [file(0), file(1), file(2)]


def test_reader_that_was_away_for_long_finds_all_files(tmp_path: Path) -> None:
    reader = filled(tmp_path, 10)
    filled(tmp_path, 5 * RECORDS_APART)
    reader.reopen_at(4 * RECORDS_APART)
    assert reader.between(0, len(reader)) == [file(i) for i in range(5 * RECORDS_APART + 10)]


def test_paths_are_known_once_they_were_added() -> None:
    known = KnownPaths()
    paths = [f"/in/{i}" for i in range(20_000)]
    for start in range(0, 20_000, 1000):
        assert known.unknown(paths[start : start + 1000]) == paths[start : start + 1000]
        known.add(paths[start : start + 1000])
    assert known.unknown([*paths, "/in/x", "/in/y"]) == ["/in/x", "/in/y"]


def test_a_process_takes_over_what_a_dying_one_merges_just_before_it(tmp_path: Path) -> None:
    dying = FileLog(tmp_path)
    for number in range(2 * RECORDS_APART - 1):
        dying.append([LoggedFile(f"{number}.json", 1, (1,))])
    restarted = FileLog(tmp_path)
    newest = LoggedFile("newest.json", 1, (1,))
    dying.append([newest])  # merges the oldest records, which the other one was about to
    restarted.append([newest])
    assert len(restarted) == 2 * RECORDS_APART
    assert [file.path for file in restarted.between(0, len(restarted))] == [
        *(f"{number}.json" for number in range(2 * RECORDS_APART - 1)),
        "newest.json",
    ]
