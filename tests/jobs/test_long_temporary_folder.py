"""A temporary folder with a long path, as batch systems give each job: sockets go where their paths are not too long."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from streamtopology.jobs.local.spark_session import meeting_place

FOLDER = "spark.python.unix.domain.socket.dir"
# Characters of a socket's path, by unix(7).
MOST = 107
NAME = len("/.00000000-0000-0000-0000-000000000000.sock")


@pytest.mark.parametrize("length", [10, 60, 61, 200])
def test_a_socket_s_path_is_never_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    temporary = tmp_path / ("t" * max(1, length - len(str(tmp_path)) - 1))
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    folder = Path(meeting_place(temporary / "cluster")[FOLDER])
    assert folder.is_dir()
    assert len(str(folder)) + NAME <= MOST


def test_the_scratch_folder_comes_first_and_ports_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert meeting_place(Path("/dev/shm"))[FOLDER] == "/dev/shm"
    monkeypatch.setattr("os.access", lambda *_: False)
    assert meeting_place(tmp_path) == {"spark.python.unix.domain.socket.enabled": "false"}
