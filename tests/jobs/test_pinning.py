"""Partition i runs on executor i, always, and a broken contract is told in plain words."""

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

from streamtopology.jobs.local.cluster import LocalCluster
from streamtopology.jobs.pinning import (
    Blob,
    BlobCountError,
    Sending,
    Slot,
    addressed,
    blob_counts_explained,
    blobs_of,
    exchanged,
    executor_ids,
    executors,
    placed,
    stage,
)

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # executors do not have the tests


def where_it_runs(place: int, arrived: Iterator[bytes]) -> Iterator[Blob]:
    """One blob a partition: its number, the host it ran on, its process, the blobs that it was sent."""
    blobs = sorted(blob.decode() for blob in arrived)
    host = os.environ["SPARK_LOCAL_IP"]
    yield json.dumps({"partition": place, "host": host, "worker": os.getpid(), "blobs": blobs}).encode()


def letters(places: int, place: int, arrived: Iterator[bytes]) -> Iterator[Blob]:
    """A blob from this place to every other."""
    assert [len(blob) for blob in arrived] == [0]
    return addressed(f"from {place} to {target}".encode() for target in range(places))


def told(blobs: RDD[bytes]) -> list[dict[str, Any]]:
    return [json.loads(blob) for blob in blobs.collect()]


def hosts(slots: Sequence[Slot]) -> list[str]:
    return [slot.host for slot in slots]


def test_every_partition_runs_on_its_executor_in_every_job(spark: SparkSession, slots: list[Slot]) -> None:
    for turn in range(len(slots) * 2):
        order = slots[turn % len(slots) :] + slots[: turn % len(slots)]
        rows = told(stage(placed(spark, order), where_it_runs))
        assert [(row["partition"], row["host"]) for row in rows] == list(enumerate(hosts(order)))


def test_one_executor_may_have_several_partitions_and_others_none(spark: SparkSession, slots: list[Slot]) -> None:
    order = [slots[1], slots[3], slots[1], slots[1], slots[3]]
    assert [row["host"] for row in told(stage(placed(spark, order), where_it_runs))] == hosts(order)


def test_stages_of_one_partition_share_a_worker_and_blobs_arrive(spark: SparkSession, slots: list[Slot]) -> None:
    places = len(slots)
    sent = stage(placed(spark, slots), partial(letters, places))
    rows = told(stage(exchanged(Sending(sent, places), slots), where_it_runs))
    before = told(stage(placed(spark, slots), where_it_runs))
    assert [row["host"] for row in rows] == hosts(slots)
    assert [row["worker"] for row in rows] == [row["worker"] for row in before]
    assert [row["blobs"] for row in rows] == [[f"from {i} to {place}" for i in range(places)] for place in range(places)]


def big(size: int, place: int, arrived: Iterator[bytes]) -> Iterator[Blob]:
    list(arrived)
    return addressed([pa.py_buffer(bytes([place + 1]) * size)] * 2)


def sizes(place: int, arrived: Iterator[bytes]) -> Iterator[Blob]:
    yield json.dumps([[len(blob), sorted(set(blob))] for blob in arrived]).encode()


def test_a_blob_may_be_larger_than_any_buffer_on_its_way(spark: SparkSession, slots: list[Slot]) -> None:
    size = 70 << 20  # Kryo's own limit would be 64 MiB
    sent = stage(placed(spark, slots[:2]), partial(big, size))
    found = [json.loads(blob) for blob in stage(exchanged(Sending(sent, 2), slots[:2]), sizes).collect()]
    assert [sorted(blobs) for blobs in found] == [[[size, [1]], [size, [2]]]] * 2


def as_letters(places: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = sum(batch.num_rows for batch in batches)
    for blob in addressed(f"{rows} rows for {place}".encode() for place in range(places)):
        yield pa.record_batch({"blob": pa.array([blob], pa.binary())})


def test_blobs_of_a_frame_join_those_of_a_stage(spark: SparkSession, slots: list[Slot]) -> None:
    """The tasks of the frame run where Spark puts them, and are senders like the others."""
    places = len(slots)
    frame = spark.range(0, 30, 1, 3).mapInArrow(partial(as_letters, places), "blob binary")
    sent = stage(placed(spark, slots), partial(letters, places)).union(blobs_of(frame))
    rows = told(stage(exchanged(Sending(sent, places), slots), where_it_runs))
    for place, row in enumerate(rows):
        assert row["blobs"] == [f"10 rows for {place}"] * 3 + [f"from {i} to {place}" for i in range(places)]


@pytest.mark.parametrize("addresses", [3, 5])
def test_the_wrong_number_of_blobs_is_explained(spark: SparkSession, slots: list[Slot], addresses: int) -> None:
    sending = Sending(stage(placed(spark, slots), partial(letters, addresses)), len(slots))
    with pytest.raises(BlobCountError, match="one to each place"), blob_counts_explained():
        stage(exchanged(sending, slots), where_it_runs).collect()


def marked(marks: Path, places: int, place: int, arrived: Iterator[bytes]) -> Iterator[Blob]:
    (marks / f"{place}-{time.monotonic_ns()}").touch()
    return letters(places, place, arrived)


def test_what_was_begun_before_the_action_is_not_done_again(spark: SparkSession, slots: list[Slot], tmp_path: Path) -> None:
    places = len(slots)
    sending = Sending(stage(placed(spark, slots), partial(marked, tmp_path, places)), places)
    sending.begin()
    while len(list(tmp_path.iterdir())) < places:
        time.sleep(0.02)
    rows = told(stage(exchanged(sending, slots), where_it_runs))
    assert [row["blobs"] for row in rows] == [[f"from {i} to {place}" for i in range(places)] for place in range(places)]
    assert len(list(tmp_path.iterdir())) == places


def test_what_comes_beside_does_not_have_the_other_sent_again(spark: SparkSession, slots: list[Slot], tmp_path: Path) -> None:
    places = len(slots)
    ahead = Sending(stage(placed(spark, slots[:2]), partial(marked, tmp_path, places)), places)
    ahead.begin()
    while len(list(tmp_path.iterdir())) < 2:
        time.sleep(0.02)
    later = Sending(stage(placed(spark, slots), partial(letters, places)), places)
    rows = told(stage(exchanged(ahead.beside(later), slots), where_it_runs))
    for place, row in enumerate(rows):
        assert row["blobs"] == sorted([f"from {i} to {place}" for i in [0, 1, *range(places)]])
        assert row["host"] == slots[place].host
    assert len(list(tmp_path.iterdir())) == 2


def test_executors_know_their_class_and_slot(spark: SparkSession, cluster: LocalCluster) -> None:
    found = executors(spark)
    assert [(e.attributes["SLOT"], e.attributes["CLASS"]) for e in found] == [
        (slot.name, slot.class_name) for slot in cluster.slots
    ]
    assert [cluster.slot_at(executor.host) for executor in found] == [slot.name for slot in cluster.slots]
    assert executor_ids(spark) == {executor.id for executor in found}
