"""One query of nexmark's own on Flink SQL: how many rows it gives, and its seconds.

The first job counts the rows of the result. It checks, and it warms the JVMs up. Then the query runs as nexmark has it, its
rows dropped by Flink's `blackhole`, as often as `runs` says.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flink_cluster import FlinkCluster

# nexmark's conf/config_v2.yaml. Other than there, for Flink: state on the heap, which is faster than RocksDB and ForSt where it
# fits, and the memory for it; objects that are used again; and a checkpoint every 10 s, as a run is shorter than the 30 s
# there. Without restarts, a query that fails says so.
SETTINGS = {
    "jobmanager.memory.process.size": "1600m",
    "taskmanager.memory.process.size": "3g",
    "taskmanager.memory.managed.size": "512m",
    "state.backend.type": "hashmap",
    "execution.checkpointing.interval": "10s",
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "execution.checkpointing.checkpoints-after-tasks-finish.enabled": "false",
    "restart-strategy.type": "none",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.distinct-agg.split.enabled": "true",
    "pipeline.object-reuse": "true",
    "parquet.utc-timezone": "true",
    "table.local-time-zone": "UTC",
}
COLUMNS = {
    "person": "id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, state STRING, "
    "`dateTime` TIMESTAMP(3), extra STRING",
    "auction": "id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, `dateTime` TIMESTAMP(3), "
    "expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, `dateTime` TIMESTAMP(3), extra STRING",
}


def statements(text: str) -> list[str]:
    """Those of a file of nexmark's, without comments."""
    lines = [line for line in text.splitlines() if not line.strip().startswith("--")]
    return [statement.strip() for statement in re.split(r";\s*(?:\n|$)", "\n".join(lines)) if statement.strip()]


def sources(request: dict[str, Any], queries: Path) -> Iterator[str]:
    """What makes the tables person, auction and bid: of files, or of nexmark's own generator."""
    if request["source"] == "datagen":
        values = {"TPS": request["rate"], "EVENTS_NUM": request["events"], "PERSON_PROPORTION": 1, "AUCTION_PROPORTION": 3}
        values |= {"BID_PROPORTION": 46, "NEXMARK_TABLE": "datagen", "KEEP_ALIVE": "false", "STOP_AT": "-1"}
        for file in ("ddl_gen_v2.sql", "ddl_views.sql"):
            text = (queries / file).read_text()
            for name, value in values.items():
                text = text.replace(f"${{{name}}}", str(value))
            yield from statements(text)
        return
    for kind, columns in COLUMNS.items():
        files = f"'connector' = 'filesystem', 'format' = 'parquet', 'path' = 'file://{request['data']}/{kind}'"
        late = "WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '4' SECOND"
        yield f"CREATE TABLE {kind} ({columns}, {late}) WITH ({files}, 'parquet.utc-timezone' = 'true')"


def main() -> None:
    request = json.loads(sys.argv[1])
    queries, work = Path(request["queries"]), Path(request["work"])
    side_input = work / "out/data/side_input.txt"  # as nexmark's SideInputGenerator writes it, for q13
    side_input.parent.mkdir(parents=True)
    side_input.write_text("".join(f"{key},{key}\n" for key in range(10_000)))
    text = (queries / f"{request['query']}.sql").read_text()
    for name in ("NEXMARK_DIR", "FLINK_HOME", "SUBMIT_TIME"):
        text = text.replace(f"${{{name}}}", str(work / "out"))
    *made, insert = statements(text)
    select = insert[insert.upper().index("SELECT") :]
    settings = {**SETTINGS, "pipeline.jars": f"file://{request['jar']}", **request.get("settings", {})}
    with FlinkCluster(work, request["join"], settings) as cluster:
        tables = cluster.tables()
        for statement in (*sources(request, queries), *made):
            tables.execute_sql(statement)
        print(json.dumps({"progress": "counts", "settings": settings}), flush=True)
        with tables.execute_sql(f"SELECT COUNT(*) FROM ({select})").collect() as rows:
            counted = [row[0] for row in rows]
        print(json.dumps({"progress": "runs", "count": counted[-1] if counted else 0}), flush=True)
        seconds: list[float] = []
        for _ in range(request["runs"]):
            result = tables.execute_sql(insert)
            result.wait()
            client = result.get_job_client()
            assert client is not None
            seconds.append(cluster.seconds(str(client.get_job_id())))
    print(json.dumps({"seconds": seconds}), flush=True)


main()
