"""Partition i runs on executor i, always, and a broken contract is reported in plain words."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import RDD, cloudpickle
from pyspark.sql import SparkSession

from streamtopology.jobs.exchange.blobs import Blob, addressed
from streamtopology.jobs.local.local_cluster import LocalCluster
from streamtopology.jobs.spark.pinned_rdd import (
    BlobCountError,
    ExecutorRef,
    Sending,
    blob_counts_explained,
    blobs_of,
    exchanged,
    executor_ids,
    executors,
    placed,
    stage,
)

pytestmark = pytest.mark.clusters
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # executors do not have the tests


def where_it_runs(partition: int, arrived: Iterator[bytes]) -> Iterator[Blob]:
    """One blob a partition: its number, the host it ran on, its process, the blobs that it was sent."""
    blobs = sorted(blob.decode() for blob in arrived)
    host = os.environ["SPARK_LOCAL_IP"]
    yield json.dumps({"partition": partition, "host": host, "worker": os.getpid(), "blobs": blobs}).encode()


def letters(partitions: int, partition: int, arrived: Iterator[bytes]) -> Iterator[Blob]:
    """A blob from this partition to every other."""
    assert [len(blob) for blob in arrived] == [0]
    return addressed(f"from {partition} to {target}".encode() for target in range(partitions))


def reported(blobs: RDD[bytes]) -> list[dict[str, Any]]:
    return [json.loads(blob) for blob in blobs.collect()]


def hosts(slots: Sequence[ExecutorRef]) -> list[str]:
    return [slot.host for slot in slots]


def test_every_partition_runs_on_its_executor_in_every_job(spark: SparkSession, slots: list[ExecutorRef]) -> None:
    for turn in range(len(slots) * 2):
        order = slots[turn % len(slots) :] + slots[: turn % len(slots)]
        rows = reported(stage(placed(spark, order), where_it_runs))
        assert [(row["partition"], row["host"]) for row in rows] == list(enumerate(hosts(order)))


def test_executor_may_have_several_partitions_and_another_none(spark: SparkSession, slots: list[ExecutorRef]) -> None:
    order = [slots[1], slots[3], slots[1], slots[1], slots[3]]
    assert [row["host"] for row in reported(stage(placed(spark, order), where_it_runs))] == hosts(order)


def test_stages_of_one_partition_share_a_worker_and_blobs_arrive(spark: SparkSession, slots: list[ExecutorRef]) -> None:
    partitions = len(slots)
    sent = stage(placed(spark, slots), partial(letters, partitions))
    rows = reported(stage(exchanged(Sending(sent, partitions), slots), where_it_runs))
    before = reported(stage(placed(spark, slots), where_it_runs))
    assert [row["host"] for row in rows] == hosts(slots)
    assert [row["worker"] for row in rows] == [row["worker"] for row in before]
    assert [row["blobs"] for row in rows] == [
        [f"from {i} to {partition}" for i in range(partitions)] for partition in range(partitions)
    ]


def big(size: int, partition: int, arrived: Iterator[bytes]) -> Iterator[Blob]:
    list(arrived)
    return addressed([pa.py_buffer(bytes([partition + 1]) * size)] * 2)


def sizes(partition: int, arrived: Iterator[bytes]) -> Iterator[Blob]:
    yield json.dumps([[len(blob), sorted(set(blob))] for blob in arrived]).encode()


def test_a_blob_may_be_larger_than_any_buffer_on_its_way(spark: SparkSession, slots: list[ExecutorRef]) -> None:
    size = 70 << 20  # Kryo's own limit would be 64 MiB
    sent = stage(placed(spark, slots[:2]), partial(big, size))
    found = [json.loads(blob) for blob in stage(exchanged(Sending(sent, 2), slots[:2]), sizes).collect()]
    assert [sorted(blobs) for blobs in found] == [[[size, [1]], [size, [2]]]] * 2


def as_letters(partitions: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = sum(batch.num_rows for batch in batches)
    for blob in addressed(f"{rows} rows for {partition}".encode() for partition in range(partitions)):
        yield pa.record_batch({"blob": pa.array([blob], pa.binary())})


def test_blobs_of_a_frame_join_those_of_a_stage(spark: SparkSession, slots: list[ExecutorRef]) -> None:
    """The tasks of the frame run where Spark puts them, and are senders like the others."""
    partitions = len(slots)
    frame = spark.range(0, 30, 1, 3).mapInArrow(partial(as_letters, partitions), "blob binary")
    sent = stage(placed(spark, slots), partial(letters, partitions)).union(blobs_of(frame))
    rows = reported(stage(exchanged(Sending(sent, partitions), slots), where_it_runs))
    for partition, row in enumerate(rows):
        assert row["blobs"] == [f"10 rows for {partition}"] * 3 + [f"from {i} to {partition}" for i in range(partitions)]


@pytest.mark.parametrize("addresses", [3, 5])
def test_the_wrong_number_of_blobs_is_explained(spark: SparkSession, slots: list[ExecutorRef], addresses: int) -> None:
    sending = Sending(stage(placed(spark, slots), partial(letters, addresses)), len(slots))
    with pytest.raises(BlobCountError, match="address that number to each partition"), blob_counts_explained():
        stage(exchanged(sending, slots), where_it_runs).collect()


def marked(marks: Path, partitions: int, partition: int, arrived: Iterator[bytes]) -> Iterator[Blob]:
    (marks / f"{partition}-{time.monotonic_ns()}").touch()
    return letters(partitions, partition, arrived)


def test_stage_begun_before_the_action_runs_once(spark: SparkSession, slots: list[ExecutorRef], tmp_path: Path) -> None:
    partitions = len(slots)
    sending = Sending(stage(placed(spark, slots), partial(marked, tmp_path, partitions)), partitions)
    sending.begin()
    while len(list(tmp_path.iterdir())) < partitions:
        time.sleep(0.02)
    rows = reported(stage(exchanged(sending, slots), where_it_runs))
    assert [row["blobs"] for row in rows] == [
        [f"from {i} to {partition}" for i in range(partitions)] for partition in range(partitions)
    ]
    assert len(list(tmp_path.iterdir())) == partitions


def test_joining_a_second_stage_does_not_repeat_the_first(
    spark: SparkSession, slots: list[ExecutorRef], tmp_path: Path
) -> None:
    partitions = len(slots)
    ahead = Sending(stage(placed(spark, slots[:2]), partial(marked, tmp_path, partitions)), partitions)
    ahead.begin()
    while len(list(tmp_path.iterdir())) < 2:
        time.sleep(0.02)
    later = Sending(stage(placed(spark, slots), partial(letters, partitions)), partitions)
    rows = reported(stage(exchanged(ahead.union(later), slots), where_it_runs))
    for partition, row in enumerate(rows):
        assert row["blobs"] == sorted([f"from {i} to {partition}" for i in [0, 1, *range(partitions)]])
        assert row["host"] == slots[partition].host
    assert len(list(tmp_path.iterdir())) == 2


def test_executors_know_their_class_and_slot(spark: SparkSession, cluster: LocalCluster) -> None:
    found = executors(spark)
    assert [(e.attributes["SLOT"], e.attributes["CLASS"]) for e in found] == [
        (slot.name, slot.class_name) for slot in cluster.slots
    ]
    assert [cluster.slot_at(executor.host) for executor in found] == [slot.name for slot in cluster.slots]
    assert executor_ids(spark) == {executor.id for executor in found}
