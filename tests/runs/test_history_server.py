"""Spark's own history server shows the batches of a run that has ended."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from support.manifests import counting, files, manifest, write_rows
from support.waiting import eventually

from streamtopology.contract.environment import SPARK_EVENTS
from streamtopology.jobs.spark.java import find_java
from streamtopology.jobs.spark.processes import SPARK_HOME

pytestmark = pytest.mark.timeout(600)


@contextmanager
def history_server(events: Path, log: Path) -> Iterator[str]:
    """Serve the logs in this folder, until the block ends; the address of its API."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {"fs.logDirectory": events.as_uri(), "ui.port": str(port), "fs.update.interval": "1s"}
    command = [str(find_java().binary), *(f"-Dspark.history.{name}={value}" for name, value in settings.items())]
    opened = ["java.base/java.lang", "java.base/java.nio", "java.base/sun.nio.ch", "java.base/java.util"]
    command += [part for module in opened for part in ("--add-opens", f"{module}=ALL-UNNAMED")]
    command += ["-cp", f"{SPARK_HOME}/jars/*", "org.apache.spark.deploy.history.HistoryServer"]
    with log.open("w") as lines:
        process = subprocess.Popen(command, stdout=lines, stderr=lines, env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"})
        try:
            yield f"http://127.0.0.1:{port}/api/v1"
        finally:
            process.terminate()
            process.wait(60)


def asked(url: str) -> list[dict[str, Any]]:
    """The answer of the API; empty while there is none."""
    try:
        with urlopen(url, timeout=60) as answer:
            return json.load(answer)
    except URLError:
        return []


def test_history_server_shows_the_batches_of_a_run(tmp_path: Path) -> None:
    for number in range(3):
        write_rows(tmp_path / "rows", number)
    sink = {"name": "out", "input": "words", "format": "json", "options": {"path": str(tmp_path / "out")}}
    given = manifest("logged", [files(tmp_path / "rows")], [counting("words")], [sink])
    given["spec"]["checkpoint"] = str(tmp_path / "checkpoint")
    path = tmp_path / "logged.yaml"
    path.write_text(json.dumps(given))
    command = [sys.executable, "-m", "streamtopology.jobs.cli.main", "run", str(path)]
    environ = {**os.environ, SPARK_EVENTS: str(tmp_path / "events")}
    run = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    with history_server(tmp_path / "events", tmp_path / "server.log") as api:
        eventually(lambda: asked(f"{api}/applications"), 300)
        (application,) = asked(f"{api}/applications")
        jobs = asked(f"{api}/applications/{application['id']}/jobs")
    assert application["name"] == "logged"
    assert application["attempts"][0]["completed"]
    assert {f"batch {number}" for number in range(3)} <= {job.get("description") for job in jobs}
    assert {job["status"] for job in jobs} == {"SUCCEEDED"}
