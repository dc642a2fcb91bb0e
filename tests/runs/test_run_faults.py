"""Kills, exceptions and full disks: the run stops or continues as documented, and every row counts once in the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.faults import kill_python, stop_python_workers
from support.gate import Gate, gated, in_a_batch, write_all
from support.manifests import counting, counts_in, counts_seen, files, manifest, memory_sink, write_rows

from streamtopology.jobs.checkpoint import CheckpointError
from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.local.cleanup import members
from streamtopology.jobs.runtime.streaming_query import Until
from streamtopology.topology import ManifestError

if TYPE_CHECKING:  # the plugin is imported by pytest, which then explains its assertions
    from support.topologies import Runner

pytest_plugins = ("support.topologies",)
pytestmark = pytest.mark.timeout(300)

PICKY = """
from streamtopology.jobs.operators.count import Count

class Picky(Count):
    def fold(self, rows, slots, state):
        super().fold(rows, slots, state)
        if {worst} in rows.column("value").to_pylist():
            raise ValueError("a value that cannot be")
"""


@pytest.mark.parametrize("real_time", [False, True])
def test_a_python_worker_killed_in_a_batch_costs_one_attempt(runner: Runner, gate: Gate, real_time: bool) -> None:
    expected = write_all(runner.folder / "rows")
    given = manifest(
        "beheaded",
        [files(runner.folder / "rows")],
        [gated(gate)],
        [memory_sink("beheaded", "counts")],
        trigger={"availableNow": True, "realTime": real_time},
    )
    with runner.running(given) as running:
        running.wait_until(lambda: gate.waiting() == 3)
        assert kill_python(runner.embedded.cluster, "large-1") >= 2
        running.wait_until(lambda: any("a Python worker died; retrying" in event.text for event in running.history.events))
        gate.open()
        running.wait_until(running.ended.done)
    assert counts_in("beheaded") == expected
    assert {batch.number: batch.attempt for batch in running.history.batches}[1] == 2


def folder_sink(results: Path) -> dict[str, Any]:
    return {"name": "out", "input": "counts", "format": "parquet", "options": {"path": str(results)}}


def counts_in_files(results: Path) -> dict[Any, int]:
    return counts_seen(row for path in sorted(results.glob("*.parquet")) for row in pq.read_table(path).to_pylist())


def driver_jvm(driver: int) -> int:
    """The process id of the JVM that the driver's process has started for itself."""
    children = Path(f"/proc/{driver}/task").glob("*/children")
    found = [int(child) for listed in children for child in listed.read_text().split()]
    return next(child for child in found if "pyspark-shell" in Path(f"/proc/{child}/cmdline").read_text())


def test_a_worker_of_real_time_that_stands_still_for_good_is_replaced(runner: Runner, gate: Gate) -> None:
    expected = write_all(runner.folder / "rows")
    given = manifest(
        "petrified",
        [files(runner.folder / "rows")],
        [gated(gate)],
        [memory_sink("petrified", "counts")],
        trigger={"availableNow": True, "realTime": True},
    )
    with runner.running(given) as running:
        running.wait_until(lambda: gate.waiting() == 3)
        assert stop_python_workers(runner.embedded.cluster, "large-1") == 1
        gate.open()
        running.wait_until(running.ended.done)
        retries = [event.text for event in running.history.events if "retrying" in event.text]
    assert counts_in("petrified") == expected
    assert 1 <= len(retries) <= 3, retries


@pytest.mark.parametrize("real_time", [False, True])
def test_driver_killed_in_a_batch_leaves_nothing_and_is_resumed(runner: Runner, gate: Gate, real_time: bool) -> None:
    expected = write_all(runner.folder / "rows")
    results = runner.folder / "results"
    trigger = {"availableNow": True, "realTime": real_time}
    given = manifest("left-alone", [files(runner.folder / "rows")], [gated(gate)], [folder_sink(results)], trigger=trigger)
    with in_a_batch(runner, given, gate):
        pass
    while [path for path in (runner.folder / "cluster").iterdir() if path.is_dir()]:
        time.sleep(0.1)  # the supervisor removes the cluster's folder when all its processes are gone
    gate.open()
    history = runner.run(given)
    assert [batch.number for batch in history.batches if batch.rows] == [1, 2, 3]
    assert history.batches[0].attempt == 2
    assert counts_in_files(results) == expected


