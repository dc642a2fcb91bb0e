"""The Python side of each Spark stage: one task per executor and stage.

The first stage reads the source's share and hands over state that moves; each further stage runs the instances of one
level. Every task takes envelopes (or descriptors), and gives exactly one envelope per place.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from streamtopology.jobs.batch import Attempt
from streamtopology.jobs.checkpoint import CheckpointError
from streamtopology.jobs.dag import Dag, Node
from streamtopology.jobs.departures import Departures
from streamtopology.jobs.envelope import Kind, Section, sections
from streamtopology.jobs.exchange import Outbox
from streamtopology.jobs.failures import TopologyFailed
from streamtopology.jobs.keys import KeyColumns
from streamtopology.jobs.logs import working_on
from streamtopology.jobs.made_up import made_up_rows
from streamtopology.jobs.operators.base import Rows
from streamtopology.jobs.pinning import Blob, Stage, addressed
from streamtopology.jobs.source_reader import SourceReader
from streamtopology.jobs.sources.ddl import SchemaError
from streamtopology.jobs.state import KeyedState, Ownership, StateFileError, routing_hashes
from streamtopology.jobs.turn import Turn
from streamtopology.jobs.worker import THIS_WORKER, CopyUnusable, Worker
from streamtopology.routing.epoch import Epoch
from streamtopology.routing.report import SourceReport
from streamtopology.routing.table import RoutingTable

SENT_DDL = "blob binary"
_SENT = pa.schema([("blob", pa.binary())])
_FOR_PEOPLE = (TopologyFailed, SchemaError, CheckpointError, StateFileError)
"""Errors whose own sentences say what is wrong and what can be done."""

SOURCE, TURN, MOVED, FAILED = b"S", b"T", b"M", b"F"


def read_stage(attempt: Attempt) -> Stage:
    """Stage 0 where we read ourselves: the descriptors of this place, and the hand-over of moved state."""
    return partial(_read, attempt)


def state_stage(attempt: Attempt) -> Stage:
    """Beside what was read ahead: the hand-over of moved state alone, which has to wait for the batch before."""
    return partial(_send_state, attempt)


def rows_stage(attempt: Attempt) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Stage 0 where Spark reads, for `mapInArrow`: rows of any other streaming source, routed where Spark put them."""
    return partial(_route_rows, attempt)


def node_stage(attempt: Attempt, level: int, is_last: bool = False) -> Stage:
    """All instances of `level` at this place take their turns; what is meant for later levels is passed on.

    The last stage sends to nobody: it gives one blob, the reports gathered at its place.
    """
    return partial(_take_turns, attempt, level, is_last)


def warm_stage(places: int) -> Stage:
    """Starts an executor's Python worker and sends one envelope through it: what a new executor does first."""
    return partial(_warm, places)


# Module-level functions, so that Spark ships them by name: a nested one would carry a copy of THIS_WORKER, empty each time.


def _read(attempt: Attempt, reader: int, anchor: Iterator[bytes]) -> Iterator[Blob]:
    exhaust(anchor)
    return addressed(read_at(attempt.readers[reader], attempt, THIS_WORKER))


def read_at(place: int, attempt: Attempt, worker: Worker) -> list[pa.Buffer]:
    """What `read_stage` does at `place`."""
    plan, dag = worker.plan(attempt)
    outbox = Outbox(attempt, plan.epoch, dag, order=place)
    reader = SourceReader(plan, attempt)
    with working_on(attempt.number), _telling_the_driver(outbox, place, "reading", attempt.dry):
        for source, batch in reader.read(attempt.descriptors[place] if attempt.descriptors else ()):
            outbox.send(source, batch)
        if attempt.dry:
            for source, schema in dag.sources.items():
                outbox.send(source, made_up_rows(schema))
    _report_source(outbox, place, attempt.homes[place], reader)
    _hand_over(attempt, worker, dag, plan.epoch, place, outbox)
    return outbox.envelopes()


def _send_state(attempt: Attempt, place: int, anchor: Iterator[bytes]) -> Iterator[Blob]:
    exhaust(anchor)
    return addressed(state_at(place, attempt, THIS_WORKER))


def state_at(place: int, attempt: Attempt, worker: Worker) -> list[pa.Buffer]:
    """What `state_stage` does at `place`."""
    plan, dag = worker.plan(attempt)
    outbox = Outbox(attempt, plan.epoch, dag, order=place)
    _hand_over(attempt, worker, dag, plan.epoch, place, outbox)
    return outbox.envelopes()


