"""Kafka to Kafka: 1,000 rows/s, counted by key, from the production of a row to when its count is seen.

    streamtopology bench kafka --bootstrap HOST:PORT --real-time

A process of its own produces the rows and reads the counts, as a read_committed consumer does, so both times are of one clock.
Every count is one of its key's rows: what is missing in the end was lost, and what comes twice was published twice.
"""

from __future__ import annotations

import json
import multiprocessing
import time
import uuid
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from streamtopology.jobs.local.embedded_cluster import EmbeddedCluster
from streamtopology.jobs.local.run import open_run, process
from streamtopology.jobs.runtime.streaming_query import Until
from streamtopology.jobs.runtime.topology_run import RunOptions, new_history
from streamtopology.lab.bench.cluster import TWO_UNLIMITED, announce, cluster_for, fresh_folder, machine
from streamtopology.lab.bench.figures import figure
from streamtopology.topology import Topology, parse

ROWS_PER_SECOND = 1_000
WARM_UP_SECONDS, SECONDS = 10, 30
KEYS = 1_000
PARTITIONS = 4
_MOST_SECONDS = 120.0
_PERCENTILES = {"p50": 50, "p99": 99, "longest": 100}


def run(bootstrap: str = "127.0.0.1:9092", runs: int = 3, real_time: bool = False) -> dict[str, Any]:
    """The latency of the rows of `SECONDS` seconds, `runs` times, each with new topics; these are deleted afterwards."""
    folder = fresh_folder("kafka")
    latencies: list[np.ndarray] = []
    check = {"lost": 0, "duplicated": 0}
    with cluster_for(_counting(bootstrap, "in", "out", real_time), folder) as embedded:
        for number in range(runs):
            seconds, lost, duplicated = _run_once(embedded, bootstrap, folder / f"run-{number}", real_time)
            latencies.append(seconds)
            check = {"lost": check["lost"] + lost, "duplicated": check["duplicated"] + duplicated}
            of_run = ", ".join(f"{name} {np.percentile(seconds, percent):.3f} s" for name, percent in _PERCENTILES.items())
            announce(f"run {number + 1} of {runs}: {of_run}")
    results = [
        figure("Kafka to Kafka", name, "s", [float(np.percentile(seconds, percent)) for seconds in latencies])
        for name, percent in _PERCENTILES.items()
    ]
    of = machine(rows_per_second=ROWS_PER_SECOND, seconds=SECONDS, keys=KEYS, partitions=PARTITIONS, real_time=real_time)
    return {"name": "kafka", "machine": of, "results": results, "check": check}


def _run_once(embedded: EmbeddedCluster, bootstrap: str, folder: Path, real_time: bool) -> tuple[np.ndarray, int, int]:
    """Run the topology on new topics, until the last row's count is seen."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    name = f"streamtopology-bench-{uuid.uuid4().hex[:8]}"
    topics = source, sink = f"{name}-in", f"{name}-out"
    for made in admin.create_topics([NewTopic(topic, PARTITIONS) for topic in topics]).values():
        made.result()
    try:
        described = _counting(bootstrap, source, sink, real_time)
        history = new_history(described)
        topology_run = open_run(embedded, described, Path.cwd(), history, RunOptions(Until(), folder))
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as apart:
            played = apart.submit(play, bootstrap, source, sink)
            played.add_done_callback(lambda _: topology_run.stop())
            process(topology_run, history)
        return played.result()
    finally:
        for deleted in admin.delete_topics(list(topics)).values():
            deleted.result()


def _counting(bootstrap: str, source: str, sink: str, real_time: bool) -> Topology:
    broker = {"kafka.bootstrap.servers": bootstrap}
    rows = {"subscribe": source, "startingOffsets": "earliest", **broker}
    operator = {
        "name": "counts",
        "inputs": ["rows"],
        "grouping": {"policy": "fields", "key": "key"},
        "parallelism": 2,
        "run": "count",
    }
    spec = {
        "sources": [{"name": "rows", "format": "kafka", "options": rows, "select": ["decode(value)::BIGINT AS key"]}],
        "operators": [operator],
        "sinks": [{"name": "out", "input": "counts", "format": "kafka", "options": {"topic": sink, **broker}}],
        "executors": list(TWO_UNLIMITED),
        "rebalance": {"mode": "Off"},
        "trigger": {"realTime": real_time},
    }
    meta = {"name": "kafka-to-kafka"}
    return parse({"apiVersion": "streamtopology.dev/v1alpha1", "kind": "StreamTopology", "metadata": meta, "spec": spec})


def play(bootstrap: str, source: str, sink: str) -> tuple[np.ndarray, int, int]:
    """Produce and consume. Returns the seconds of each row after the warm-up, and how many were lost and counted twice.

    Row `i` has key `i % KEYS`. The first is sent alone, and its count awaited: the topology is ready then.
    """
    producer = Producer({"bootstrap.servers": bootstrap})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": sink, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(sink, partition, 0) for partition in range(PARTITIONS)])
    rows = 1 + ROWS_PER_SECOND * (WARM_UP_SECONDS + SECONDS)
    produced, seen = np.full(rows, np.nan), np.full(rows, np.nan)
    sent, newest, duplicated, began = 0, np.zeros(KEYS, np.int64), 0, time.monotonic()
    until = began + _MOST_SECONDS
    while np.isnan(seen[-KEYS:]).any() and time.monotonic() < until:
        now = time.monotonic()
        due = 1 if np.isnan(seen[0]) else min(rows, 2 + int((now - began) * ROWS_PER_SECOND))
        for row in range(sent, due):
            produced[row] = time.monotonic()
            producer.produce(source, str(row % KEYS), partition=row % PARTITIONS)
        sent = max(sent, due)
        producer.poll(0)
        for key, count in _counts(consumer):
            if sent == 1:
                began, until = time.monotonic(), time.monotonic() + WARM_UP_SECONDS + SECONDS + _MOST_SECONDS
            duplicated += int(count <= newest[key])
            seen[newest[key] * KEYS + key : count * KEYS : KEYS] = time.monotonic()
            newest[key] = count
    consumer.close()
    duplicated += int(np.maximum(newest - np.bincount(np.arange(sent) % KEYS, minlength=KEYS), 0).sum())
    seconds = (seen - produced)[-ROWS_PER_SECOND * SECONDS :]
    return seconds[~np.isnan(seconds)], int(np.isnan(seen).sum()), duplicated


def _counts(consumer: Consumer) -> list[tuple[int, int]]:
    """The counts that have come, by key; waits a moment for them."""
    first = consumer.poll(1 / ROWS_PER_SECOND)
    messages: list[Message] = [] if first is None else [first, *consumer.consume(KEYS, timeout=0)]
    rows = [json.loads(message.value() or b"") for message in messages if message.error() is None]
    return [(row["key"], row["count"]) for row in rows]
