"""Spark's standalone cluster out of pyspark: a Master, and Workers of one core, as its guide has it."""

# pyright: reportMissingImports=false
from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from json import loads
from pathlib import Path

import pyspark

HOME = Path(pyspark.__path__[0])
SECONDS_TO_START = 120


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


class SparkCluster:
    """While entered, a cluster with a Worker for each of `join`: the files of its cgroup, which its processes join."""

    def __init__(self, work: Path, join: Sequence[Sequence[str]], memory: str) -> None:
        self._work = work
        self._join = join
        self._memory = memory
        self._port, self._page = _free_port(), _free_port()
        self.master = f"spark://localhost:{self._port}"
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> SparkCluster:
        try:
            ports = ("--host", "localhost", "--port", str(self._port), "--webui-port", str(self._page))
            self._start("master.Master", (), *ports)
            for files in self._join:
                self._start(
                    "worker.Worker", files, "--host", "localhost", "--cores", "1", "--memory", self._memory, self.master
                )
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            process.wait()

    def _start(self, program: str, files: Sequence[str], *options: str) -> None:
        def join() -> None:
            for file in files:
                Path(file).write_text(str(os.getpid()))

        environment = {**os.environ, "SPARK_HOME": str(HOME), "SPARK_WORKER_DIR": str(self._work / "worker")}
        with (self._work / f"{program}-{len(self._processes)}.log").open("wb") as log:
            command = [str(HOME / "bin/spark-class"), f"org.apache.spark.deploy.{program}", *options]
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment, preexec_fn=join))

    def _wait(self) -> None:
        """Return once all Workers are there."""
        until = time.monotonic() + SECONDS_TO_START
        while time.monotonic() < until:
            with suppress(OSError), urllib.request.urlopen(f"http://localhost:{self._page}/json/", timeout=10) as answer:
                if loads(answer.read())["aliveworkers"] == len(self._join):
                    return
            time.sleep(0.2)
        raise RuntimeError(f"Spark's cluster was not up after {SECONDS_TO_START} s; logs in {self._work}")
