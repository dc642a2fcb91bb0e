"""A run of tests that is killed while its Spark cluster works leaves no process and no mount, however it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from pathlib import Path

import pytest
from support.waiting import eventually

ROOT = Path(__file__).parents[2]
TEST = "tests/runs/test_kill_and_reroute.py::test_a_rerouted_run_equals_a_group_by_and_keys_are_where_the_table_says"
MARK = "STREAMTOPOLOGY_TEST_OF_A_KILLED_GATE"


def processes_with(mark: str) -> dict[int, str]:
    """Command lines of the processes whose environment has the mark, by process id."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError, PermissionError):  # it has ended, or is another user's
            continue
    return found


def mounts_below(folder: Path) -> list[str]:
    return [line for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
def test_killed_gate_leaves_no_process_and_no_mount(tmp_path: Path, how: signal.Signals) -> None:
    mark = f"{MARK}={uuid.uuid4().hex}"
    name, value = mark.split("=")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {**os.environ, name: value, "TMPDIR": str(temporary)}
    with (tmp_path / "output").open("wb") as output:
        gate = subprocess.Popen(
            ["make", "test", f"TESTS={TEST}"], cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        eventually(lambda: sum("CoarseGrainedExecutorBackend" in line for line in processes_with(mark).values()) >= 2, 300)
        os.killpg(gate.pid, how)
        gate.wait(timeout=120)
        eventually(lambda: not processes_with(mark), 120)
    except AssertionError:
        raise AssertionError(f"{(tmp_path / 'output').read_text()[-2000:]}\nleft: {processes_with(mark)}") from None
    finally:
        for process in processes_with(mark):
            os.kill(process, signal.SIGKILL)
    assert mounts_below(tmp_path) == []
    assert "passed" not in (tmp_path / "output").read_text()
