"""Puts partition i of a DataFrame on executor i: the only module that touches Spark's private API.

The rows' RDD is zipped, inside the JVM, with a tiny RDD of *anchors* whose partitions prefer one executor each; a zipped
partition inherits the preference, and with a long `spark.locality.wait` a preference is a decision. The zip wants as
many anchors as rows in each partition, hence the contract of `pin`.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

_MOST_CACHED_ANCHORS = 256
_ZIP_COMPLAINT = "Can only zip RDDs with same number of elements in each partition"


class RowCountError(Exception):
    """A partition handed to `pin` did not have the promised number of rows."""


@dataclass(frozen=True, order=True)
class Slot:
    """Where partition i is to run: an executor's id and host as Spark names them."""

    executor_id: str
    host: str


@dataclass(frozen=True)
class ExecutorInfo:
    """A live executor. `attributes` come from the environment it was started with (`SPARK_EXECUTOR_ATTRIBUTE_*`)."""

    id: str
    host: str
    attributes: Mapping[str, str]

    @property
    def slot(self) -> Slot:
        return Slot(self.id, self.host)


def pin(df: DataFrame, slots: Sequence[Slot], rows_per_partition: int) -> DataFrame:
    """`df` with the same rows, partition i computed on `slots[i]` (and everything narrow that is put on top of it, too).

    `df` must have `len(slots)` partitions (ValueError) of exactly `rows_per_partition` rows each; run the action under
    `row_counts_explained` to have a breach of the latter told in plain words.
    """
    spark = df.sparkSession
    jvm = _jvm(spark.sparkContext)
    java_frame: Any = df._jdf
    java_session: Any = spark._jsparkSession
    rows = java_frame.queryExecution().toRdd()
    if rows.getNumPartitions() != len(slots):
        raise ValueError(f"cannot pin {rows.getNumPartitions()} partitions to {len(slots)} executors: one slot per partition")
    any_tag = _class_tag(jvm, "java.lang.Object")
    zipped = _anchors(spark.sparkContext, tuple(slots), rows_per_partition).zip(rows, any_tag)
    values = jvm.org.apache.spark.api.java.JavaPairRDD(zipped, any_tag, any_tag).values().rdd()
    return DataFrame(java_session.internalCreateDataFrame(values, java_frame.schema(), False), spark)


def partition_count(df: DataFrame) -> int:
    """Number of partitions that `df` will be computed in: the number of map tasks when it is shuffled."""
    java_frame: Any = df._jdf
    return java_frame.queryExecution().toRdd().getNumPartitions()


@contextmanager
def row_counts_explained() -> Iterator[None]:
    """Run an action on pinned DataFrames; raises `RowCountError` instead of Spark's failure deep inside a stage."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as failure:
        if _ZIP_COMPLAINT in str(failure):
            raise RowCountError(
                "a pinned partition has more or fewer rows than rows_per_partition promised; every task of the stage before "
                "must emit exactly one row per target, empty ones included"
            ) from failure
        raise


def executors(spark: SparkSession) -> list[ExecutorInfo]:
    """The application's live executors, sorted by host."""
    found: list[ExecutorInfo] = []
    summaries = _scala_context(spark.sparkContext).statusStore().executorList(True)
    for index in range(summaries.size()):
        summary = summaries.apply(index)
        host = summary.hostPort().rpartition(":")[0]
        if host and summary.id() != "driver":  # one that has just registered has no address yet
            found.append(ExecutorInfo(summary.id(), host, _to_dict(spark, summary.attributes())))
    return sorted(found, key=lambda executor: (_host_order(executor.host), executor.id))


def executor_ids(spark: SparkSession) -> frozenset[str]:
    """Ids of the executors that the scheduler believes alive; one cheap call, for looking often."""
    ids = _scala_context(spark.sparkContext).getExecutorIds().mkString(",")
    return frozenset(filter(None, ids.split(",")))


_caches: weakref.WeakKeyDictionary[SparkContext, OrderedDict[tuple[tuple[Slot, ...], int], Any]] = weakref.WeakKeyDictionary()


def _anchors(context: SparkContext, slots: tuple[Slot, ...], rows: int) -> Any:
    """The anchors RDD for these slots, made once per application."""
    cache = _caches.setdefault(context, OrderedDict())
    anchors = cache.pop((slots, rows), None)
    if anchors is None:
        anchors = _make_anchors(context, slots, rows)
    cache[slots, rows] = anchors
    if len(cache) > _MOST_CACHED_ANCHORS:
        cache.popitem(last=False)
    return anchors


def _make_anchors(context: SparkContext, slots: tuple[Slot, ...], rows: int) -> Any:
    jvm = _jvm(context)
    to_seq = jvm.org.apache.spark.api.python.PythonUtils.toSeq
    elements = jvm.java.util.ArrayList()
    preferences = jvm.java.util.HashMap()
    for index, slot in enumerate(slots):
        location = jvm.java.util.ArrayList()
        location.add(f"executor_{slot.host}_{slot.executor_id}")  # the form of a TaskLocation that names an executor
        preferences.put(index, to_seq(location))
        for _ in range(rows):
            elements.add(b"")
    as_map = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(preferences)
    return jvm.org.apache.spark.rdd.ParallelCollectionRDD(
        _scala_context(context), to_seq(elements), len(slots), as_map, _class_tag(jvm, "[B")
    )


def _jvm(context: SparkContext) -> Any:
    return context._jvm


def _scala_context(context: SparkContext) -> Any:
    java_context: Any = context._jsc
    return java_context.sc()


def _class_tag(jvm: Any, name: str) -> Any:
    return jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName(name))


def _to_dict(spark: SparkSession, scala_map: Any) -> dict[str, str]:
    entries = _jvm(spark.sparkContext).scala.jdk.javaapi.CollectionConverters.asJava(scala_map)
    return {str(name): str(entries[name]) for name in entries}


def _host_order(host: str) -> tuple[tuple[int, str], ...]:
    """127.0.1.9 before 127.0.1.10, and executor-2 before executor-10."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in host.replace("-", ".").split("."))