def test_workers_of_a_driver_killed_in_a_batch_go_on_with_the_next_one(runner: Runner, gate: Gate) -> None:
    expected = write_all(runner.folder / "rows")
    results = runner.folder / "results"
    trigger = {"availableNow": True, "realTime": True}
    given = manifest("taken-over", [files(runner.folder / "rows")], [gated(gate)], [folder_sink(results)], trigger=trigger)
    with in_a_batch(runner, given, gate):
        pass
    (cluster,) = (path for path in (runner.folder / "cluster").iterdir() if path.is_dir())
    assert len(members(cluster.name)) == 3
    gate.open()
    command = [sys.executable, "-m", "streamtopology.jobs.cli.main", "run", str(runner.save(given))]
    done = subprocess.run([*command, "--work-dir", str(runner.folder)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    events = (runner.folder / "taken-over" / "events.log").read_text()
    assert "the executors of the driver before, which was killed, go on with their state" in events
    assert counts_in_files(results) == expected
    assert not members(cluster.name)


def test_a_run_whose_jvm_is_killed_says_so_and_is_resumed(runner: Runner, gate: Gate) -> None:
    expected = write_all(runner.folder / "rows")
    given = manifest("jvm-less", [files(runner.folder / "rows")], [gated(gate)], [folder_sink(runner.folder / "results")])
    with in_a_batch(runner, given, gate) as driver:
        jvm = driver_jvm(driver.pid)
        os.kill(jvm, signal.SIGKILL)
        assert driver.wait(60) == 1
    printed = (runner.folder / "log").read_text()
    assert "Traceback" not in printed
    assert f"Spark's driver JVM (process {jvm}) ended by signal 9 (SIGKILL)" in printed
    assert "good, as of batch 0" in printed
    gate.open()
    runner.run(given)
    assert counts_in_files(runner.folder / "results") == expected


def with_a_bad_row(folder: Path) -> tuple[Counter[int], int]:
    """Four files of rows, of which the third has a row that `Picky` does not like: (counts without it, its key)."""
    expected = write_all(folder)
    path = folder / "part-0002.parquet"
    table, written_at = pq.read_table(path), path.stat().st_mtime_ns
    values = table["value"].to_pylist()
    values[1234] = -7
    key = table["key"][1234].as_py()
    pq.write_table(table.set_column(1, "value", pa.array(values)), path, row_group_size=500)
    os.utime(path, ns=(written_at, written_at))  # files are read in the order of their times
    return expected, key


def test_a_batch_without_its_commit_record_is_run_again(runner: Runner) -> None:
    """The state left by a driver that dies at the end of a batch."""
    rows = runner.folder / "rows"
    expected = sum((write_rows(rows, number) for number in range(6)), Counter[int]())
    given = manifest("ahead", [files(rows)], [counting()], [memory_sink("ahead", "counts")])
    runner.run(given, Until(batches=4))
    before = counts_in("ahead")
    (runner.folder / "ahead" / "checkpoint" / "commits" / "3.json").unlink()
    history = runner.run(given)
    assert [batch.number for batch in history.batches][:3] == [3, 4, 5]
    assert {**before, **counts_in("ahead")} == expected


def test_a_tuple_that_fails_stops_the_run_until_the_operator_is_corrected(runner: Runner) -> None:
    expected, key = with_a_bad_row(runner.folder / "rows")
    operator = counting(run="picky.py:Picky")
    given = manifest("picky", [files(runner.folder / "rows")], [operator], [memory_sink("picky", "counts")])
    (runner.folder / "picky.py").write_text(PICKY.format(worst=-7))
    named = rf"operator 'counts' failed on one tuple in batch 2 at instance \d, key key={key}: ValueError: a value that"
    with pytest.raises(TopologyFailed, match=named):
        runner.run(given)
    before = counts_in("picky")
    (runner.folder / "picky.py").write_text(PICKY.format(worst=-8))
    history = runner.run(given)
    assert [batch.number for batch in history.batches if batch.rows] == [2, 3]
    assert {**before, **counts_in("picky")} == expected


def test_a_tuple_that_fails_is_set_aside_where_the_manifest_says_so(runner: Runner) -> None:
    expected, key = with_a_bad_row(runner.folder / "rows")
    operator = counting(run="picky.py:Picky")
    (runner.folder / "picky.py").write_text(PICKY.format(worst=-7))
    runner.run(
        manifest(
            "lenient", [files(runner.folder / "rows")], [operator], [memory_sink("lenient", "counts")], onBadTuple="deadLetter"
        )
    )
    assert counts_in("lenient") == expected - Counter([key])
    letters = (runner.folder / "lenient" / "checkpoint" / "dead-letters").glob("*.jsonl")
    (letter,) = [json.loads(line) for path in letters for line in path.read_text().splitlines()]
    assert letter["operator"] == "counts"
    assert "a value that cannot be" in letter["reason"]
    assert json.loads(letter["tuple"]) == {"key": key, "value": -7}


def test_a_checkpoint_belongs_to_one_topology_and_to_one_driver(runner: Runner, gate: Gate) -> None:
    expected = write_all(runner.folder / "rows")
    where = {"checkpoint": str(runner.folder / "checkpoint")}

    def given(name: str) -> dict[str, Any]:
        return manifest(name, [files(runner.folder / "rows")], [gated(gate)], [memory_sink("owned", "counts")], **where)

    with runner.running(given("owner")) as running:
        running.wait_until(lambda: gate.waiting() == 3)
        with pytest.raises(ManifestError, match="is that of topology 'owner', not of 'other'"):
            runner.run(given("other"))
        second = [sys.executable, "-c", SECOND_DRIVER, "owner"]
        reported = subprocess.run(second, capture_output=True, text=True, check=True).stdout
        assert "topology 'owner' runs here already; stop it first: streamtopology stop owner" in reported
        gate.open()
        running.wait_until(running.ended.done)
    assert counts_in("owned") == expected


SECOND_DRIVER = """
import sys
from streamtopology.jobs.local import control_socket
try:
    with control_socket.ControlServer(sys.argv[1], {}):
        print("runs twice")
except control_socket.Refused as refused:
    print(refused)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A file system of its own; the function given gives it a size."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("mounting a file system is not permitted here")

    def resize(size: str) -> Path:
        subprocess.run(["mount", "-o", f"remount,size={size}", place], check=True)
        return place

    yield resize
    subprocess.run(["umount", "--lazy", place], check=True)  # workers keep files open that they have mapped


def test_full_disk_stops_the_run_and_free_space_resumes_it(
    runner: Runner, gate: Gate, small_disk: Callable[[str], Path]
) -> None:
    expected = write_all(runner.folder / "rows")
    given = manifest(
        "cramped",
        [files(runner.folder / "rows")],
        [gated(gate)],
        [memory_sink("cramped", "counts")],
        checkpoint=str(small_disk("4m") / "checkpoint"),
    )
    before: dict[int, int] = {}

    def run_until_full() -> None:
        with runner.running(given) as running:
            running.wait_until(lambda: gate.waiting() == 3)
            before.update(counts_in("cramped"))
            fill(small_disk("4m") / "ballast")
            gate.open()
            running.wait_until(running.ended.done)

    with pytest.raises((TopologyFailed, CheckpointError), match="No space left on device"):
        run_until_full()
    small_disk("64m")
    runner.run(given)
    assert {**before, **counts_in("cramped")} == expected


def fill(path: Path) -> None:
    """Write into `path` until nothing more goes in."""
    with path.open("wb", buffering=0) as out:
        try:
            while True:
                out.write(bytes(4096))
        except OSError:
            return


def test_an_expression_that_raises_where_spark_reads_is_named(runner: Runner) -> None:
    source = {
        "name": "ticks", "format": "rate", "options": {"rowsPerSecond": 50},
        "select": ["value AS key", "CAST(concat('n', value) AS INT) AS number"],
    }  # fmt: skip
    given = manifest("ticks", [source], [counting(of="ticks")], [], trigger={"interval": "0s"}, onBadTuple="deadLetter")
    named = r"^source 'ticks' failed in batch \d, expression .CAST\(concat\('n', value\) AS INT\).*: \[CAST_INVALID_INPUT\] "
    with pytest.raises(TopologyFailed, match=named):
        runner.run(given)
