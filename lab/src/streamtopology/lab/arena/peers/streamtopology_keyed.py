"""The keyed count by a topology, or ShuffleBench's job: first of what is checked, then of all files until the time is over."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb

from streamtopology.jobs.local.run import open_run, process
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.runtime.streaming_query import Until
from streamtopology.jobs.runtime.topology_run import RunOptions, new_history
from streamtopology.lab.bench.cluster import cluster_for
from streamtopology.topology import Topology, parse


def operators(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    policy = "auto" if request["rerouted"] else "fields"
    if "rules" not in request:
        yield {"name": "counts", "inputs": ["rows"], "run": "count", "grouping": {"policy": policy, "key": "k"}}
        return
    code = Path(__file__).with_name("streamtopology_shufflebench.py")
    yield {"name": "matches", "inputs": ["rows"], "run": f"{code}:Matching", "with": {"rules": request["rules"]}}
    consumers = {"name": "consumers", "inputs": ["matches"], "grouping": {"policy": policy, "key": "consumer"}}
    yield {**consumers, "run": f"{code}:Consumer", "with": {"rate": request["rate"], "bytes": request["bytes"]}}


def counting(request: dict[str, Any], name: str, data: str, sink: Path | None) -> Topology:
    """A row of each key that a batch had, as Spark's mode `update` has them; of ShuffleBench its events."""
    spec: dict[str, Any] = {
        "sources": [
            {
                "name": "rows",
                "format": "parquet",
                "schema": "stamp BIGINT, data BINARY" if "rules" in request else "k BIGINT",
                "options": {"path": data, "maxFilesPerTrigger": request["files_of_a_batch"]},
            }
        ],
        "operators": list(operators(request)),
        "executors": [
            {"name": f"worker-{number}", "replicas": 1, "cpu": cpu, "memory": "1Gi"}
            for number, cpu in enumerate(request["cpus"])
        ],
        "trigger": {"realTime": True},
    }
    if not request["rerouted"]:
        spec["rebalance"] = {"mode": "Off"}
    if sink is not None:
        spec["sinks"] = [
            {"name": "result", "input": spec["operators"][-1]["name"], "format": "parquet", "options": {"path": str(sink)}}
        ]
    return parse(
        {"apiVersion": "streamtopology.dev/v1alpha1", "kind": "StreamTopology", "metadata": {"name": name}, "spec": spec}
    )


def main() -> None:
    request = json.loads(sys.argv[1])
    work = Path(request["work"])
    checked = counting(request, "checked", request["checked"], work / "results")
    measured = counting(request, "measured", request["data"], None)
    with cluster_for(checked, work) as embedded:
        names = {"cgroups": embedded.cluster.directory.name, "slots": [slot.name for slot in embedded.slots]}
        settings = {
            "policy": measured.operators[-1].grouping.policy,
            "files of a batch": request["files_of_a_batch"],
            "trigger": "realTime",
            "memory of an executor": "1Gi",
        }
        print(json.dumps({"progress": "counts", "settings": settings, **names}), flush=True)
        history = new_history(checked)
        process(open_run(embedded, checked, Path.cwd(), history, RunOptions(Until(drain=True), work / "once")), history)
        of_a_key = "consumer, count(*)" if "rules" in request else "k, max(count)"
        newest = f"SELECT {of_a_key} AS n FROM '{work}/results/**/*.parquet' GROUP BY 1"
        found = duckdb.execute(f"SELECT count(*), sum(n)::BIGINT, max(n) FROM ({newest})").fetchall()[0]
        print(json.dumps({"progress": "runs", "found": found, "began": True}), flush=True)
        history = new_history(measured)
        history.listen(_Rows())
        until = Until(seconds=request["seconds"])
        process(open_run(embedded, measured, Path.cwd(), history, RunOptions(until, work / "run")), history)
        batches = [change.batch for change in history.reconfigurations]
    print(json.dumps({"reroutings_in_batches": batches, "batches": len(history.batches)}), flush=True)


class _Rows:
    """Prints the rows so far after each batch."""

    def __init__(self) -> None:
        self._rows = 0
        self._newest = -1

    def __call__(self, history: History) -> None:
        last = history.last
        if last is None or last.number == self._newest:
            return
        self._rows, self._newest = self._rows + last.rows, last.number
        print(json.dumps({"rows": self._rows, "at": time.time()}), flush=True)


main()
