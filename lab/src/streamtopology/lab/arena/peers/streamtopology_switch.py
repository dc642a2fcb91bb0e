"""A keyed count in real time, Kafka to Kafka, through re-routings: keys that move, executors that come, leave and die."""

# pyright: reportMissingImports=false
from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from switching import Play

from streamtopology.contract.reasons import EpochReason
from streamtopology.jobs.local.cleanup import members
from streamtopology.jobs.local.embedded_cluster import EmbeddedCluster
from streamtopology.jobs.local.run import open_run, process
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.runtime.streaming_query import Until
from streamtopology.jobs.runtime.topology_run import RunOptions, TopologyRun, new_history
from streamtopology.lab.bench.cluster import cluster_for
from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.routing.table.table import RoutingTable
from streamtopology.topology import Topology, parse

SHARE_MOVED = 0.1
LONGEST_SECONDS = 170.0
LOOK_SECONDS = 0.01


def described(topics: dict[str, str], workers: int) -> Topology:
    broker = {"kafka.bootstrap.servers": topics["bootstrap"]}
    rows = {"subscribe": topics["source"], "startingOffsets": "earliest", **broker}
    operator = {"name": "counts", "inputs": ["rows"], "grouping": {"policy": "mixed", "key": "key"}, "run": "count"}
    spec = {
        "sources": [{"name": "rows", "format": "kafka", "options": rows, "select": ["decode(value)::BIGINT AS key"]}],
        "operators": [operator],
        "sinks": [{"name": "out", "input": "counts", "format": "kafka", "options": {"topic": topics["sink"], **broker}}],
        "executors": [{"name": "even", "replicas": workers, "cpu": os.cpu_count(), "memory": "1Gi"}],
        "rebalance": {"mode": "Off"},
        "trigger": {"realTime": True},
    }
    meta = {"name": "arena-switch"}
    return parse({"apiVersion": "streamtopology.dev/v1alpha1", "kind": "StreamTopology", "metadata": meta, "spec": spec})


class Switches:
    """The events of a running topology; each returns what it moved and which batches took longest."""

    def __init__(self, run: TopologyRun, history: History, embedded: EmbeddedCluster, workers: int) -> None:
        self._run = run
        self._history = history
        self._embedded = embedded
        self._workers = workers

    def move(self) -> dict[str, Any]:
        """A tenth of the buckets goes to the next instance."""
        router = self._run.router
        now = router.epoch
        route = now.routes["counts"]
        assert route.table is not None, "mixed routes by a table"
        buckets = route.table.buckets.copy()
        chosen = np.random.default_rng(now.number).choice(len(buckets), round(SHARE_MOVED * len(buckets)), replace=False)
        buckets[chosen] = (buckets[chosen] + 1) % self._workers
        table = RoutingTable(route.table.entry_hashes, route.table.entry_instances, buckets)
        reason = EpochReason.of_text("a tenth of the keys moves")
        number = now.number + 1
        began = time.time()
        router.publish(Epoch(number, {"counts": replace(route, table=table)}, now.source_shares, reason))
        return self._until(began, lambda: self._settled(number, self._workers))

    def join(self) -> dict[str, Any]:
        return self._scale(self._workers + 1)

    def leave(self) -> dict[str, Any]:
        return self._scale(self._workers)

    def kill(self) -> dict[str, Any]:
        """kill -9 of one executor's JVM; done when its successor works."""
        began = time.time()
        before = {executor.executor for executor in self._run.standing().executors}
        self._kill_one()

        def has_a_successor() -> bool:
            admitted = {executor.executor for executor in self._run.standing().executors if executor.admitted}
            return len(admitted) == self._workers and admitted != before

        first = self._until(began, has_a_successor)
        newest = self._history.newest
        self._until(began, lambda: self._history.newest > newest + 1)
        return {**first, "batches": self._longest_batches(began)}

    def _kill_one(self) -> None:
        slot = self._embedded.slots[-1].name
        for pid in members(self._embedded.cluster.name, slot):
            with suppress(OSError):
                if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)

    def _scale(self, workers: int) -> dict[str, Any]:
        began = time.time()
        self._run.scale("even", workers)
        return self._until(began, lambda: self._settled(self._run.router.epoch.number, workers))

    def _settled(self, epoch: int, workers: int) -> bool:
        last = self._history.last
        if last is None or last.moving or last.epoch < epoch:
            return False
        return len({report.slot for report in last.reports}) == workers and self._run.router.newest().epoch.number == last.epoch

    def _until(self, began: float, is_done: Callable[[], bool]) -> dict[str, Any]:
        until, known = time.monotonic() + LONGEST_SECONDS, len(self._history.reconfigurations)
        while not is_done():
            if time.monotonic() > until:
                raise RuntimeError(f"not done in {LONGEST_SECONDS:.0f} s")
            time.sleep(LOOK_SECONDS)
        moved = [change for change in self._history.reconfigurations[known:] if change.operator == "counts"]
        return {"keys_moved": sum(change.keys_moved for change in moved), "batches": self._longest_batches(began)}

    def _longest_batches(self, began: float) -> list[dict[str, Any]]:
        """The three longest since then, for who looks for the cause."""
        of_switch = [batch for batch in self._history.batches if batch.committed_at > began]
        longest = sorted(of_switch, key=lambda batch: -batch.seconds)[:3]
        return [
            {
                "number": batch.number,
                "at": round(batch.committed_at - began, 3),
                "seconds": round(batch.seconds, 3),
                "epoch": batch.epoch,
                "moving": batch.moving,
                "rows": batch.rows,
                "steps": None if batch.steps is None else {name: round(s, 3) for name, s in asdict(batch.steps).items()},
            }
            for batch in longest
        ]


def main() -> None:
    request = json.loads(sys.argv[1])
    work, workers = Path(request["work"]), request["workers"]
    with Play(request) as play:
        topology = described(play.topics, workers)
        with cluster_for(topology, work) as embedded:
            history = new_history(topology)
            run = open_run(embedded, topology, Path.cwd(), history, RunOptions(Until(), work))
            history.listen(_said(time.time()))
            switches = Switches(run, history, embedded, workers)
            events = {name: getattr(switches, name) for name in request["play"]["events"] if name != "calm"}
            failed: list[Exception] = []

            def played() -> None:
                try:
                    play.run(events)
                except Exception as error:  # noqa: BLE001 - raised again below
                    failed.append(error)
                run.stop()

            playing = threading.Thread(target=played)
            playing.start()
            print(json.dumps({"settings": settings_of(topology)}), flush=True)
            process(run, history)
            playing.join()
            if failed:
                raise failed[0]


def settings_of(topology: Topology) -> dict[str, Any]:
    executors = [{"replicas": of_class.replicas, "cpu": of_class.cpu} for of_class in topology.executors]
    return {"executors": executors, "trigger": "realTime", "rebalance": "Off"}


def _said(began: float) -> Callable[[History], None]:
    """Prints each event of the run to the log."""
    known = 0

    def listen(history: History) -> None:
        nonlocal known
        for event in history.events[known:]:
            print(f"{event.at - began:8.2f} batch {event.batch}: {event.text}", file=sys.stderr, flush=True)
        known = len(history.events)

    return listen


main()
