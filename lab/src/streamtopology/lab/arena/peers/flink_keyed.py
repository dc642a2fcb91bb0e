"""The keyed count on Flink SQL, or ShuffleBench's job: first of what is checked, then of all files until the time is over.

The rows so far are those that have left the source: what is on its way to the counts is bounded by Flink's buffers.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from flink_cluster import FlinkCluster, add_to_lib
from pyflink.java_gateway import get_gateway
from pyflink.table import Table, TableEnvironment

# Mini-batches and two phases of aggregation, as Flink's page "Performance Tuning" has them against skew. State on the heap,
# which is faster than RocksDB where it fits, and a checkpoint every 10 s.
SETTINGS = {
    "jobmanager.memory.process.size": "1200m",
    "taskmanager.memory.process.size": "1800m",
    "taskmanager.memory.managed.size": "128m",
    "state.backend.type": "hashmap",
    "execution.checkpointing.interval": "10s",
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "restart-strategy.type": "none",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.agg-phase-strategy": "TWO_PHASE",
    "pipeline.object-reuse": "true",
    "metrics.fetcher.update-interval": "1000",
}
COUNTS = "SELECT {}, COUNT(*) AS n FROM {} GROUP BY {}"


def result(tables: TableEnvironment, request: dict[str, Any], name: str) -> tuple[str, str]:
    """Makes the table of the files `name`; its result as a query, and as one with a number `n` for each key."""
    columns = "stamp BIGINT, data BYTES" if "rules" in request else "k BIGINT"
    files = f"'connector' = 'filesystem', 'format' = 'parquet', 'path' = 'file://{request[name]}'"
    tables.execute_sql(f"CREATE TABLE {name} ({columns}) WITH ({files})")
    if "rules" not in request:
        counts = COUNTS.format("k", name, "k")
        return counts, counts
    java = get_gateway().jvm.streamtopology.arena.FlinkShuffleBench
    events = java.events(tables._j_tenv, name, request["rules"], request["rate"], request["bytes"])
    tables.create_temporary_view(f"events_of_{name}", Table(events, tables))
    return f"SELECT * FROM events_of_{name}", COUNTS.format("consumer", f"events_of_{name}", "consumer")


def rows_of(cluster: FlinkCluster, job: str) -> tuple[int, float]:
    """The rows that have left the source's subtasks, and when they were asked for."""
    (vertex,) = [found["id"] for found in cluster.ask(f"/jobs/{job}")["vertices"] if found["name"].startswith("Source")]
    metrics = f"/jobs/{job}/vertices/{vertex}/subtasks/metrics"
    named = [found["id"] for found in cluster.ask(metrics)]
    of_source = next((name for name in named if name.startswith("Source") and name.endswith(".numRecordsOut")), None)
    asked = time.time()
    if of_source is None:
        return 0, asked
    (found,) = cluster.ask(f"{metrics}?get={quote(of_source, safe='')}&agg=sum")
    return int(found["sum"]), asked


def main() -> None:
    request: dict[str, Any] = json.loads(sys.argv[1])
    if "jars" in request:
        add_to_lib([Path(jar) for jar in request["jars"]], Path(request["work"]) / "lib")
    with FlinkCluster(Path(request["work"]), request["join"], SETTINGS) as cluster:
        tables = cluster.streams() if "rules" in request else cluster.tables()
        print(json.dumps({"progress": "counts", "settings": SETTINGS}), flush=True)
        _, counts = result(tables, request, "checked")
        with tables.execute_sql(f"SELECT COUNT(*), SUM(n), MAX(n) FROM ({counts})").collect() as rows:
            *_, found = ([row[0], row[1], row[2]] for row in rows)
        print(json.dumps({"progress": "runs", "found": found}), flush=True)
        every, _ = result(tables, request, "data")
        columns = "consumer STRING, state BYTES" if "rules" in request else "k BIGINT, n BIGINT"
        tables.execute_sql(f"CREATE TABLE nowhere ({columns}) WITH ('connector' = 'blackhole')")
        client = tables.execute_sql(f"INSERT INTO nowhere {every}").get_job_client()
        assert client is not None
        job = str(client.get_job_id())
        while not rows_of(cluster, job)[0]:
            time.sleep(0.2)
        print(json.dumps({"began": True}), flush=True)
        until = time.time() + request["seconds"]
        while time.time() < until:
            rows, at = rows_of(cluster, job)
            print(json.dumps({"rows": rows, "at": at}), flush=True)
            time.sleep(1)
        client.cancel().result()


main()
