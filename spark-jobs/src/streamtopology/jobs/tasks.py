"""The Python side of each Spark stage: one task per executor and stage.

The first stage reads the source's share and hands over state that moves; each further stage runs the instances of one
level. Every task takes envelopes (or descriptors), and gives exactly one envelope per place.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from streamtopology.jobs.batch import Attempt
from streamtopology.jobs.dag import Dag, Node
from streamtopology.jobs.envelope import Kind, Section, sections
from streamtopology.jobs.exchange import Outbox, blob_row, blobs, take
from streamtopology.jobs.failures import TopologyFailed
from streamtopology.jobs.keys import KeyColumns
from streamtopology.jobs.operators.base import Rows
from streamtopology.jobs.source_reader import SourceReader
from streamtopology.jobs.sources.ddl import SchemaError
from streamtopology.jobs.state.schema import ROUTING
from streamtopology.jobs.turn import Turn
from streamtopology.jobs.worker import THIS_WORKER, Worker
from streamtopology.routing.epoch import Epoch
from streamtopology.routing.report import SourceReport

Stage = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
SOURCE, TURN, MOVED, FAILED = b"S", b"T", b"M", b"F"


def read_stage(attempt: Attempt) -> Stage:
    """Stage 0 where we read ourselves: the descriptors of this place, and the hand-over of moved state."""
    return partial(_read, attempt)


def rows_stage(attempt: Attempt, first_order: int) -> Stage:
    """Stage 0 where Spark reads: rows of any other streaming source, routed where Spark put them."""
    return partial(_route_rows, attempt, first_order)


def node_stage(attempt: Attempt, level: int) -> Stage:
    """All instances of `level` at this place take their turns; what is meant for later levels is passed on."""
    return partial(_take_turns, attempt, level)


def warm_stage() -> Stage:
    """Starts an executor's Python worker and sends one envelope through it: what a new executor does first."""
    return _warm


# Module-level functions, so that Spark ships them by name: a nested one would carry a copy of THIS_WORKER, empty each time.