def _route_rows(attempt: Attempt, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    plan, dag = THIS_WORKER.plan(attempt)
    outbox = Outbox(attempt, plan.epoch, dag, order=attempt.places + _partition())
    reader = SourceReader(plan, attempt)
    with working_on(attempt.number), _telling_the_driver(outbox, 0, "routing what Spark read", attempt.dry):
        for batch in batches:
            for source, rows in reader.untag(batch):
                outbox.send(source, rows)
    _report_source(outbox, 0, -1, reader)
    for blob in addressed(outbox.envelopes()):
        yield pa.RecordBatch.from_arrays([_as_one_row(blob)], schema=_SENT)


def _take_turns(attempt: Attempt, level: int, is_last: bool, place: int, arrived: Iterator[bytes]) -> Iterator[Blob]:
    sent = turns_at(place, attempt, level, THIS_WORKER, arrived)
    return iter([sent[place]]) if is_last else addressed(sent)


def turns_at(place: int, attempt: Attempt, level: int, worker: Worker, arrived: Iterable[bytes]) -> list[pa.Buffer]:
    """What `node_stage` does at `place`: the envelopes for every place."""
    worker.forget_elsewhere(attempt, place)
    started = time.perf_counter()
    plan, dag = worker.plan(attempt)
    outbox = Outbox(attempt, plan.epoch, dag, order=place)
    inbox = _Inbox(dag, level)
    for blob in arrived:
        for section in sections(pa.py_buffer(blob)):
            if not inbox.take(section):
                outbox.forward(place, section)
    waited = time.perf_counter() - started
    nodes = [node for node in dag.at(level) if node.is_built_in or not attempt.dry]
    turns = [(node, i) for node in nodes for i in attempt.instances_at(place, plan.epoch.routes[node.name].instances)]
    for node, instance in turns:
        where = f"operator {node.operator!r}, instance {instance}"
        with working_on(attempt.number, f"{node.name}/{instance}"), _telling_the_driver(outbox, place, where, attempt.dry):
            departures = Departures(dag, node)
            result = Turn(
                attempt=attempt, node=node, instance=instance, home=attempt.homes[place], epoch=plan.epoch,
                worker=worker, checkpoint=worker.checkpoint(attempt),
                arrivals=inbox.arrivals(node, instance), moved_in=inbox.moved(node, instance),
                sinks=[sink.name for sink in plan.topology.sinks_of(node.name)], wait_seconds=waited / len(turns),
                route_on=partial(outbox.send, node.name, departures=departures), departures=departures,
            ).run()  # fmt: skip
            outbox.report(place, TURN + result.to_wire(left_at=time.time()))
    return outbox.envelopes()


def rehearse(attempt: Attempt, depth: int) -> None:
    """A dry attempt in this process, at one place: compiles the kernels, and leaves them in the cache that workers load."""
    alone = replace(attempt, homes=attempt.homes[:1], placement=(0,) * len(attempt.placement), dry=True)
    worker = Worker()
    sent = read_at(0, alone, worker)
    for level in range(1, depth + 1):
        sent = turns_at(0, alone, level, worker, [envelope.to_pybytes() for envelope in sent])


def _warm(places: int, place: int, arrived: Iterator[bytes]) -> Iterator[Blob]:
    exhaust(arrived)
    return addressed([b""] * places)


def exhaust(blobs: Iterator[bytes]) -> None:
    """Read an input that nobody needs: Spark ends a Python worker that leaves input unread, and all it remembers."""
    for _ in blobs:
        pass


def _as_one_row(blob: Blob) -> pa.Array:
    """A binary column around `blob` without copying it."""
    data = pa.py_buffer(blob)
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(np.array([0, data.size], np.int32)), data])


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
    """Send the state of keys that this batch gives to others, as the last commit has it, to their new owners.

    Nothing is changed here: the old owner drops and the new owner inserts in its own turn of the same batch. An instance
    that this epoch has no more sends all that it has and takes no turn: the commit record does not name it again.
    """
    if not attempt.hands_over:
        return
    with _telling_the_driver(outbox, place, "handing state over", attempt.dry):
        _send_leaving(attempt, worker, dag, epoch, place, outbox)


