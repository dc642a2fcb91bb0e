"""The keyed count by bytewax, a process a worker: first of one file, which is checked, then until the time is over.

This script starts itself once for each worker. A worker counts what its `stateful_map` has had, and writes it into its own slot
of a small file that all share.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
import mmap
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main

ROWS_AT_ONCE = 1_000  # of a partition; a file is read as a whole, as its rows are few enough
EPOCH = timedelta(seconds=10)
SLOT = struct.Struct("<q")


class Files(StatefulSourcePartition[str, int]):
    """Every `of`-th file; its state is the files that are done, so that recovery begins with a file."""

    def __init__(self, files: Sequence[Path], done: int) -> None:
        self._files = files
        self._done = done
        self._rows = self._read()

    def _read(self) -> Iterator[list[str]]:
        for file in self._files[self._done :]:
            keys = pq.read_table(file)["k"].to_pylist()
            for first in range(0, len(keys), ROWS_AT_ONCE):
                yield [str(key) for key in keys[first : first + ROWS_AT_ONCE]]
            self._done += 1

    def next_batch(self) -> list[str]:
        return next(self._rows)

    def snapshot(self) -> int:
        return self._done


class Source(FixedPartitionedSource[str, int]):
    def __init__(self, folder: str, partitions: int) -> None:
        self._files = sorted(Path(folder).iterdir())
        self._partitions = partitions

    def list_parts(self) -> list[str]:
        return [str(number) for number in range(self._partitions)]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Files:
        return Files(self._files[int(for_part) :: self._partitions], resume_state or 0)


class Dropped(StatelessSinkPartition[Any]):
    def write_batch(self, items: list[Any]) -> None:
        pass


class Nowhere(DynamicSink[Any]):
    def build(self, step_id: str, worker_index: int, worker_count: int) -> Dropped:
        return Dropped()


class Newest(StatelessSinkPartition[Any]):
    """The newest count of each key, written when the run ends."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._counts: dict[str, int] = {}

    def write_batch(self, items: list[Any]) -> None:
        self._counts.update(items)

    def close(self) -> None:
        counts = self._counts.values()
        self._file.write_text(json.dumps([len(counts), sum(counts), max(counts, default=0)]))


class Checked(DynamicSink[Any]):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Newest:
        return Newest(self._folder / f"counts-{worker_index}.json")


def work(request: dict[str, Any], number: int, data: str, sink: DynamicSink[Any], addresses: list[str], store: str) -> None:
    """One worker: the flow until its files end, or it is killed."""
    with Path(request["work"], "rows").open("r+b") as file:
        slots = mmap.mmap(file.fileno(), 0)
    seen = 0

    def counted(count: int | None, value: str) -> tuple[int, int]:
        nonlocal seen
        seen += 1
        if seen % ROWS_AT_ONCE == 0:
            SLOT.pack_into(slots, number * SLOT.size, seen)
        now = (count or 0) + 1
        return now, now

    flow = Dataflow("keyed")
    rows = op.input("rows", flow, Source(data, len(request["cpus"])))
    op.output("counts", op.stateful_map("count", op.key_on("k", rows, lambda key: key), counted), sink)
    cluster_main(flow, addresses, number, epoch_interval=EPOCH, recovery_config=RecoveryConfig(store))


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def start(request: dict[str, Any], phase: str) -> list[subprocess.Popen[bytes]]:
    """The workers of a phase, each in its cgroup."""
    folder = Path(request["work"])
    store = folder / f"recovery-{phase}"
    store.mkdir()
    init_db_dir(store, len(request["cpus"]))
    (folder / "rows").write_bytes(bytes(SLOT.size * len(request["cpus"])))
    addresses = [f"localhost:{_free_port()}" for _ in request["cpus"]]
    started: list[subprocess.Popen[bytes]] = []
    for number, files in enumerate(request["join"]):

        def join(files: Sequence[str] = files) -> None:
            for file in files:
                Path(file).write_text(str(os.getpid()))

        asked = {**request, "phase": phase, "number": number, "addresses": addresses, "store": str(store)}
        started.append(subprocess.Popen([sys.executable, __file__, json.dumps(asked)], preexec_fn=join, stdout=sys.stderr))
    return started


def rows_so_far(request: dict[str, Any]) -> int:
    slots = Path(request["work"], "rows").read_bytes()
    return sum(value for (value,) in SLOT.iter_unpack(slots))


def main() -> None:
    request: dict[str, Any] = json.loads(sys.argv[1])
    folder = Path(request["work"])
    if "number" in request:
        once = request["phase"] == "checked"
        data, sink = (request["checked"], Checked(folder)) if once else (request["data"], Nowhere())
        work(request, request["number"], data, sink, request["addresses"], request["store"])
        return
    settings = {"epoch_interval": "10 s", "recovery": "SQLite, a partition a worker", "rows at once": ROWS_AT_ONCE}
    print(json.dumps({"progress": "counts", "settings": settings}), flush=True)
    if any(process.wait() for process in start(request, "checked")):
        raise RuntimeError("a worker of bytewax's has failed")
    parts = [json.loads(file.read_text()) for file in sorted(folder.glob("counts-*.json"))]
    found = [sum(part[0] for part in parts), sum(part[1] for part in parts), max(part[2] for part in parts)]
    print(json.dumps({"progress": "runs", "found": found}), flush=True)
    workers = start(request, "measured")
    try:
        while not rows_so_far(request):
            time.sleep(0.2)
        print(json.dumps({"began": True}), flush=True)
        until = time.time() + request["seconds"]
        while time.time() < until:
            if any(process.poll() is not None for process in workers):
                raise RuntimeError("a worker of bytewax's has ended")
            print(json.dumps({"rows": rows_so_far(request), "at": time.time()}), flush=True)
            time.sleep(0.5)
    finally:
        for process in workers:
            process.kill()


main()
