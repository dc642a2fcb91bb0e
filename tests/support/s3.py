"""A real server of the S3 protocol for tests: versitygw, built once from the Go module in tests/s3/go.

python -m support.s3     builds it (about a minute on 2 cores, once); the tests build it themselves when it is not there
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from support.kube.binaries import KubernetesMissing, find_go

MODULE = Path(__file__).parents[1] / "s3" / "go"
BUCKET = "checkpoints"
_START_SECONDS = 60


class S3Server:
    """A server on a port of its own, its files in a folder of its own; it can be away for a while."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = _free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.environment = {
            "AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": uuid.uuid4().hex, "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
        }  # fmt: skip
        self.files = folder / "buckets"
        """A folder for each bucket, and in it a file for each object, by its key."""
        (self.files / BUCKET).mkdir(parents=True)
        (folder / "attributes").mkdir()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [binary(), f"127.0.0.1:{self.port}", self._folder],
                env={**os.environ, **self.environment},
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                pytest.fail((self._folder / "log").read_text(errors="replace"))
            time.sleep(0.02)

    def stop(self) -> None:
        """It is gone at once, as if killed; connections to it are refused."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def uri(self) -> str:
        """A place that no one has used."""
        return f"s3://{BUCKET}/{uuid.uuid4().hex}/checkpoint"

    @contextmanager
    def away(self) -> Iterator[None]:
        self.stop()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def way(self) -> Iterator[Way]:
        way = Way(self.port)
        try:
            yield way
        finally:
            way.close()

    def _answers(self) -> bool:
        try:
            with urlopen(f"{self.endpoint}/health", timeout=5) as answer:
                return answer.status == 200
        except (URLError, OSError):
            return False


class Way:
    """A way to the server, which can be closed and opened again, and on which an answer can be lost."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._port = _free_port()
        self.endpoint = f"http://127.0.0.1:{self._port}"
        self.loses_answers = 0
        self.passes_answers = 0  # before those that are lost
        self._sockets: list[socket.socket] = []
        self.open()

    def open(self) -> None:
        listener = socket.create_server(("127.0.0.1", self._port))
        self._sockets.append(listener)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def close(self) -> None:
        """Connections break, new ones are refused."""
        while self._sockets:
            _hang_up(self._sockets.pop())

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:  # closed
                return
            there = socket.create_connection(("127.0.0.1", self._server_port))
            self._sockets += [client, there]
            threading.Thread(target=self._carry, args=(client, there), daemon=True).start()
            threading.Thread(target=self._carry, args=(there, client, True), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, answers: bool = False) -> None:
        try:
            while data := source.recv(1 << 16):
                if answers and self.loses_answers and not self.passes_answers:
                    self.loses_answers -= 1
                    break
                if answers and self.passes_answers:
                    self.passes_answers -= 1
                target.sendall(data)
        except OSError:  # either side is gone, which ends the other
            pass
        _hang_up(target)
        _hang_up(source)


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):  # it may be over already
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One server for the test session, whose environment knows it."""
    folder = Path(tempfile.mkdtemp(prefix="s3-"))
    server = S3Server(folder)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        try:
            server.start()
            yield server
        finally:
            server.stop()
            shutil.rmtree(folder)


def binary() -> Path:
    """The server, built when it is not there. Who builds it at the same time builds the same."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(MODULE.iterdir()))).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamtopology" / f"s3-{digest}"
    built = cache / "s3"
    if not built.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as draft:
            _compile(Path(draft, "s3"))
            Path(draft, "s3").rename(built)
    return built


def _compile(target: Path) -> None:
    try:
        go = find_go()
    except KubernetesMissing as missing:
        pytest.fail(str(missing))
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    subprocess.run(
        [go, "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", target, "."],
        cwd=MODULE,
        env=environment,
        check=True,
    )


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


if __name__ == "__main__":
    print(binary())
