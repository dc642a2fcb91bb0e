"""Pinning of partition i to executor i, and exchange of blobs between all partitions, by Spark's private API.

State lives in an executor's memory, so its partition must run there, in every batch. Spark has only preferences. Each
stage's RDD holds blobs (byte strings), which Python and the JVM pass to each other as they are. It is zipped, inside the
JVM, with a tiny RDD of *anchors* whose partitions prefer one executor each; a zipped partition inherits the preference,
and with a long `spark.locality.wait` a preference is a decision. The zip wants as many anchors as blobs in each partition,
hence the contract of `exchanged`.
"""

from __future__ import annotations

import copy
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from py4j.protocol import Py4JJavaError
from pyspark import RDD, SparkContext
from pyspark.errors import PySparkException
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession

from streamtopology.jobs.exchange.blobs import StageTask
from streamtopology.jobs.spark.executors import ExecutorInfo, ExecutorRef, in_order

_MOST_CACHED_ANCHORS = 256
_ZIP_COMPLAINT = "Can only zip RDDs with same number of elements in each partition"


class BlobCountError(Exception):
    """A partition that was to be pinned did not have the promised number of blobs."""


def placed(spark: SparkSession, executors: Sequence[ExecutorRef]) -> RDD[bytes]:
    """Return one empty blob on each of `executors`: the input of a job's first stage."""
    context = spark.sparkContext
    anchors = _anchors(context, tuple(executors), 1)
    return _raw(context, _scala_of(context).JavaRDD(anchors, _scala_of(context).bytes_tag))


def stage(blobs: RDD[bytes], work: StageTask) -> RDD[bytes]:
    """Return the output of `work`, run in a Python worker at every partition of `blobs`."""
    done: Any = blobs.mapPartitionsWithIndex(cast(Any, work), preservesPartitioning=True)
    done._bypass_serializer = True  # what the stage gives crosses to the JVM as it is
    done._jrdd_deserializer = NoOpSerializer()
    return done


def started(blobs: RDD[bytes]) -> Callable[[], bool]:
    """Start the computation of `blobs`, without waiting. Returns a call that is True once it has ended, well or not."""
    java_blobs: Any = blobs._jrdd
    return java_blobs.countAsync().isDone


def delete_shuffles(blobs: RDD[bytes]) -> None:
    """Delete the shuffle files that `blobs` were computed from; without waiting. Nothing can be computed from them again.

    Else they stay until the driver's JVM collects its garbage, half an hour where it has much memory.
    """
    java_blobs: Any = blobs._jrdd
    java_blobs.rdd().cleanShuffleDependencies(False)


class Sending:
    """The blobs that every partition of `sent` addresses to each of `partitions` partitions, `each` of them; see `addressed`.

    They are sent when an action needs them, or, after `begin`, as soon as the executors have room.
    """

    def __init__(self, sent: RDD[bytes], partitions: int, each: int = 1) -> None:
        self.context = sent.context
        self.partitions = partitions
        self.arriving = sent.getNumPartitions() * each
        """The number of blobs that each partition gets."""
        scala = _scala_of(self.context)
        java_sent: Any = sent._jrdd
        pairs = scala.PairwiseRDD(java_sent.rdd()).asJavaPairRDD()
        self._by_partition = pairs.partitionBy(scala.PythonPartitioner(partitions, 0))

    def begin(self) -> None:
        """Start the stage that sends, without waiting; a failure in it is repeated where its output is needed.

        It cannot be cancelled: a cancelled task ends its Python worker, and with it the state that the worker holds.
        """
        _scala_context(self.context).submitMapStage(self._by_partition.rdd().dependencies().head())

    def union(self, other: Sending) -> Sending:
        """Return the blobs of both. Blobs that were sent are not sent again, because both are partitioned alike."""
        both = copy.copy(self)
        both.arriving = self.arriving + other.arriving
        both._by_partition = self._by_partition.union(other._by_partition)
        return both

    def blobs(self) -> Any:
        """Return an RDD[byte[]] in the JVM: at partition i the blobs addressed to it."""
        return _scala_of(self.context).value_of_pair(self._by_partition).rdd()


def exchanged(sending: Sending, executors: Sequence[ExecutorRef]) -> RDD[bytes]:
    """Return the blobs addressed to partition i, at partition i, on `executors[i]`.

    Every sender must have addressed the same number of blobs to every partition; run the action under `blob_counts_explained`
    to get a breach of that explained.
    """
    scala = _scala_of(sending.context)
    zipped = _anchors(sending.context, tuple(executors), sending.arriving).zip(sending.blobs(), scala.bytes_tag)
    return _raw(sending.context, scala.JavaPairRDD(zipped, scala.any_tag, scala.bytes_tag).values())


def blobs_of(frame: DataFrame) -> RDD[bytes]:
    """Return the blobs of a frame whose only column is binary, computed where Spark places its tasks."""
    context = frame.sparkSession.sparkContext
    java_frame: Any = frame._jdf
    return _raw(context, getattr(java_frame, "as")(_scala_of(context).binary_encoder).javaRDD())


