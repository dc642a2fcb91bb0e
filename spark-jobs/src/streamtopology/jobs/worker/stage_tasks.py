"""The Python side of each Spark stage: one task per partition, and one partition per executor.

One task for each executor, instead of many small ones, because state lives in the memory of one Python worker, and because
the plan already divides the work. Spark's scheduler would undo that division.

The first stage reads the source's share and hands over state that moves. Each further stage runs the instances of one
level. Every task takes envelopes (or descriptors) and returns one envelope per partition of the next stage, as
`Attempt.blobs` blobs each.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pyarrow as pa

from streamtopology.contract.errors import StreamTopologyError
from streamtopology.jobs.checkpoint import AlreadyWritten
from streamtopology.jobs.errors import BatchTooLarge, PrecopyUnusable
from streamtopology.jobs.exchange.blobs import Blob, StageTask, addressed
from streamtopology.jobs.exchange.downstream_counts import DownstreamCounts
from streamtopology.jobs.exchange.envelope import sections
from streamtopology.jobs.exchange.inbox import Inbox
from streamtopology.jobs.exchange.outbox import Outbox
from streamtopology.jobs.log_tags import working_on
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.plan.results import FailureKind, TaskFailure
from streamtopology.jobs.worker.attempt_context import AttemptContext, InstanceContext
from streamtopology.jobs.worker.cache import PROCESS_CACHE, WorkerCache
from streamtopology.jobs.worker.handover import send_moving_state
from streamtopology.jobs.worker.instance_run import InstanceRun
from streamtopology.jobs.worker.source_task import SourceReader


def read_stage(attempt: Attempt) -> StageTask:
    """Stage 0 where we read ourselves: the descriptors of each partition, and the hand-over of moving state."""
    return partial(_read, attempt)


def state_stage(attempt: Attempt) -> StageTask:
    """The hand-over of moving state alone, for prefetched rows: unlike them, it waits for the batch before."""
    return partial(_send_state, attempt)


def node_stage(attempt: Attempt, level: int, is_last: bool = False) -> StageTask:
    """The runs of all instances of `level`; sections for later levels are passed on.

    The last stage has no receivers: each task returns the reports gathered at its partition.
    """
    return partial(_run, attempt, level, is_last)


def warm_stage(partitions: int) -> StageTask:
    """A stage that starts an executor's Python worker and sends one envelope through it."""
    return partial(_warm, partitions)


def idle_stage() -> StageTask:
    """A stage that does nothing in an executor's Python worker."""
    return _idle


# Spark ships module-level functions by name. A nested function would carry a copy of PROCESS_CACHE, empty each time.


def _read(attempt: Attempt, reader: int, anchor: Iterator[bytes]) -> Iterator[Blob]:
    exhaust(anchor)
    sent = read_sources(AttemptContext(attempt, attempt.reading_partitions[reader], PROCESS_CACHE))
    return addressed(sent, attempt.blobs)


def _send_state(attempt: Attempt, partition: int, anchor: Iterator[bytes]) -> Iterator[Blob]:
    exhaust(anchor)
    return addressed(send_state(AttemptContext(attempt, partition, PROCESS_CACHE)), attempt.blobs)


def _run(attempt: Attempt, level: int, is_last: bool, partition: int, arrived: Iterator[bytes]) -> Iterator[Blob]:
    sent = run_instances(AttemptContext(attempt, partition, PROCESS_CACHE), level, arrived)
    own = slice(partition * attempt.blobs, (partition + 1) * attempt.blobs)
    return iter(sent[own]) if is_last else addressed(sent, attempt.blobs)


def _warm(partitions: int, partition: int, arrived: Iterator[bytes]) -> Iterator[Blob]:
    exhaust(arrived)
    return addressed([b""] * partitions)


def _idle(partition: int, arrived: Iterator[bytes]) -> Iterator[Blob]:
    exhaust(arrived)
    return iter(())


def read_sources(context: AttemptContext) -> list[pa.Buffer]:
    """The task of `read_stage`: returns the blobs for each partition."""
    attempt = context.attempt
    outbox = _outbox(context)
    reader = SourceReader(context.plan, context.dag, attempt)
    with working_on(attempt.number), reporting_failures(outbox, "reading", attempt.dry):
        for source, batch in reader.read(attempt.descriptors[context.partition] if attempt.descriptors else ()):
            outbox.send(source, batch)
        if attempt.dry:
            for source, schema in context.dag.sources.items():
                outbox.send(source, dummy_rows(schema))
            reader.rehearse()
    outbox.report(reader.result(context.slot))
    _hand_over(context, outbox)
    return outbox.envelopes()


def send_state(context: AttemptContext) -> list[pa.Buffer]:
    """The task of `state_stage`: returns the blobs for each partition."""
    outbox = _outbox(context)
    _hand_over(context, outbox)
    return outbox.envelopes()


