"""Runs partition i on executor i, and sends blobs from every partition to every other: all that touches Spark's private API.

Each stage's RDD holds blobs (byte strings), which Python and the JVM pass to each other as they are. It is zipped, inside
the JVM, with a tiny RDD of *anchors* whose partitions prefer one executor each; a zipped partition inherits the
preference, and with a long `spark.locality.wait` a preference is a decision. The zip wants as many anchors as blobs in
each partition, hence the contract of `exchanged`.
"""

from __future__ import annotations

import copy
import struct
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import RDD, SparkContext
from pyspark.errors import PySparkException
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession

Blob = bytes | pa.Buffer
Stage = Callable[[int, Iterator[bytes]], Iterator[Blob]]
"""What a task does: the number of its partition and the blobs that arrived there, to the blobs that it gives."""

_MOST_CACHED_ANCHORS = 256
_ZIP_COMPLAINT = "Can only zip RDDs with same number of elements in each partition"
_PLACE = struct.Struct("!q")  # as the JVM's PairwiseRDD reads a key


class BlobCountError(Exception):
    """A partition that was to be pinned did not have the promised number of blobs."""


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


def placed(spark: SparkSession, slots: Sequence[Slot]) -> RDD[bytes]:
    """One empty blob on each of `slots`: what a job's first stage starts from."""
    context = spark.sparkContext
    anchors = _anchors(context, tuple(slots), 1)
    return _raw(context, _scala_of(context).JavaRDD(anchors, _scala_of(context).bytes_tag))


def stage(blobs: RDD[bytes], work: Stage) -> RDD[bytes]:
    """`work` done in a Python worker at every partition of `blobs`."""
    done: Any = blobs.mapPartitionsWithIndex(cast(Any, work), preservesPartitioning=True)
    done._bypass_serializer = True  # what the stage gives crosses to the JVM as it is
    done._jrdd_deserializer = NoOpSerializer()
    return done


def addressed(blobs: Iterable[Blob]) -> Iterator[Blob]:
    """What a stage before an exchange gives: the i-th blob is for place i."""
    for place, blob in enumerate(blobs):
        yield _PLACE.pack(place)
        yield blob


class Sending:
    """What every partition of `sent` addresses to each of `places`; see `addressed`.

    It is sent when an action needs it, or, after `begin`, as soon as the executors have room.
    """

    def __init__(self, sent: RDD[bytes], places: int) -> None:
        self.context = sent.context
        self.places = places
        self.senders = sent.getNumPartitions()
        scala = _scala_of(self.context)
        java_sent: Any = sent._jrdd
        pairs = scala.PairwiseRDD(java_sent.rdd()).asJavaPairRDD()
        self._by_place = pairs.partitionBy(scala.PythonPartitioner(places, 0))

    def begin(self) -> None:
        """Start the stage that sends. Nobody waits for it, and whatever fails in it fails again where it is needed.

        It cannot be called off: a task that is cancelled takes its Python worker with it, and the state that this holds.
        """
        _scala_context(self.context).submitMapStage(self._by_place.rdd().dependencies().head())

    def beside(self, other: Sending) -> Sending:
        """What both address to each place. Neither is sent again that was, as both are dealt to places alike."""
        both = copy.copy(self)
        both.senders = self.senders + other.senders
        both._by_place = self._by_place.union(other._by_place)
        return both

    def blobs(self) -> Any:
        """RDD[byte[]] in the JVM: at partition i what was addressed to place i."""
        return _scala_of(self.context).value_of_pair(self._by_place).rdd()


def exchanged(sending: Sending, slots: Sequence[Slot]) -> RDD[bytes]:
    """What was addressed to place i, at partition i, on `slots[i]`.

    Every sender must have addressed exactly one blob to every place; run the action under `blob_counts_explained` to
    have a breach of that told in plain words.
    """
    scala = _scala_of(sending.context)
    zipped = _anchors(sending.context, tuple(slots), sending.senders).zip(sending.blobs(), scala.bytes_tag)
    return _raw(sending.context, scala.JavaPairRDD(zipped, scala.any_tag, scala.bytes_tag).values())


def blobs_of(frame: DataFrame) -> RDD[bytes]:
    """The blobs of a frame whose only column is binary, computed where Spark puts them."""
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
                "a place was sent more or fewer blobs than there are senders; every task of the stage before must address "
                "exactly one to each place, empty ones included"
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
    return in_order(found)


def in_order(executors: Iterable[ExecutorInfo]) -> list[ExecutorInfo]:
    """`executors` by host, then id: the order in which they are places of an attempt."""
    return sorted(executors, key=lambda executor: (_host_order(executor.host), executor.id))


def executor_ids(spark: SparkSession) -> frozenset[str]:
    """Ids of the executors that the scheduler believes alive; one cheap call, for looking often."""
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
        _scala_context(context), to_seq(elements), len(slots), as_map, _scala_of(context).bytes_tag
    )


def _jvm(context: SparkContext) -> Any:
    return context._jvm


def _scala_context(context: SparkContext) -> Any:
    java_context: Any = context._jsc
    return java_context.sc()


def _to_dict(spark: SparkSession, scala_map: Any) -> dict[str, str]:
    entries = _scala_of(spark.sparkContext).as_java(scala_map)
    return {str(name): str(entries[name]) for name in entries}


def _host_order(host: str) -> tuple[tuple[int, str], ...]:
    """127.0.1.9 before 127.0.1.10, and executor-2 before executor-10."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in host.replace("-", ".").split("."))
