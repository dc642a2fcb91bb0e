"""The settings for Spark's own log of its jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamtopology.contract.environment import SPARK_EVENTS
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.spark.history_log import history_log


@pytest.mark.parametrize("environ", [{}, {SPARK_EVENTS: ""}])
def test_spark_logs_no_jobs_unless_it_is_asked_to(environ: dict[str, str]) -> None:
    assert history_log(environ) == {}


def test_spark_logs_its_jobs_to_a_folder_that_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "a folder" / "events"
    settings = history_log({SPARK_EVENTS: str(folder)})
    assert folder.is_dir()
    assert settings["spark.eventLog.dir"] == folder.as_uri()
    assert settings["spark.eventLog.enabled"] == settings["spark.eventLog.rolling.enabled"] == "true"


@pytest.mark.parametrize("asked", ["events", "s3a://bucket/events", "file:/tmp/events"])
def test_another_place_than_a_folder_is_refused(asked: str) -> None:
    with pytest.raises(WrongUse, match=f"{SPARK_EVENTS}='{asked}'"):
        history_log({SPARK_EVENTS: asked})


def test_a_place_for_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WrongUse, match="no folder can be made there: "):
        history_log({SPARK_EVENTS: str(tmp_path / "file" / "events")})