def route_rows(attempt: Attempt, spark_partition: int, batches: Iterable[pa.RecordBatch]) -> list[pa.Buffer]:
    """Stage 0 where Spark reads: route rows of any other streaming source, wherever Spark placed the task.

    Returns the blobs for each partition.
    """
    context = AttemptContext(attempt, attempt.partitions + spark_partition, PROCESS_CACHE)
    outbox = _outbox(context)
    reader = SourceReader(context.plan, context.dag, attempt)
    with working_on(attempt.number), reporting_failures(outbox, "routing rows that Spark read", attempt.dry):
        for batch in batches:
            for source, rows in reader.untag(batch):
                outbox.send(source, rows)
    outbox.report(reader.result(context.slot))
    return outbox.envelopes()


def run_instances(context: AttemptContext, level: int, arrived: Iterable[bytes | memoryview]) -> list[pa.Buffer]:
    """The task of `node_stage`: returns the blobs for each partition."""
    attempt, began_at = context.attempt, time.monotonic()
    context.cache.evict_moved(attempt, context.partition)
    outbox, inbox = _outbox(context), Inbox(context.dag, level)
    for blob in arrived:
        for section in sections(pa.py_buffer(blob)):
            if not inbox.take(section):
                outbox.forward(section)
    waited = time.monotonic() - began_at
    nodes = [node for node in context.dag.at(level) if node.is_built_in or not attempt.dry]
    instances = [instance for node in nodes for instance in context.instances(node, context.epoch.routes[node.name])]
    for instance in instances:
        _run_instance(instance, inbox, outbox, began_at, waited / len(instances))
    return outbox.envelopes()


def rehearse(attempt: Attempt, depth: int) -> None:
    """Run a dry attempt in this process, on one partition: compiles the kernels into the cache that workers load."""
    alone = replace(
        attempt,
        slot_by_partition=attempt.slot_by_partition[:1],
        partition_by_instance=(0,) * len(attempt.partition_by_instance),
        dry=True,
    )
    cache = WorkerCache()
    sent = read_sources(AttemptContext(alone, 0, cache))
    for level in range(1, depth + 1):
        sent = run_instances(AttemptContext(alone, 0, cache), level, [envelope.to_pybytes() for envelope in sent])


def exhaust(blobs: Iterator[bytes]) -> None:
    """Read an input that is not needed: Spark ends a Python worker that leaves input unread, and its cache with it."""
    for _ in blobs:
        pass


def _outbox(context: AttemptContext) -> Outbox:
    return Outbox(context.attempt, context.epoch, context.dag, order=context.partition)


def _hand_over(context: AttemptContext, outbox: Outbox) -> None:
    if context.attempt.hands_over:
        with reporting_failures(outbox, "handing state over", context.attempt.dry):
            send_moving_state(context, outbox)


def _run_instance(instance: InstanceContext, inbox: Inbox, outbox: Outbox, began_at: float, wait_seconds: float) -> None:
    context, node, number = instance.task, instance.node, instance.number
    where = f"operator {node.operator!r}, instance {number}"
    tag = working_on(context.attempt.number, f"{node.name}/{number}")
    with tag, reporting_failures(outbox, where, context.attempt.dry):
        counts = DownstreamCounts(context.dag, node, context.attempt.counts_pairs)
        run = InstanceRun(
            instance,
            arrivals=inbox.arrivals(node, number),
            moved_in=inbox.moved_state(node, number),
            route_on=partial(outbox.send, node.name, counts=counts),
            downstream=counts,
            sinks=[sink.name for sink in context.plan.topology.sinks_of(node.name)],
            late_sink=context.plan.topology.operator(node.operator).late,
            wait_seconds=wait_seconds,
            task_began_at=began_at,
        )
        outbox.report(run.run())


_ROWS = 16


def dummy_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A few rows of `schema`: small numbers, short texts, NULL where a type knows neither."""
    return pa.RecordBatch.from_arrays([_dummy_column(field.type) for field in schema], schema=schema)


def _dummy_column(kind: pa.DataType) -> pa.Array:
    numbers = pa.array(range(_ROWS), pa.int64())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
        return pa.array([f"dummy {number}" for number in range(_ROWS)]).cast(kind)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_timestamp(kind):
        return numbers.cast(kind)
    return pa.nulls(_ROWS, kind)


@contextmanager
def reporting_failures(outbox: Outbox, where: str, dry: bool) -> Iterator[None]:
    """Report an error raised inside as a TaskFailure. In a dry attempt it is ignored: user code may refuse dummy rows."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the driver raises it again
        if not dry:
            outbox.report(TaskFailure(where, str(error) or repr(error), kind_of(error), traceback.format_exc()))


def kind_of(error: Exception) -> FailureKind:
    """The kind of failure that `error` is to the driver."""
    if isinstance(error, PrecopyUnusable):
        return FailureKind.PRECOPY_UNUSABLE
    if isinstance(error, BatchTooLarge):
        return FailureKind.TOO_LARGE
    if isinstance(error, AlreadyWritten):
        return FailureKind.RESUBMITTED
    return FailureKind.EXPLAINED if isinstance(error, StreamTopologyError) else FailureKind.UNEXPECTED
