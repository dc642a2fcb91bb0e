"""Processes that end with their owner, whatever ends it: a keeper in their process group watches it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

_STOP_SECONDS = 3  # kube-apiserver drains for a minute otherwise
_KEEPER = Path(__file__).parent / "keeper.py"


class ProcessFailed(Exception):
    """A command failed, or a background process ended or was not ready in time; the text has its last output."""


def run(command: Sequence[str], seconds: float, stdin: str | None = None) -> str:
    """Run a command to its end and return its output. Raises `ProcessFailed` with its complaint, also after too long."""
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired as late:
        raise ProcessFailed(f"`{' '.join(command)}` did not end within {seconds:.0f} s") from late
    if done.returncode != 0:
        raise ProcessFailed(f"`{' '.join(command)}` ended with code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


class Processes:
    """A group of background processes with a log each in `folder`; `end` kills them and removes the folder.

    `cgroups` are folders below which everything is removed at the end. May be used from any thread.
    """

    def __init__(self, folder: Path, cgroups: Sequence[Path] = ()) -> None:
        self.folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        command = [sys.executable, "-S", str(_KEEPER), str(os.getpid()), str(folder), *map(str, cgroups)]
        self._keeper = subprocess.Popen(command, stdin=subprocess.PIPE, process_group=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self, name: str, command: Sequence[str], keep: Sequence[int] = ()) -> int:
        """Start `name` in the background; returns its process id. It inherits the open files `keep`.

        Its log continues the log of an earlier one of that name.
        """
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=self._keeper.pid,
                pass_fds=keep,
            )
        return self._running[name].pid

    def stop(self, name: str) -> None:
        """TERM, after some seconds KILL; returns when it has ended. A stopped (SIGSTOP) process is killed."""
        process = self._running.pop(name)
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def signal(self, name: str, number: signal.Signals) -> None:
        self._running[name].send_signal(number)

    def wait_until(self, name: str, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until `ready` says so. Raises `ProcessFailed` when process `name` ends before, or is not ready in time."""
        deadline = time.monotonic() + seconds
        while not ready():
            if self._running[name].poll() is not None:
                raise ProcessFailed(f"{name} ended with code {self._running[name].returncode}:\n{self.log_end(name)}")
            if time.monotonic() > deadline:
                raise ProcessFailed(f"{name} was not ready after {seconds:.0f} s; the end of its log:\n{self.log_end(name)}")
            time.sleep(0.05)

    def log_end(self, name: str, lines: int = 15) -> str:
        return "\n".join((self.folder / f"{name}.log").read_text(errors="replace").splitlines()[-lines:])

    def end(self) -> None:
        """Kill all of them and remove the folder. May be called again."""
        if self._keeper.stdin is None or self._keeper.stdin.closed:
            return
        self._keeper.stdin.close()
        for process in self._running.values():
            process.wait()
        self._keeper.wait()
