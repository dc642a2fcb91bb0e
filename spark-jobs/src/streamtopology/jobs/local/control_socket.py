"""The control socket of a running topology: one JSON line each way over a Unix socket that only its owner can open."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import socketserver
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from streamtopology.contract.errors import StreamTopologyError, Unavailable

Handler = Callable[..., str]
_ANSWER_SECONDS = 60.0


class NotRunning(Unavailable):
    """No topology of that name runs on this machine under this user."""


class Refused(StreamTopologyError):
    """The running topology refused a command; the message has its reason."""


def socket_path(topology: str) -> Path:
    """Return the path of the socket of `topology`."""
    return _folder() / f"{topology}.sock"


def ask(topology: str, command: str, **arguments: object) -> str:
    """Send a command to the running topology; return its answer. Raises NotRunning or Refused."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_SECONDS)
            connection.connect(str(socket_path(topology)))
            connection.sendall(json.dumps({"command": command, **arguments}).encode() + b"\n")
            line = connection.makefile().readline()
    except (ConnectionResetError, BrokenPipeError):
        line = ""
    except (FileNotFoundError, ConnectionRefusedError):
        if process := _claimant(topology):
            raise NotRunning(f"{_is_being_started(topology, process)}; wait until it runs") from None
        raise NotRunning(
            f"topology {topology!r} is not running here under this user; start it with: streamtopology run FILE"
        ) from None
    except OSError as failure:  # no such socket can be, or nobody answers in time
        raise NotRunning(f"topology {topology!r} cannot be asked: {failure}") from failure
    if not line:
        raise Refused(f"topology {topology!r} did not answer: it ended, or the command failed; see its log")
    answer = json.loads(line)
    if "refused" in answer:
        raise Refused(answer["refused"])
    return str(answer["answer"])


def the_running() -> str:
    """Return the only topology that runs here. Raises NotRunning if there is none, or more than one."""
    running = sorted(path.stem for path in _folder().glob("*.sock") if _answers(path))
    if not running:
        for topology in sorted(path.stem for path in _folder().glob("*.lock")):
            if process := _claimant(topology):
                raise NotRunning(f"{_is_being_started(topology, process)}; wait until it runs")
        raise NotRunning("no topology runs here under this user; start one with: streamtopology run FILE")
    if len(running) > 1:
        names = ", ".join(running)
        raise NotRunning(
            f"several topologies run here: {names}; "
            "name one of them, as in: streamtopology stop NAME; resize and scale take --topology NAME"
        )
    return running[0]


def refuse_second_run(topology: str) -> None:
    """Raise Refused if a topology of that name runs on this machine under this user."""
    path = socket_path(topology)
    if path.exists() and _answers(path):
        raise Refused(f"topology {topology!r} runs here already; stop it first: streamtopology stop {topology}")


@contextmanager
def claim(topology: str) -> Iterator[None]:
    """Hold the name of a topology on this machine, from before anything of it is started. Raises Refused if it is taken."""
    refuse_second_run(topology)
    path = _lock_path(topology)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            process = _claimant(topology) or "another"
            raise Refused(f"{_is_being_started(topology, process)}; wait until it runs, or end that one") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


class ControlServer:
    """Answers `ask` as long as it is entered. A handler returns a sentence; an error of it that people are meant to read is a
    refusal."""

    def __init__(self, topology: str, handlers: Mapping[str, Handler]) -> None:
        self._path = socket_path(topology)
        self._topology = topology
        self._handlers = handlers
        self._server: socketserver.ThreadingUnixStreamServer | None = None

    def __enter__(self) -> Self:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        refuse_second_run(self._topology)
        self._path.unlink(missing_ok=True)
        handlers = self._handlers

        class Connection(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                line = self.rfile.readline()
                if line:
                    self.wfile.write(json.dumps(_answer(handlers, line)).encode() + b"\n")

        self._server = socketserver.ThreadingUnixStreamServer(str(self._path), Connection)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="control", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._path.unlink(missing_ok=True)


def _folder() -> Path:
    """The folder of this user's sockets and locks. Raises Unavailable if it is another's: everybody may make one in /tmp."""
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "streamtopology"
    folder = Path(tempfile.gettempdir()) / f"streamtopology-{os.getuid()}"
    with suppress(FileNotFoundError):
        found = folder.lstat()
        if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise Unavailable(
                f"{folder} is not a folder that only this user can write to: remove it, or name another place for the sockets "
                "and locks of running topologies in XDG_RUNTIME_DIR"
            )
    return folder


def _lock_path(topology: str) -> Path:
    return _folder() / f"{topology}.lock"


def _claimant(topology: str) -> str | None:
    """The process that has claimed the topology's name, if it lives."""
    try:
        process = int(_lock_path(topology).read_text())
        os.kill(process, 0)
    except (OSError, ValueError):
        return None
    return str(process)


def _is_being_started(topology: str, process: str) -> str:
    return f"topology {topology!r} is being started here by process {process}"


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(str(path)) == 0


def _answer(handlers: Mapping[str, Handler], line: bytes) -> dict[str, Any]:
    try:
        request = json.loads(line)
        command = request.pop("command", None)
        if command not in handlers:
            return {"refused": f"unknown command {command!r}; this run knows {', '.join(sorted(handlers))}"}
        return {"answer": handlers[command](**request)}
    except (StreamTopologyError, ValueError, TypeError) as wrong:
        return {"refused": str(wrong)}
