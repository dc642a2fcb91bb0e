"""Flink's standalone cluster out of apache-flink: one JobManager, and TaskManagers of one slot each, as its guide has it."""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyflink
from pyflink.common import Configuration
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.java_gateway import get_gateway
from pyflink.table import EnvironmentSettings, StreamTableEnvironment, TableEnvironment

HOME = Path(pyflink.__path__[0])
SECONDS_TO_START = 120


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def add_to_lib(jars: Sequence[Path], lib: Path) -> None:
    """Have all processes of Flink load `jars` along with their own: as jars of the job, each restart would load them again."""
    lib.mkdir()
    for jar in (*(HOME / "lib").glob("*.jar"), *jars):
        (lib / jar.name).symlink_to(jar)
    os.environ |= {"FLINK_HOME": str(HOME), "FLINK_LIB_DIR": str(lib)}  # without the first, PyFlink overwrites the second


class FlinkCluster:
    """While entered, a cluster with a TaskManager for each of `join`: the files of its cgroup, which its process joins."""

    def __init__(self, work: Path, join: Sequence[Sequence[str]], settings: Mapping[str, str]) -> None:
        self._work = work
        self._join = join
        self._port = _free_port()
        self.settings = {
            "jobmanager.rpc.address": "localhost",
            "jobmanager.rpc.port": str(_free_port()),
            "rest.address": "localhost",
            "rest.port": str(self._port),
            "taskmanager.host": "localhost",
            "io.tmp.dirs": str(work / "tmp"),
            "execution.checkpointing.dir": f"file://{work}/checkpoints",
            "taskmanager.numberOfTaskSlots": "1",
            "parallelism.default": str(len(join)),
            **settings,
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        self.workers: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> FlinkCluster:
        (self._work / "conf").mkdir()
        (self._work / "tmp").mkdir()
        (self._work / "conf/config.yaml").write_text("".join(f"{name}: {value}\n" for name, value in self.settings.items()))
        for name in ("log4j-console.properties", "log4j.properties"):
            (self._work / "conf" / name).write_text((HOME / "conf" / name).read_text())
        try:
            self._start("jobmanager", ())
            for files in self._join:
                self.start_worker(files)
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start_worker(self, files: Sequence[str] = ()) -> None:
        """One more TaskManager, in `workers` by its name."""
        name = f"worker-{len(self.workers)}"
        self.workers[name] = self._start("taskmanager", files, "-D", f"taskmanager.resource-id={name}")

    def _start(self, program: str, files: Sequence[str], *more: str) -> subprocess.Popen[bytes]:
        def join() -> None:
            for file in files:
                Path(file).write_text(str(os.getpid()))

        places = {"FLINK_CONF_DIR": str(self._work / "conf"), "FLINK_LOG_DIR": str(self._work), "FLINK_HOME": str(HOME)}
        with (self._work / f"{program}-{len(self._processes)}.log").open("wb") as log:
            command = [str(HOME / "bin" / f"{program}.sh"), "start-foreground", *more]
            environment = {**os.environ, **places}
            started = subprocess.Popen(command, stdout=log, stderr=log, env=environment, preexec_fn=join)
        self._processes.append(started)
        return started

    def _wait(self) -> None:
        """Return once all TaskManagers are there."""
        until = time.monotonic() + SECONDS_TO_START
        while time.monotonic() < until:
            with suppress(OSError):
                if self.ask("/overview")["taskmanagers"] == len(self._join):
                    return
            for process in self._processes:
                if process.poll() is not None:
                    raise RuntimeError(f"a process of Flink's ended with {process.returncode}: {self.last_words()}")
            time.sleep(0.2)
        raise RuntimeError(f"Flink's cluster was not up after {SECONDS_TO_START} s: {self.last_words()}")

    def last_words(self) -> str:
        """The last lines of all logs."""
        return " | ".join(log.read_text(errors="replace").strip()[-200:] for log in sorted(self._work.glob("*.log")))

    def ask(self, path: str, body: object = None) -> Any:
        """The JobManager's answer; `body` is put there first."""
        data = None if body is None else json.dumps(body).encode()
        given = {"method": "GET" if data is None else "PUT", "headers": {"Content-Type": "application/json"}}
        request = urllib.request.Request(f"http://localhost:{self._port}{path}", data, **given)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read() or "null")

    def tables(self) -> TableEnvironment:
        """A new session of SQL that runs its jobs here."""
        given = self._configuration({"execution.target": "remote"})
        settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(given).build()
        return TableEnvironment.create(settings)

    def streams(self) -> StreamTableEnvironment:
        """One in which Java can turn tables into streams, too."""
        gateway = get_gateway()
        environment = gateway.jvm.org.apache.flink.streaming.api.environment.StreamExecutionEnvironment
        no_jars = gateway.new_array(gateway.jvm.String, 0)
        found = environment.createRemoteEnvironment("localhost", self._port, self._configuration({})._j_configuration, no_jars)
        return StreamTableEnvironment.create(StreamExecutionEnvironment(found))

    def _configuration(self, more: Mapping[str, str]) -> Configuration:
        configuration = Configuration()
        for name, value in {**self.settings, **more}.items():
            configuration.set_string(name, value)
        return configuration

    def seconds(self, job: str) -> float:
        """How long a finished job ran: from when all its tasks had been asked for, to its end."""
        known = self.ask(f"/jobs/{job}")
        return (known["end-time"] - known["timestamps"]["RUNNING"]) / 1000
