"""Events of a run are kept in full in a file of bounded size, and a file that cannot be written stops nothing."""

from __future__ import annotations

from pathlib import Path

from streamtopology.jobs.observe.history import History
from streamtopology.jobs.view.event_log import EventLog


def test_events_are_appended_in_full(tmp_path: Path) -> None:
    path = tmp_path / "clicks" / "events.log"
    for _ in range(2):
        history = History("clicks", (), {})
        history.listen(EventLog(path))
        history.event(0.0, -1, "continuing with batch 172")
        history.event(0.0, 172, "clicks.yaml is not applied: " + "long " * 100)
    lines = path.read_text().splitlines()
    assert len(lines) == 4, "a second run appends"
    assert lines[1].endswith(" batch 172: clicks.yaml is not applied: " + "long " * 100)


def test_event_log_keeps_one_file_before_the_newest(tmp_path: Path) -> None:
    history = History("clicks", (), {})
    history.listen(EventLog(tmp_path / "events.log", most_bytes=1_000))
    for number in range(200):
        history.event(0.0, number, "executor large-1 was lost")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["events.log", "events.log.1"]
    assert all(file.stat().st_size <= 1_000 for file in tmp_path.iterdir())
    assert "batch 199: executor" in (tmp_path / "events.log").read_text()


def test_event_log_that_cannot_be_written_stops_no_run(tmp_path: Path) -> None:
    (tmp_path / "clicks").touch()
    history, log = History("clicks", (), {}), EventLog(tmp_path / "clicks" / "events.log")
    history.listen(log)
    history.event(0.0, 1, "executor large-1 was lost")
    assert log.written == 0
