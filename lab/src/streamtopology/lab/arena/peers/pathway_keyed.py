"""The keyed count by Pathway, a process a worker: first of one file, which is checked, then until the time is over.

This script starts itself once for each worker. The rows so far are those of Pathway's own metrics: what has left its connector.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import csv
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

# The state is kept each 10 s. Rows that wait in the connector are bounded, else they fill the memory.
SNAPSHOT_MILLISECONDS = 10_000
BACKLOG = 1_000_000
SECONDS_TO_START = 300


def work(request: dict[str, Any]) -> None:
    """One worker, until its files end, or it is killed."""
    import pathway as pw

    class Rows(pw.Schema):
        k: int

    once = request["phase"] == "checked"
    data = request["checked"] if once else request["data"]
    rows = pw.io.csv.read(data, schema=Rows, mode="static" if once else "streaming", max_backlog_size=BACKLOG, name="rows")
    counts = rows.groupby(pw.this.k).reduce(pw.this.k, n=pw.reducers.count())
    if once:
        pw.io.csv.write(counts, str(Path(request["work"], f"counts-{request['number']}.csv")))
        pw.run(monitoring_level=pw.MonitoringLevel.NONE)
        return
    pw.io.null.write(counts)
    kept = pw.persistence.Config(
        pw.persistence.Backend.filesystem(request["store"]),
        snapshot_interval_ms=SNAPSHOT_MILLISECONDS,
        persistence_mode=pw.PersistenceMode.OPERATOR_PERSISTING,
    )
    pw.run(monitoring_level=pw.MonitoringLevel.NONE, with_http_server=True, persistence_config=kept)


def _free_ports(count: int) -> int:
    """The first of `count` ports in a row that are free."""
    for first in range(23_000, 60_000, count):
        with suppress(OSError):
            taken = [socket.create_server(("localhost", first + number)) for number in range(count)]
            for server in taken:
                server.close()
            return first
    raise RuntimeError("there are no free ports")


def start(request: dict[str, Any], phase: str, page: int) -> list[subprocess.Popen[bytes]]:
    """The workers of a phase, each in its cgroup."""
    count = len(request["cpus"])
    store = Path(request["work"]) / f"store-{phase}"
    store.mkdir()
    places = {
        "PATHWAY_PROCESSES": str(count),
        "PATHWAY_THREADS": "1",
        "PATHWAY_FIRST_PORT": str(page + count),
        "PATHWAY_MONITORING_HTTP_PORT": str(page),
    }
    started: list[subprocess.Popen[bytes]] = []
    for number, files in enumerate(request["join"]):

        def join(files: Sequence[str] = files) -> None:
            for file in files:
                Path(file).write_text(str(os.getpid()))

        asked = {**request, "phase": phase, "number": number, "store": str(store)}
        environment = {**os.environ, **places, "PATHWAY_PROCESS_ID": str(number)}
        command = [sys.executable, __file__, json.dumps(asked)]
        started.append(subprocess.Popen(command, env=environment, preexec_fn=join, stdout=sys.stderr))
    return started


def rows_so_far(page: int) -> int:
    """Of the operator that comes first, the connector's; 0 while there are no metrics."""
    with suppress(OSError), urllib.request.urlopen(f"http://localhost:{page}/metrics", timeout=10) as answer:
        found = re.findall(r"^(\d+)_rows_positive (\d+)$", answer.read().decode(), re.MULTILINE)
        return int(min(found, key=lambda operator: int(operator[0]))[1]) if found else 0
    return 0


def checked(folder: Path) -> list[int]:
    """Keys, rows and the highest count of the rows that were written: each change has the sign `diff`."""
    counts: dict[str, int] = {}
    for file in folder.glob("counts-*.csv"):
        with file.open(newline="") as written:
            for row in csv.DictReader(written):
                counts[row["k"]] = counts.get(row["k"], 0) + int(row["n"]) * int(row["diff"])
    return [len(counts), sum(counts.values()), max(counts.values(), default=0)]


def main() -> None:
    request: dict[str, Any] = json.loads(sys.argv[1])
    if "number" in request:
        work(request)
        return
    settings = {
        "persistence": "operators, each 10 s",
        "max_backlog_size": BACKLOG,
        "files": "CSV, read by one worker, as its connector does",
    }
    print(json.dumps({"progress": "counts", "settings": settings}), flush=True)
    page = _free_ports(2 * len(request["cpus"]))
    if any(process.wait() for process in start(request, "checked", page)):
        raise RuntimeError("a worker of Pathway's has failed")
    print(json.dumps({"progress": "runs", "found": checked(Path(request["work"]))}), flush=True)
    workers = start(request, "measured", page)
    try:
        begin = time.time()
        while not rows_so_far(page):
            if time.time() > begin + SECONDS_TO_START:
                raise RuntimeError(f"Pathway counted nothing in {SECONDS_TO_START} s")
            time.sleep(0.5)
        print(json.dumps({"began": True}), flush=True)
        until = time.time() + request["seconds"]
        while time.time() < until:
            if any(process.poll() is not None for process in workers):
                raise RuntimeError("a worker of Pathway's has ended")
            rows, at = rows_so_far(page), time.time()
            print(json.dumps({"rows": rows, "at": at}), flush=True)
            time.sleep(1)
    finally:
        for process in workers:
            process.kill()


main()