def _send_leaving(attempt: Attempt, worker: Worker, dag: Dag, epoch: Epoch, place: int, outbox: Outbox) -> None:
    before = worker.plan_before(attempt)
    moved: list[tuple[str, int, int]] = []  # (node, keys or rows, bytes)
    for node in dag.nodes:
        table, route_before = epoch.routes[node.name].table, before.epoch.routes.get(node.name)
        if node.state is None or node.is_partial or table is None or route_before is None:
            continue
        for instance in attempt.instances_at(place, route_before.instances):
            state = worker.state(attempt, node, instance)
            if attempt.copied_at is not None and isinstance(state, KeyedState):
                leaving = _Leaving(instance, route_before.table, table)
                moved.append((node.name, *_send_changes(attempt, worker, node, leaving, state, outbox)))
                continue
            if state is None or len(state) == 0:
                continue
            for owner, entries, rows in state.leaving(Ownership(table, instance)):
                outbox.send_state(node.name, owner, rows)
                moved.append((node.name, entries, rows.nbytes))
    outbox.report(place, MOVED + json.dumps(moved).encode())


@dataclass(frozen=True)
class _Leaving:
    """The keys that leave `instance` in this batch: `before` has them here, `now` elsewhere."""

    instance: int
    before: RoutingTable | None
    now: RoutingTable

    def owners(self, hashes: np.ndarray) -> np.ndarray:
        """int32[n]: whose the keys (uint64[n]) become that leave; this instance for all others, which may have left before."""
        owners = self.now.lookup(hashes)
        if self.before is not None:
            owners[self.before.lookup(hashes) != self.instance] = self.instance
        return owners

    def others(self, owners: np.ndarray) -> list[int]:
        return np.unique(owners[owners != self.instance]).tolist()


def _send_changes(
    attempt: Attempt, worker: Worker, node: Node, leaving: _Leaving, state: KeyedState, outbox: Outbox
) -> tuple[int, int]:
    """Send what became of moving keys since they were copied; how many keys and bytes moved, copied ones included."""
    copied = worker.copied(attempt)
    portions = attempt.portions_moving(copied.portions)
    files = [
        file
        for part in copied.parts if (part.node, part.instance) == (node.name, leaving.instance)
        for file in part.files if file.portion in portions
    ]  # fmt: skip
    keys, size = sum(file.keys for file in files), sum(file.bytes for file in files)
    assert attempt.copied_at is not None
    slots = state.changed_since(attempt.copied_at)
    if slots is None:
        changed = _changes_in(worker.deltas_since(attempt, node, leaving.instance, attempt.copied_at), state, leaving)
    else:
        owners = leaving.owners(state.hashes(slots))
        changed = ((owner, state.written(slots[owners == owner])) for owner in leaving.others(owners))
    for owner, changes in changed:
        outbox.send_state(node.name, owner, changes)
        size += changes.nbytes
    return keys, size


def _changes_in(
    deltas: Iterable[pa.RecordBatch], state: KeyedState, leaving: _Leaving
) -> Iterator[tuple[int, pa.RecordBatch]]:  # fmt: skip
    """New owner -> what became of its keys that are in `deltas`; deleted ones, of which the state knows nothing, too."""
    touched: dict[int, list[pa.RecordBatch]] = {}
    for rows in deltas:
        owners = leaving.owners(routing_hashes(rows, state.schema))
        for owner in leaving.others(owners):
            touched.setdefault(owner, []).append(rows.filter(pa.array(owners == owner)).replace_schema_metadata(None))
    for owner, batches in touched.items():
        yield owner, state.changes(pa.concat_batches(batches))


@contextmanager
def _telling_the_driver(outbox: Outbox, place: int, where: str, dry: bool) -> Iterator[None]:
    """An error in user code or data is a report, not a failed task: the driver stops the run with a sentence.

    Not so in a dry attempt: an expression may rightly refuse rows that we made up.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the driver raises it again
        if dry:
            return
        told = {
            "where": where, "sentence": str(error) or repr(error), "known": isinstance(error, _FOR_PEOPLE),
            "of_a_copy": isinstance(error, CopyUnusable), "traceback": traceback.format_exc(),
        }  # fmt: skip
        outbox.report(place, FAILED + json.dumps(told).encode())


def _report_source(outbox: Outbox, place: int, home: int, reader: SourceReader) -> None:
    seconds = reader.seconds()
    report = SourceReport(home, reader.rows, seconds, seconds, reader.max_event_time, bad_rows=reader.bad_rows)
    told = {"report": report.to_wire(), "left_at": time.time(), "set_aside": reader.set_aside}
    outbox.report(place, SOURCE + json.dumps(told).encode())


def _partition() -> int:
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()
