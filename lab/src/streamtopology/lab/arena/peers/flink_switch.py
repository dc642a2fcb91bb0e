"""The same keyed count on Flink SQL with its adaptive scheduler: workers that come, leave and die, and rescaling.

Flink moves no keys of a running job: the nearest is another parallelism, by its REST API, on the workers that are there.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from flink_cluster import FlinkCluster, add_to_lib
from switching import Play

# For fast switches: no waiting for more workers (as in reactive mode; the defaults of 10 s to 60 s would be silence), frequent
# heartbeats, of which two in a row that fail tell of a dead worker, no pause before a restart, and a checkpoint each second,
# to which a switch goes back. RocksDB writes what has changed; on the heap, each checkpoint would have all keys.
SETTINGS = {
    "jobmanager.scheduler": "adaptive",
    "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout": "0s",
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout": "0s",
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "0s",
    "heartbeat.interval": "500ms",
    "jobmanager.memory.process.size": "1200m",
    "taskmanager.memory.process.size": "1400m",
    "state.backend.type": "rocksdb",
    "execution.checkpointing.incremental": "true",
    "execution.checkpointing.interval": "1s",
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "0s",
}
LONGEST_SECONDS = 170.0
LOOK_SECONDS = 0.02


def statements(topics: dict[str, str], guarantee: str) -> Iterator[str]:
    servers = f"'properties.bootstrap.servers' = '{topics['bootstrap']}'"
    yield (
        f"CREATE TABLE row_source (v STRING) WITH ('connector' = 'kafka', 'topic' = '{topics['source']}', {servers}, "
        "'scan.startup.mode' = 'earliest-offset', 'format' = 'raw')"
    )
    # Names from a pool, as without that a restart looks for transactions of all names that it may have used, for many seconds.
    exactly = ", 'sink.transactional-id-prefix' = 'switch', 'sink.transaction-naming-strategy' = 'pooling'"
    timeout = ", 'properties.transaction.timeout.ms' = '600000'"
    more = exactly + timeout if guarantee == "exactly-once" else ""
    yield (
        "CREATE TABLE row_sink (`key` BIGINT, `count` BIGINT, PRIMARY KEY (`key`) NOT ENFORCED) WITH ("
        f"'connector' = 'upsert-kafka', 'topic' = '{topics['sink']}', {servers}, 'key.format' = 'json', "
        f"'value.format' = 'json', 'sink.delivery-guarantee' = '{guarantee}'{more})"
    )


INSERT = "INSERT INTO row_sink SELECT CAST(v AS BIGINT), COUNT(*) FROM row_source GROUP BY CAST(v AS BIGINT)"


class Switches:
    """The events of a running job; each waits until the job runs as it is meant to."""

    def __init__(self, cluster: FlinkCluster, job: str, workers: int) -> None:
        self._cluster = cluster
        self._job = job
        self._workers = workers

    def move(self) -> dict[str, Any]:
        return self._at_most(self._workers - 1)

    def after_move(self) -> dict[str, Any]:
        return self._at_most(self._workers)

    def join(self) -> dict[str, Any]:
        self._bound(self._workers + 1)
        self._cluster.start_worker()
        return self._until_runs(self._workers + 1)

    def leave(self) -> dict[str, Any]:
        """The worker is let go once the job runs without it."""
        found = self._at_most(self._workers)
        self._worker(works=False).terminate()
        return found

    def kill(self) -> dict[str, Any]:
        """kill -9 of one TaskManager; another is started at once, as Kubernetes does."""
        self._worker(works=True).kill()
        self._cluster.start_worker()
        self._until(lambda: self._parallelism() != self._workers, 20.0)
        return self._until_runs(self._workers)

    def _at_most(self, workers: int) -> dict[str, Any]:
        self._bound(workers)
        return self._until_runs(workers)

    def _bound(self, workers: int) -> None:
        wanted = self._cluster.ask(f"/jobs/{self._job}/resource-requirements")
        for vertex in wanted.values():
            vertex["parallelism"] = {"lowerBound": 1, "upperBound": workers}
        self._cluster.ask(f"/jobs/{self._job}/resource-requirements", wanted)

    def _until_runs(self, workers: int) -> dict[str, Any]:
        self._until(lambda: self._parallelism() == workers, LONGEST_SECONDS)
        latest = self._cluster.ask(f"/jobs/{self._job}/checkpoints")["latest"]["completed"]
        return {"state_bytes": latest["state_size"] if latest else None}

    def _until(self, is_so: Callable[[], bool], seconds: float) -> None:
        until = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > until:
                raise RuntimeError(f"not done in {seconds:.0f} s: {self._cluster.last_words()}")
            time.sleep(LOOK_SECONDS)

    def _parallelism(self) -> int:
        """Of the tasks, all running; 0 while there are others."""
        with suppress(OSError):
            known = self._cluster.ask(f"/jobs/{self._job}")
            running = [v["tasks"]["RUNNING"] == v["parallelism"] for v in known["vertices"]]
            if known["state"] == "RUNNING" and running and all(running):
                return max(vertex["parallelism"] for vertex in known["vertices"])
        return 0

    def _worker(self, works: bool) -> subprocess.Popen[bytes]:
        """One that has tasks of the job, or one that has none."""
        here = {worker["id"] for worker in self._cluster.ask("/taskmanagers")["taskmanagers"]}
        vertices = [vertex["id"] for vertex in self._cluster.ask(f"/jobs/{self._job}")["vertices"]]
        paths = [f"/jobs/{self._job}/vertices/{vertex}/taskmanagers" for vertex in vertices]
        working = {worker["taskmanager-id"] for path in paths for worker in self._cluster.ask(path)["taskmanagers"]}
        return self._cluster.workers[sorted(working if works else here - working)[-1]]


def main() -> None:
    request = json.loads(sys.argv[1])
    work, workers = Path(request["work"]), request["workers"]
    add_to_lib([Path(jar) for jar in request["jars"]], work / "lib")
    with Play(request) as play, FlinkCluster(work, [()] * workers, SETTINGS) as cluster:
        tables = cluster.tables()
        for statement in statements(play.topics, request["guarantee"]):
            tables.execute_sql(statement)
        print(json.dumps({"settings": {**SETTINGS, "sink.delivery-guarantee": request["guarantee"]}}), flush=True)
        client = tables.execute_sql(INSERT).get_job_client()
        assert client is not None
        switches = Switches(cluster, str(client.get_job_id()), workers)
        events = {name: getattr(switches, name) for name in request["play"]["events"] if name != "calm"}
        play.run({**events, "after move": switches.after_move})


main()
