"""Partition i runs on executor i, always, and a broken contract is told in plain words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from streamtopology.jobs.local.cluster import LocalCluster
from streamtopology.jobs.pinning import (
    RowCountError,
    Slot,
    executor_ids,
    executors,
    partition_count,
    pin,
    row_counts_explained,
)

pytestmark = pytest.mark.spark

Stage = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
PLACED = "partition long, host string, worker long, total long"


def where_it_runs() -> Stage:
    """A stage of one row a partition: its number, the host it ran on, its process, the sum of the rows' last column."""

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os

        from pyspark import TaskContext

        total = sum(sum(batch.column(batch.num_columns - 1).to_pylist()) for batch in batches)
        context = TaskContext.get()
        assert context is not None
        row = {"partition": context.partitionId(), "host": os.environ["SPARK_LOCAL_IP"], "worker": os.getpid()}
        yield pa.RecordBatch.from_pylist([{**row, "total": total}])

    return stage


def dealt(partitions: int) -> Stage:
    """A stage that emits one row per target partition: target p gets 1000 p + the partition's first value."""

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = sum(batch.column(0)[0].as_py() for batch in batches)
        schema = pa.schema([("place", pa.int32()), ("value", pa.int64())])
        rows = [{"place": p, "value": 1000 * p + first} for p in range(partitions)]
        yield pa.RecordBatch.from_pylist(rows, schema=schema)

    return stage


def numbers(spark: SparkSession, partitions: int) -> DataFrame:
    return spark.range(0, partitions, 1, partitions)


def hosts(slots: Sequence[Slot]) -> list[str]:
    return [slot.host for slot in slots]


def test_every_partition_runs_on_its_executor_in_every_job(spark: SparkSession, slots: list[Slot]) -> None:
    for turn in range(len(slots) * 2):
        order = slots[turn % len(slots) :] + slots[: turn % len(slots)]
        rows = pin(numbers(spark, len(order)), order, 1).mapInArrow(where_it_runs(), PLACED).collect()
        assert [row.host for row in rows] == hosts(order)


def test_one_executor_may_have_several_partitions_and_others_none(spark: SparkSession, slots: list[Slot]) -> None:
    order = [slots[1], slots[3], slots[1], slots[1], slots[3]]
    rows = pin(numbers(spark, 5), order, 1).mapInArrow(where_it_runs(), PLACED).collect()
    assert [row.host for row in rows] == hosts(order)


def test_stages_of_one_partition_share_a_worker_and_rows_arrive(spark: SparkSession, slots: list[Slot]) -> None:
    places = len(slots)
    spread = pin(numbers(spark, places), slots, 1).mapInArrow(dealt(places), "place int, value long")
    shuffled = spread.repartitionById(places, "place")
    assert partition_count(shuffled) == places
    rows = pin(shuffled, slots, places).mapInArrow(where_it_runs(), PLACED).collect()
    before = pin(numbers(spark, places), slots, 1).mapInArrow(where_it_runs(), PLACED).collect()
    assert [row.host for row in rows] == hosts(slots)
    assert [row.worker for row in rows] == [row.worker for row in before]
    assert [row.total for row in rows] == [1000 * p * places + sum(range(places)) for p in range(places)]


def test_the_wrong_number_of_partitions_is_refused_at_once(spark: SparkSession, slots: list[Slot]) -> None:
    with pytest.raises(ValueError, match="3 partitions to 2 executors"):
        pin(numbers(spark, 3), slots[:2], 1)


@pytest.mark.parametrize("promised", [1, 3])
def test_the_wrong_number_of_rows_is_explained(spark: SparkSession, slots: list[Slot], promised: int) -> None:
    two_each = spark.range(0, 4, 1, 2)
    with pytest.raises(RowCountError, match="rows_per_partition"), row_counts_explained():
        pin(two_each, slots[:2], promised).collect()


def test_executors_know_their_class_and_slot(spark: SparkSession, cluster: LocalCluster) -> None:
    found = executors(spark)
    assert [(e.attributes["SLOT"], e.attributes["CLASS"]) for e in found] == [
        (slot.name, slot.class_name) for slot in cluster.slots
    ]
    assert [cluster.slot_at(executor.host).name for executor in found] == [slot.name for slot in cluster.slots]
    assert executor_ids(spark) == {executor.id for executor in found}
