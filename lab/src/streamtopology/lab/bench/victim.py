"""`streamtopology run` in a process of its own, to be killed and started again, with all that it starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from streamtopology.jobs.checkpoint import Checkpoint, CheckpointError, CommitRecord
from streamtopology.jobs.failpoints import VARIABLE
from streamtopology.jobs.local.cleanup import members
from streamtopology.jobs.local.control_socket import ask
from streamtopology.jobs.local.ownership import is_kept

STOP_SECONDS = 90.0
_WORKER = b"streamtopology.jobs.local.worker_process"
_EXECUTORS = (b"CoarseGrainedExecutorBackend", _WORKER)
_PYTHON = (b"streamtopology.jobs.spark.worker_daemon", _WORKER)


class Victim:
    """At most one life at a time, of the topology `given`, whose checkpoint is `checkpoint` in `folder`.

    What it says goes to `log` there.
    """

    def __init__(self, folder: Path, given: dict[str, Any]) -> None:
        self._folder = folder
        self._given = given
        self._name = given["metadata"]["name"]
        self._manifest = folder / f"{self._name}.yaml"
        self._armed: str | None = None
        self._killed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._checkpoint: Checkpoint | None = None
        self._save()

    def start(self, crash_at: str | None) -> None:
        """A new life; with `crash_at` it is to die there, once."""
        environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
        if crash_at is not None:
            environment[VARIABLE] = f"{crash_at}@{self._folder / f'died-{time.monotonic_ns()}'}"
        with (self._folder / "log").open("ab") as log:
            command = [sys.executable, "-m", *self._command()]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)
        self._killed, self._armed = False, crash_at

    def keep_alive(self) -> None:
        """Start it again when it was killed. When it ended by itself see `ended_by_itself`."""
        assert self._process is not None
        code = self._process.poll()
        if code is None:
            return
        if not self._killed and not (code == -signal.SIGKILL and self._armed):
            self.ended_by_itself(code)
        self._await_sweep()
        self.start(None)

    def ended_by_itself(self, code: int) -> None:
        """Raise RuntimeError: nobody starts it again."""
        raise RuntimeError(f"the run ended by itself with code {code}:\n{self.log()}")

    def stop(self) -> None:
        """End it as a person does."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def kill(self, what: str, luck: float, crash_at: str | None = None) -> str | None:
        """kill -9 of one process of that kind; what it was, None when there is none."""
        assert self._process is not None
        if what in ("driver", "crash point"):
            self._killed = True
            self._process.kill()
            self._process.wait()
            if crash_at is not None:
                self._await_sweep()
                self.start(crash_at)
                return f"the driver {self._process.pid}; the next life is to die at {crash_at}"
            return f"the driver {self._process.pid}"
        victims = self.processes(what)
        if not victims:
            return None
        pid = victims[int(luck * len(victims))]
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return f"{what} {pid}"

    def resize(self, class_name: str, cpu: str) -> str:
        """Raises NotRunning or Refused, as the other changes do."""
        return ask(self._name, "resize", class_name=class_name, cpu=cpu)

    def scale(self, class_name: str, replicas: int) -> str:
        answer = ask(self._name, "scale", class_name=class_name, replicas=replicas)
        executor = next(executor for executor in self._given["spec"]["executors"] if executor["name"] == class_name)
        executor["replicas"] = replicas
        self._save()
        return answer

    def reroute(self, operator: str, policy: str) -> str:
        """Another policy for an operator: the running topology follows its manifest, and a successor starts with it."""
        grouping = next(given for given in self._given["spec"]["operators"] if given["name"] == operator)["grouping"]
        before, grouping["policy"] = grouping["policy"], policy
        self._save()
        try:
            return ask(self._name, "apply", path=str(self._manifest))
        except BaseException:
            grouping["policy"] = before
            self._save()
            raise

    def checkpoint(self) -> Checkpoint:
        return Checkpoint.attach(str(self._folder / "checkpoint"))

    def last_commit(self) -> CommitRecord | None:
        """None also before there is a checkpoint."""
        try:
            if self._checkpoint is None:
                self._checkpoint = self.checkpoint()
            return self._checkpoint.last_commit()
        except CheckpointError:  # not made yet, or the record that was newest has just been swept
            return None

    def log(self) -> str:
        """The end of its log."""
        return (self._folder / "log").read_text(errors="replace")[-3000:]

    def executor_processes(self, slot: str | None = None) -> list[int]:
        """The JVMs that run tasks; in real time the workers."""
        return [pid for pid in self._members(slot) if any(name in _command(pid) for name in _EXECUTORS)]

    def processes(self, what: str) -> list[int]:
        """Those that are there now: `executor`, `python` (workers and the daemons that fork them) or `migration`."""
        if what == "executor":
            return sorted(self.executor_processes())
        if what == "python":
            return sorted(pid for pid in self._members(None) if any(name in _command(pid) for name in _PYTHON))
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task").glob("*/children")
        pids = [int(pid) for child in children for pid in _text(child).split()]
        return sorted(pid for pid in pids if b"streamtopology.jobs.rerouting.precopy_job" in _command(pid))

    def _command(self) -> list[str]:
        """The module that runs the topology, and its arguments."""
        return ["streamtopology.jobs.cli.main", "run", str(self._manifest), "--work-dir", str(self._folder)]

    def _await_sweep(self) -> None:
        """Wait until the supervisor has removed the folder of a cluster that the next life cannot take over."""
        while any(not is_kept(name) for name in self._clusters()):
            time.sleep(0.1)

    def _members(self, slot: str | None) -> list[int]:
        return [pid for name in self._clusters() for pid in members(name, slot)]

    def _clusters(self) -> list[str]:
        folder = self._folder / "cluster"
        return [path.name for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []

    def _save(self) -> None:
        unseen = self._manifest.with_suffix(".new")
        unseen.write_text(json.dumps(self._given))
        unseen.replace(self._manifest)


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text()
    return ""
