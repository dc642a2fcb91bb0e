"""The executor launcher with real processes in place of the JVM: it restarts, pauses, reports, and ends as it should."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.pods.environment import ExecutorEnvironment
from streamtopology.jobs.pods.spark_settings import executor_command, executor_process_environment
from streamtopology.jobs.spark.java import Java
from streamtopology.jobs.spark.launcher import Launcher, Pauses, answers

GIVEN = {
    "STREAMTOPOLOGY_NAME": "flights", "STREAMTOPOLOGY_DRIVER": "flights-driver.air.svc", "STREAMTOPOLOGY_CLASS": "small",
    "STREAMTOPOLOGY_MEMORY": "512", "POD_NAME": "flights-small-0", "POD_IP": "10.1.2.3", "_SPARK_AUTH_SECRET": "c2VjcmV0",
}  # fmt: skip


def launcher(script: str, reported: list[str], answers: bool = True) -> Launcher:
    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(["/bin/sh", "-c", script], env={})

    return Launcher(start, lambda: answers, "flights-driver:7078", reported.append)


def test_an_executor_that_ends_is_started_again_and_the_pauses_grow() -> None:
    reported: list[str] = []
    running = launcher("exit 3", reported)
    thread = threading.Thread(target=running.run)
    thread.start()
    while sum("ended" in text for text in reported) < 3:
        time.sleep(0.01)
    running.end()
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert running.short_lives >= 3
    assert running.code == 3
    ended = [text for text in reported if "ended" in text][:3]
    assert [re.search(r"code (\d)", text)[1] for text in ended] == ["3", "3", "3"]  # type: ignore[index]
    assert [re.search(r"again in ([\d.]+) s", text)[1] for text in ended] == ["0.5", "1", "2"]  # type: ignore[index]


def test_the_pause_is_bounded_and_a_long_life_makes_it_short_again() -> None:
    pauses = Pauses()
    assert pauses.after([]) == 0.5
    assert pauses.after([300.0]) == 0.5
    assert pauses.after([1.0, 1.0, 1.0]) == 2.0
    assert pauses.after([1.0] * 40) == 30.0
    assert pauses.after([1.0, 1.0, 300.0]) == 0.5
    assert pauses.after([300.0, 1.0, 1.0]) == 1.0


def test_asked_to_end_it_decommissions_the_executor_and_starts_no_other(tmp_path: Path) -> None:
    marker = tmp_path / "power"
    script = f"trap 'echo drained > {marker}; exit 0' PWR; touch {tmp_path}/ready; while :; do sleep 0.05; done"
    reported: list[str] = []
    running = launcher(script, reported)
    thread = threading.Thread(target=running.run)
    thread.start()
    while not (tmp_path / "ready").exists():
        time.sleep(0.01)
    running.end()
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert marker.read_text() == "drained\n"
    assert reported[-1].startswith("the executor ended with code 0")
    assert sum(text.startswith("starting") for text in reported) == 1


def test_it_waits_for_the_driver_and_can_be_ended_meanwhile() -> None:
    reported: list[str] = []
    running = launcher("exit 0", reported, answers=False)
    thread = threading.Thread(target=running.run)
    thread.start()
    running.end()
    thread.join(timeout=60)
    assert not thread.is_alive()
    assert reported == [], "nothing was started"


def test_a_driver_answers_when_its_port_is_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert answers("127.0.0.1", port)
    assert not answers("127.0.0.1", port)
    assert not answers("no-such-host.invalid", port)


def test_the_command_is_sparks_backend_with_what_the_operator_says() -> None:
    environment = ExecutorEnvironment.read(GIVEN)
    java = Java(Path("/opt/java"), 17)
    command = executor_command(java, environment)
    assert command[0] == "/opt/java/bin/java"
    assert "-Xmx512m" in command
    options = dict(zip(command[-14::2], command[-13::2], strict=True))
    assert options == {
        "--driver-url": "spark://CoarseGrainedScheduler@flights-driver.air.svc:7078", "--executor-id": "EXECID",
        "--cores": "1", "--app-id": "streamtopology-flights", "--hostname": "10.1.2.3", "--resourceProfileId": "0",
        "--podName": "flights-small-0",
    }  # fmt: skip
    assert not any("c2VjcmV0" in word for word in command), "a command line can be read by anyone"
    attributes = executor_process_environment(java, Path("/spark"), environment)
    assert attributes["SPARK_EXECUTOR_ATTRIBUTE_CLASS"] == "small"
    assert attributes["SPARK_EXECUTOR_ATTRIBUTE_POD_NAME"] == "flights-small-0"


@pytest.mark.parametrize("missing", sorted(GIVEN))
def test_missing_environment_variable_is_named(missing: str) -> None:
    with pytest.raises(WrongUse, match=f"sets {missing}: not set here"):
        ExecutorEnvironment.read({name: value for name, value in GIVEN.items() if name != missing})


def test_memory_that_is_no_number_is_refused() -> None:
    with pytest.raises(WrongUse, match="STREAMTOPOLOGY_MEMORY='512Mi' is not a number of mebibytes"):
        ExecutorEnvironment.read({**GIVEN, "STREAMTOPOLOGY_MEMORY": "512Mi"})


def test_a_heap_that_spark_would_refuse_is_raised() -> None:
    assert ExecutorEnvironment.read({**GIVEN, "STREAMTOPOLOGY_MEMORY": "450"}).heap_mebibytes == 480
    assert ExecutorEnvironment.read({**GIVEN, "STREAMTOPOLOGY_MEMORY": "481"}).heap_mebibytes == 481


def test_it_is_small_because_it_imports_neither_spark_nor_numpy() -> None:
    heavy = "pyspark", "numpy", "pyarrow", "numba", "duckdb", "kubernetes"
    program = f"import sys, streamtopology.jobs.pods.executor; print([name for name in {heavy} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.strip() == "[]"
