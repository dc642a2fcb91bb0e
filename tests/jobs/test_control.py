"""Commands to a running topology: an answer, or a refusal with the reason; never a traceback for who asked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.manifests import counting, files, manifest, memory_sink

from streamtopology.contract.errors import Unavailable
from streamtopology.jobs.checkpoint import CheckpointError
from streamtopology.jobs.cli.main import main
from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.local.control_socket import ControlServer, NotRunning, Refused, ask, claim, the_running
from streamtopology.jobs.runtime.preflight.cpu_doubts import cpu_warning
from streamtopology.topology import parse


def scale(replicas: int) -> str:
    if replicas < 0:
        raise ValueError("fewer than none")
    return f"{replicas} now"


def full() -> str:
    raise CheckpointError("no space on the disk")


def failed() -> str:
    raise TopologyFailed("it has ended")


def wrong() -> str:
    raise KeyError("a mistake of ours")


@pytest.fixture
def running() -> Iterator[str]:
    name = f"asked-{os.getpid()}"  # names are those of the machine: tests run in parallel processes
    with ControlServer(name, {"scale": scale, "full": full, "failed": failed, "wrong": wrong}):
        yield name


def test_an_answer(running: str) -> None:
    assert ask(running, "scale", replicas=3) == "3 now"


@pytest.mark.parametrize(
    ("command", "arguments", "why"),
    [
        ("scale", {"replicas": -1}, "fewer than none"),
        ("scale", {"executors": 1}, "unexpected keyword argument 'executors'"),
        ("full", {}, "no space on the disk"),
        ("failed", {}, "it has ended"),
        ("shrink", {}, "unknown command 'shrink'; this run knows failed, full, scale, wrong"),
    ],
)
def test_a_refusal(running: str, command: str, arguments: dict[str, int], why: str) -> None:
    with pytest.raises(Refused, match=why):
        ask(running, command, **arguments)


def test_stop_without_a_name_stops_the_only_topology_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(drain: bool, now: bool) -> str:
        return f"stopped, drain {drain}, now {now}"

    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert main(["stop"]) == 1
    assert "no topology runs here" in capsys.readouterr().err
    with ControlServer("one", {"stop": stopped}):
        assert main(["stop", "--drain"]) == 0
        assert capsys.readouterr().out == "stopped, drain True, now False\n"
        with ControlServer("two", {"stop": stopped}):
            assert main(["stop"]) == 1
            assert "several topologies run here: one, two; name one of them" in capsys.readouterr().err


def test_name_that_no_topology_can_have_is_not_running() -> None:
    with pytest.raises(NotRunning, match="cannot be asked: AF_UNIX path too long"):
        ask("a" * 300, "stop")


def test_a_mistake_of_ours_is_reported_where_it_was_made(running: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Refused, match=rf"topology '{running}' did not answer: it ended, or the command failed; see its log"):
        ask(running, "wrong")
    assert "a mistake of ours" in capsys.readouterr().err


@pytest.mark.parametrize("made", ["by another user", "as a link", "open to others"])
def test_folder_of_sockets_that_others_can_write_to_is_refused(
    made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody may make such a folder in /tmp: a link in it would have a run empty any file of its user's."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folder, precious = tmp_path / f"streamtopology-{os.getuid()}", tmp_path / "precious"
    precious.write_text("a day's work")
    (tmp_path / "theirs").mkdir(mode=0o700)
    if made == "by another user":
        monkeypatch.setattr(os, "getuid", lambda: folder.parent.stat().st_uid + 1)
        folder = tmp_path / f"streamtopology-{os.getuid()}"
    if made == "as a link":
        folder.symlink_to(tmp_path / "theirs")
    else:
        folder.mkdir()
        folder.chmod(0o777 if made == "open to others" else 0o700)
    (folder / "flights.lock").symlink_to(precious)
    for attempt in (lambda: claim("flights").__enter__(), lambda: ask("flights", "stop"), the_running):
        with pytest.raises(Unavailable, match="not a folder that only this user can write to: remove it, or name another"):
            attempt()
    assert precious.read_text() == "a day's work"


def test_folder_of_sockets_is_made_for_its_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with claim("flights"):
        assert (tmp_path / f"streamtopology-{os.getuid()}").stat().st_mode & 0o777 == 0o700


def test_nobody_is_there() -> None:
    with pytest.raises(NotRunning, match="streamtopology run FILE"):
        ask("nosuch", "stop")


@pytest.mark.parametrize(
    ("cpu", "warning"),
    [
        (
            300.0,
            "; warning: found 300, which is 300 whole CPUs for each executor of class 'small'; did you mean 300m, 0.3 of one?",
        ),
        (
            6.0,
            "; warning: found 8 CPUs in all, this machine has 4: here the executors share them, and their limits do not hold; "
            "give them less, or run on a cluster",
        ),
        (0.3, ""),
    ],
)
def test_more_cpu_than_the_machine_has_is_warned_of(cpu: float, warning: str) -> None:
    given = manifest("resized", [files(Path("rows"))], [counting()], [memory_sink("resized", "counts")])
    assert cpu_warning(parse(given), {"large": 1.0, "small": cpu}, 4) == warning
