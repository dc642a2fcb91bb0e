"""One of our examples of Nexmark's queries: how many rows it gives, and its seconds.

The first run writes the rows as files, which are counted. It checks, and it warms up. Then the query runs without a sink, as
often as `runs` says.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import duckdb

from streamtopology.jobs.local.run import open_run, process
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.runtime.streaming_query import Until
from streamtopology.jobs.runtime.topology_run import RunOptions, new_history
from streamtopology.lab.bench.cluster import cluster_for
from streamtopology.topology import Topology, parse


def manifest_of(request: dict[str, Any]) -> dict[str, Any]:
    """The example's, on executors of `cpus`."""
    spec = importlib.util.spec_from_file_location("nexmark_queries", request["queries"])
    assert spec is not None
    assert spec.loader is not None
    queries: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(queries)
    queries.DATA = request["data"]
    manifest = queries.topology_of(request["query"]).to_manifest()
    manifest["spec"]["executors"] = [
        {"name": f"cpu-{number}", "replicas": 1, "cpu": cpu, "memory": "3Gi"} for number, cpu in enumerate(request["cpus"])
    ]
    manifest["spec"]["trigger"] = {**manifest["spec"]["trigger"], "realTime": True}
    manifest["spec"]["sinks"][0]["options"] = {"path": str(Path(request["work"], "results"))}
    return manifest


def without_sinks(manifest: dict[str, Any]) -> Topology:
    """The topology whose results nobody takes."""
    return parse({**manifest, "spec": {name: value for name, value in manifest["spec"].items() if name != "sinks"}})


def seconds_of(history: History) -> float:
    """From the begin of the first batch to the last commit."""
    first, last = history.opening[0], history.batches[-1]
    return last.committed_at - first.committed_at + first.seconds


def main() -> None:
    request = json.loads(sys.argv[1])
    work = Path(request["work"])
    manifest = manifest_of(request)
    checked = parse(manifest)
    with cluster_for(checked, work) as embedded:

        def ran(topology: Topology, name: str) -> History:
            history = new_history(topology)
            options = RunOptions(Until(drain=True), work / name)
            process(open_run(embedded, topology, Path.cwd(), history, options), history)
            return history

        settings = {"executors": manifest["spec"]["executors"], "trigger": manifest["spec"]["trigger"], "files of a batch": 1}
        print(json.dumps({"progress": "counts", "settings": settings}), flush=True)
        ran(checked, "checked")
        duckdb.execute(f"CREATE VIEW rows AS SELECT * FROM '{work}/results/**/*.parquet'")
        ((count,),) = duckdb.execute(f"SELECT ({request['count']})::BIGINT FROM rows LIMIT 1").fetchall()
        print(json.dumps({"progress": "runs", "count": count}), flush=True)
        seconds = [seconds_of(ran(without_sinks(manifest), f"run-{number}")) for number in range(request["runs"])]
    print(json.dumps({"seconds": seconds}), flush=True)


main()
