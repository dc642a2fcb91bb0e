"""`streamtopology executor`: keeps one Spark executor running in its container while drivers come and go.

An executor ends with its driver. If the container ended, too, Kubernetes' back-off would soon exceed the time of a restart.
So the launcher starts the JVM again. It imports neither Spark nor numpy, because the executor lacks all memory that the
launcher uses.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from streamtopology.contract.pods import RPC_PORT
from streamtopology.jobs.log_tags import tag_all
from streamtopology.jobs.pods.environment import SCRATCH, ExecutorEnvironment, logs_json
from streamtopology.jobs.pods.spark_settings import executor_command, executor_process_environment
from streamtopology.jobs.spark.java import find_java
from streamtopology.jobs.spark.processes import SPARK_HOME

LOOK_SECONDS = 0.5
REPEAT_SECONDS = 10.0
# Time for a decommissioned executor to finish its task; then it is terminated, and 5 s later killed.
DRAIN_SECONDS = 20.0

_KILL_SECONDS = DRAIN_SECONDS + 5.0
_SHORT_LIFE_SECONDS = 20.0
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0


def run_executor(environ: Mapping[str, str]) -> int:
    """Run executors one after the other until SIGTERM; return the exit code."""
    environment = ExecutorEnvironment.read(environ)
    tag_all(as_json=logs_json(environ))
    java = find_java()
    (SCRATCH / "spark").mkdir(parents=True, exist_ok=True)
    launcher = Launcher(
        executor_command(java, environment),
        executor_process_environment(java, SPARK_HOME, environment),
        lambda: answers(environment.driver, RPC_PORT),
        f"{environment.driver}:{RPC_PORT}",
        lambda text: print(text, flush=True),
    )
    signal.signal(signal.SIGTERM, lambda *_: launcher.end())
    launcher.run()
    return 0


def answers(host: str, port: int) -> bool:
    """True if a process listens there."""
    try:
        with socket.create_connection((host, port), timeout=2.0):
            return True
    except OSError:
        return False


def pause_after(lives: Sequence[float]) -> float:
    """Return the seconds to wait before the next start, from the lifetimes of earlier executors (seconds, newest last).

    Each short life in a row doubles the pause; one that lasted makes it short again.
    """
    short = 0
    for life in reversed(lives):
        if life >= _SHORT_LIFE_SECONDS:
            break
        short += 1
    return min(_FIRST_PAUSE_SECONDS * 2 ** max(short - 1, 0), _LONGEST_PAUSE_SECONDS)


class Launcher:
    """Runs `command` again and again, each time once the driver `answers`; `end` (from a signal handler) ends it."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        driver_answers: Callable[[], bool],
        driver: str,
        notify: Callable[[str], None],
    ) -> None:
        self._command = list(command)
        self._environment = dict(environment)
        self._driver_answers = driver_answers
        self._driver = driver
        self._notify = notify
        self._ending = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        lives: list[float] = []
        while self._await_driver():
            self._notify(f"starting an executor for the driver at {self._driver}")
            began = time.monotonic()
            code = self._run_once()
            lives = [*lives[-8:], time.monotonic() - began]
            if self._ending.is_set():
                self._notify(f"the executor ended with code {code} after {lives[-1]:.0f} s, as requested")
                return
            pause = pause_after(lives)
            self._notify(f"the executor ended with code {code} after {lives[-1]:.0f} s; starting it again in {pause:g} s")
            self._ending.wait(pause)

    def end(self) -> None:
        """Let the executor finish its task and move its blocks (SIGPWR decommissions it), and start no other."""
        self._ending.set()
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGPWR)
        for seconds, act in ((DRAIN_SECONDS, process.terminate), (_KILL_SECONDS, process.kill)):
            timer = threading.Timer(seconds, act)
            timer.daemon = True
            timer.start()

    def _run_once(self) -> int:
        """Start the command and wait for its end; its output goes where ours does."""
        self._process = subprocess.Popen(self._command, env=self._environment, stdin=subprocess.DEVNULL)
        if self._ending.is_set():  # `end` was called during the start
            self.end()
        code = self._process.wait()
        self._process = None
        return code

    def _await_driver(self) -> bool:
        """Wait until the driver answers. Returns False if no more executors are to be started."""
        began = shown = time.monotonic()
        while not self._ending.is_set():
            if self._driver_answers():
                return True
            now = time.monotonic()
            if now - shown >= REPEAT_SECONDS:
                shown = now
                self._notify(f"waiting for the driver at {self._driver}, {now - began:.0f} s so far")
            self._ending.wait(LOOK_SECONDS)
        return False
