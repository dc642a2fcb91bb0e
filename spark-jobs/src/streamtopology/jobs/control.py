"""Talking to a running topology on this machine: one JSON line each way over a Unix socket that only its owner can open."""

from __future__ import annotations

import json
import os
import socket
import socketserver
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from streamtopology.jobs.checkpoint import CheckpointError
from streamtopology.jobs.failures import TopologyFailed

Handler = Callable[..., str]
_ANSWER_SECONDS = 60.0


class NotRunning(Exception):
    """No topology of that name runs on this machine under this user."""


class Refused(Exception):
    """The running topology said no, and why."""


def socket_path(topology: str) -> Path:
    """Where the topology `topology` listens."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(runtime) / "streamtopology" if runtime else Path(tempfile.gettempdir()) / f"streamtopology-{os.getuid()}"
    return folder / f"{topology}.sock"


def ask(topology: str, command: str, **arguments: object) -> str:
    """Send a command to the running topology; returns its answer. Raises NotRunning or Refused."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_SECONDS)
            connection.connect(str(socket_path(topology)))
            connection.sendall(json.dumps({"command": command, **arguments}).encode() + b"\n")
            line = connection.makefile().readline()
    except (ConnectionResetError, BrokenPipeError):
        line = ""
    except (FileNotFoundError, ConnectionRefusedError):
        raise NotRunning(
            f"topology {topology!r} is not running here under this user; start it with: streamtopology run FILE"
        ) from None
    if not line:
        raise Refused(f"topology {topology!r} did not answer: it ended, or failed at this; its log says which")
    answer = json.loads(line)
    if "refused" in answer:
        raise Refused(answer["refused"])
    return str(answer["answer"])


def the_running() -> str:
    """The only topology that runs here; raises NotRunning when there is none, or more than one."""
    running = sorted(path.stem for path in socket_path("any").parent.glob("*.sock") if _answers(path))
    if len(running) != 1:
        raise NotRunning(f"{', '.join(running) or 'no topology'} runs here; name one with --topology")
    return running[0]


def refuse_second_run(topology: str) -> None:
    """Raises Refused where a topology of that name runs on this machine under this user."""
    path = socket_path(topology)
    if path.exists() and _answers(path):
        raise Refused(f"topology {topology!r} runs here already; stop it first: streamtopology stop {topology}")


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
    except (ValueError, TypeError, CheckpointError, TopologyFailed) as wrong:
        return {"refused": str(wrong)}