@contextmanager
def blob_counts_explained() -> Iterator[None]:
    """Run an action on exchanged blobs; raises `BlobCountError` instead of Spark's failure deep inside a stage."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as failure:
        if _ZIP_COMPLAINT in str(failure):
            raise BlobCountError(
                "a partition received more or fewer blobs than its senders promised; every task of the stage before must "
                "address that number to each partition, empty ones included"
            ) from failure
        raise


def executors(spark: SparkSession) -> list[ExecutorInfo]:
    """Return the application's live executors, sorted by host."""
    found: list[ExecutorInfo] = []
    summaries = _scala_context(spark.sparkContext).statusStore().executorList(True)
    for index in range(summaries.size()):
        summary = summaries.apply(index)
        host = summary.hostPort().rpartition(":")[0]
        if host and summary.id() != "driver":  # one that has just registered has no address yet
            found.append(ExecutorInfo(summary.id(), host, _to_dict(spark, summary.attributes())))
    return in_order(found)


def executor_ids(spark: SparkSession) -> frozenset[str]:
    """Return the ids of the executors that the scheduler believes alive; one cheap call, for frequent use."""
    ids = _scala_context(spark.sparkContext).getExecutorIds().mkString(",")
    return frozenset(filter(None, ids.split(",")))


class _Scala:
    """The JVM's classes that pinning uses: py4j looks a class up package by package, 10 ms of the driver's CPU each time."""

    def __init__(self, context: SparkContext) -> None:
        jvm = _jvm(context)
        tag_of = jvm.scala.reflect.ClassTag.apply
        for_name = jvm.java.lang.Class.forName
        self.any_tag = tag_of(for_name("java.lang.Object"))
        self.bytes_tag = tag_of(for_name("[B"))
        self.JavaPairRDD = jvm.org.apache.spark.api.java.JavaPairRDD
        self.JavaRDD = jvm.org.apache.spark.api.java.JavaRDD
        self.PairwiseRDD = jvm.org.apache.spark.api.python.PairwiseRDD
        self.PythonPartitioner = jvm.org.apache.spark.api.python.PythonPartitioner
        self.value_of_pair = jvm.PythonRDD.valueOfPair
        self.binary_encoder = jvm.org.apache.spark.sql.Encoders.BINARY()
        for name in ("PythonRDD", "PythonUtils", "SimplePythonFunction"):
            setattr(jvm, name, getattr(jvm, name))  # PySpark's own look-ups, several a stage, find them here
        self.as_java = jvm.scala.jdk.javaapi.CollectionConverters.asJava


_scalas: weakref.WeakKeyDictionary[SparkContext, _Scala] = weakref.WeakKeyDictionary()


def _scala_of(context: SparkContext) -> _Scala:
    if context not in _scalas:
        _scalas[context] = _Scala(context)
    return _scalas[context]


def _raw(context: SparkContext, java_rdd: Any) -> RDD[bytes]:
    return RDD(java_rdd, context, NoOpSerializer())


_caches: weakref.WeakKeyDictionary[SparkContext, OrderedDict[tuple[tuple[ExecutorRef, ...], int], Any]] = (
    weakref.WeakKeyDictionary()
)


def _anchors(context: SparkContext, executors: tuple[ExecutorRef, ...], rows: int) -> Any:
    """Return the anchors RDD for these executors, made once per application."""
    cache = _caches.setdefault(context, OrderedDict())
    anchors = cache.pop((executors, rows), None)
    if anchors is None:
        anchors = _make_anchors(context, executors, rows)
    cache[executors, rows] = anchors
    if len(cache) > _MOST_CACHED_ANCHORS:
        cache.popitem(last=False)
    return anchors


def _make_anchors(context: SparkContext, executors: tuple[ExecutorRef, ...], rows: int) -> Any:
    jvm = _jvm(context)
    to_seq = jvm.org.apache.spark.api.python.PythonUtils.toSeq
    elements = jvm.java.util.ArrayList()
    preferences = jvm.java.util.HashMap()
    for index, executor in enumerate(executors):
        location = jvm.java.util.ArrayList()
        location.add(f"executor_{executor.host}_{executor.executor_id}")  # the form of a TaskLocation that names an executor
        preferences.put(index, to_seq(location))
        for _ in range(rows):
            elements.add(b"")
    as_map = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(preferences)
    return jvm.org.apache.spark.rdd.ParallelCollectionRDD(
        _scala_context(context), to_seq(elements), len(executors), as_map, _scala_of(context).bytes_tag
    )


def _jvm(context: SparkContext) -> Any:
    return context._jvm


def _scala_context(context: SparkContext) -> Any:
    java_context: Any = context._jsc
    return java_context.sc()


def _to_dict(spark: SparkSession, scala_map: Any) -> dict[str, str]:
    entries = _scala_of(spark.sparkContext).as_java(scala_map)
    return {str(name): str(entries[name]) for name in entries}