def _read(attempt: Attempt, anchor: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    exhaust(anchor)
    place = _partition()
    THIS_WORKER.forget_elsewhere(attempt, place)
    plan, dag = THIS_WORKER.plan(attempt, attempt.epoch)
    outbox = Outbox(attempt, plan.epoch, dag, order=place)
    reader = SourceReader(plan)
    with _telling_the_driver(outbox, place, "reading"):
        for source, batch in reader.read(attempt.descriptors[place] if attempt.descriptors else ()):
            outbox.send(source, batch)
    if attempt.dry:
        for source, schema in dag.sources.items():
            outbox.send(source, _empty(schema))
    _report_source(outbox, place, attempt.homes[place], reader)
    _hand_over(attempt, THIS_WORKER, dag, plan.epoch, place, outbox)
    yield from outbox.rows()


def _route_rows(attempt: Attempt, first_order: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    plan, dag = THIS_WORKER.plan(attempt, attempt.epoch)
    outbox = Outbox(attempt, plan.epoch, dag, order=first_order + _partition())
    reader = SourceReader(plan)
    with _telling_the_driver(outbox, 0, "routing what Spark read"):
        for batch in batches:
            for source, rows in reader.untag(batch):
                outbox.send(source, rows)
    _report_source(outbox, 0, -1, reader)
    yield from outbox.rows()


def _take_turns(attempt: Attempt, level: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    started = time.perf_counter()
    place = _partition()
    plan, dag = THIS_WORKER.plan(attempt, attempt.epoch)
    outbox = Outbox(attempt, plan.epoch, dag, order=place)
    inbox = _Inbox(dag, level)
    for blob in blobs(batches):
        for section in sections(blob):
            if not inbox.take(section):
                outbox.forward(place, section)
    waited = time.perf_counter() - started
    turns = [(node, i) for node in dag.at(level) for i in attempt.instances_at(place, node.parallelism)]
    for node, instance in turns:
        with _telling_the_driver(outbox, place, f"operator {node.operator!r}, instance {instance}"):
            result = Turn(
                attempt=attempt, node=node, instance=instance, home=attempt.homes[place], epoch=plan.epoch,
                worker=THIS_WORKER, checkpoint=THIS_WORKER.checkpoint(attempt),
                arrivals=inbox.arrivals(node, instance), moved_in=inbox.moved(node, instance),
                sinks=[sink.name for sink in plan.topology.sinks_of(node.name)], wait_seconds=waited / len(turns),
                route_on=partial(outbox.send, node.name),
            ).run()  # fmt: skip
            outbox.report(place, TURN + result.to_wire())
    if level == dag.depth:
        yield outbox.last_row(place)
    else:
        yield from outbox.rows()


def _warm(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    exhaust(batches)
    yield blob_row(0, pa.py_buffer(b""))


def exhaust(batches: Iterator[pa.RecordBatch]) -> None:
    """Read an input that nobody needs: Spark ends a Python worker that leaves input unread, and all it remembers."""
    for _ in batches:
        pass


class _Inbox:
    """Sections for one level, by node and instance."""

    def __init__(self, dag: Dag, level: int) -> None:
        self._here = {node.name for node in dag.at(level)}
        self._rows: dict[tuple[str, int], list[Section]] = {}
        self._moved: dict[tuple[str, int], list[Section]] = {}

    def take(self, section: Section) -> bool:
        """Keep `section` if it is for this level."""
        node = section.target.partition("/")[0]
        if section.kind is Kind.REPORT or node not in self._here:
            return False
        kept = self._rows if section.kind is Kind.ROWS else self._moved
        kept.setdefault((node, section.instance), []).append(section)
        return True

    def arrivals(self, node: Node, instance: int) -> list[Rows]:
        """One Rows per input, in the order of the sending tasks and, within a task, as it sent them."""
        arrived = self._rows.get((node.name, instance), [])
        result: list[Rows] = []
        for edge in node.edges:
            mine = [s for s in arrived if s.target == f"{edge.consumer}/{edge.alias}"]
            if not mine:
                continue
            batches = [section.batch() for section in sorted(mine, key=lambda s: s.order)]
            batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
            keys = KeyColumns.from_arrow(batch, edge.key) if edge.key else None
            result.append(Rows(batch, edge.alias, keys))
        return result

    def moved(self, node: Node, instance: int) -> list[pa.RecordBatch]:
        return [section.batch() for section in self._moved.get((node.name, instance), [])]


def _hand_over(attempt: Attempt, worker: Worker, dag: Dag, epoch: Epoch, place: int, outbox: Outbox) -> None:
    """Send the state of keys that this epoch gives to others, as the last commit has it, to their new owners.

    Nothing is changed here: the old owner drops and the new owner inserts in its own turn of the same batch.
    """
    if attempt.dry or attempt.previous is None or attempt.previous_epoch in (None, attempt.epoch):
        return
    _, before = worker.plan(attempt, attempt.previous_epoch or 0)
    known = {node.name for node in before.nodes}
    moved: list[tuple[str, int, int]] = []
    for node in dag.nodes:
        table = epoch.routes[node.name].table
        if node.state is None or node.is_partial or table is None or node.name not in known:
            continue
        for instance in attempt.instances_at(place, node.parallelism):
            state = worker.state(attempt, node, instance)
            if state is None or len(state) == 0:
                continue
            leaving = state.extract(lambda hashes, i=instance, t=table: t.lookup(hashes) != i)
            owners = table.lookup(routing_hashes(leaving, node.key))
            for owner in np.unique(owners).tolist():
                outbox.send_state(node.name, owner, take(leaving, np.flatnonzero(owners == owner)))
            moved.append((node.name, leaving.num_rows, leaving.nbytes))
    outbox.report(place, MOVED + json.dumps(moved).encode())


def routing_hashes(rows: pa.RecordBatch, key: tuple[str, ...]) -> np.ndarray:
    """uint64[n]: what routes each row of extracted state; only state with a longer key of its own carries it along."""
    if ROUTING in rows.schema.names:
        return rows.column(ROUTING).to_numpy()
    return KeyColumns.from_arrow(rows, key).hashes


@contextmanager
def _telling_the_driver(outbox: Outbox, place: int, where: str) -> Iterator[None]:
    """An error in user code or data is a report, not a failed task: the driver stops the run with a sentence."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the driver raises it again
        told = {
            "where": where, "sentence": str(error) or repr(error), "known": isinstance(error, TopologyFailed | SchemaError),
            "traceback": traceback.format_exc(),
        }  # fmt: skip
        outbox.report(place, FAILED + json.dumps(told).encode())


def _report_source(outbox: Outbox, place: int, home: int, reader: SourceReader) -> None:
    seconds = reader.seconds()
    report = SourceReport(home, reader.rows, seconds, seconds, reader.max_event_time)
    outbox.report(place, SOURCE + json.dumps(report.to_wire()).encode())


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _partition() -> int:
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()
