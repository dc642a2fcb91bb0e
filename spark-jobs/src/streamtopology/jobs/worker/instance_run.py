"""One instance's run in a batch: state at the last commit, moved keys in, tuples through the operator, delta out.

A run changes nothing that others can see. Its files carry the attempt in their names and count only when the commit record
names them. In memory it changes state with before-images, so that a lost attempt can be undone.

The order matters: moved keys come in before the first tuple, or an old key would be taken for a new one; keys that leave
are dropped in the same run; the load report comes last, because it measures all of it.

An error of user code or data is reported and not raised. A failed Spark task would take the worker and its state with it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar.python_values import python_rows
from streamtopology.jobs.connectors.sinks.dead_letters import letters, tuple_as_json
from streamtopology.jobs.errors import ErrorNotRepeated, PartsDoNotFit, TupleFailed
from streamtopology.jobs.exchange.downstream_counts import DownstreamCounts
from streamtopology.jobs.exchange.learning import learning_of
from streamtopology.jobs.operators.base import (
    BadTuple,
    BatchInfo,
    Operator,
    Output,
    Rows,
    SetAside,
)
from streamtopology.jobs.operators.ending import refused_where_tuples_are_processed
from streamtopology.jobs.operators.idle_keys import forget_idle
from streamtopology.jobs.operators.own_memory import unshared
from streamtopology.jobs.operators.partials import Gathering, take_in
from streamtopology.jobs.operators.returned import as_declared
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.plan.dag import Node
from streamtopology.jobs.plan.results import InstanceResult
from streamtopology.jobs.plan.span import Span, clock_of_this_host
from streamtopology.jobs.state import KeyedState, Ownership, State
from streamtopology.jobs.users_code.line import users_line
from streamtopology.jobs.worker.attempt_context import InstanceContext
from streamtopology.jobs.worker.bad_tuples import (
    MOST_OUTAGES,
    Blameless,
    Culprit,
    find_bad_tuple,
    may_be_a_tuples_fault,
    without,
)
from streamtopology.jobs.worker.container_memory import container_memory
from streamtopology.jobs.worker.key_load import measure_keys
from streamtopology.jobs.worker.observers import tuple_seconds
from streamtopology.routing.load.load_report import LoadReport

MOST_BAD_TUPLES = 100


@dataclass
class InstanceRun:
    """`arrivals` are the instance's tuples in routing order; `moved_in` is state handed over by old owners.

    `late_sink` takes the rows that the operator leaves out as late; `sinks` take what it emits.
    `route_on` sends a batch that the operator emitted along the node's edges, and `downstream` counts it. `wait_seconds` is
    this run's share of the task's time before the first run, `task_began_at` in monotonic seconds.
    """

    context: InstanceContext
    arrivals: Sequence[Rows]
    moved_in: Sequence[pa.RecordBatch]
    route_on: Callable[[pa.RecordBatch], None]
    downstream: DownstreamCounts
    sinks: Sequence[str] = ()
    late_sink: str | None = None
    wait_seconds: float = 0.0
    task_began_at: float = 0.0
    _set_aside: list[SetAside] = field(default_factory=list)
    _timed: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    _gathering: Gathering | None = None
    # Parts of keys that were taken in, and the seconds of it.
    _merged: tuple[int, float] = (0, 0.0)
    _moving_seconds: float = 0.0

    @property
    def attempt(self) -> Attempt:
        return self.context.attempt

    @property
    def node(self) -> Node:
        return self.context.node

    @property
    def instance(self) -> int:
        return self.context.number

    def run(self) -> InstanceResult:
        """Run the operator on everything that arrived; write the delta and the outputs."""
        started = time.perf_counter()
        operator, emitted, state, arrivals = self._process()
        gathered = self._gathering
        for batch in emitted:
            self.route_on(batch)
        outputs = self._stage_outputs(emitted) | self._stage_late(operator)
        delta = self._save(state)
        dead_letters = self._stage_dead_letters()
        busy = time.perf_counter() - started
        report = self._report(operator, state, arrivals, busy)
        learning_report = self._learning_report()
        return InstanceResult(
            report,
            delta,
            outputs,
            dead_letters,
            span=Span(clock_of_this_host(), self.task_began_at, time.monotonic()),
            rows_out=self._rows_out(emitted, operator.late),
            adopted=self.context.adopted,
            learning_report=learning_report,
            due=None if operator.due is None else operator.due + self.node.behind_seconds,
            due_at=operator.due_at,
            compacted=self.context.compacted(),
            partial=None if gathered is None or self.attempt.dry else gathered.as_text(),
            memory=container_memory(),
            moving_seconds=self._moving_seconds,
        )

    def _process(self) -> tuple[Operator, list[pa.RecordBatch], State | None, Sequence[Rows]]:
        """Run the operator; with `deadLetter` in the manifest, set aside the tuples that it raises on and run it again."""
        arrivals, bad, outages = self.context.operator().arranged(self.arrivals), 0, 0
        while True:
            try:
                operator, emitted, state = self._pass(arrivals)
                self._set_aside.extend(operator.set_aside)
                if self._gathering is not None:
                    self._set_aside.extend(self._gathering.set_aside)
                return operator, emitted, state, arrivals
            except Exception as error:
                self.context.discard_operator()
                if not may_be_a_tuples_fault(error):
                    raise
                match find_bad_tuple(arrivals, self._error_of):
                    case Blameless.WITHOUT_TUPLES:
                        raise
                    case Blameless.NOT_REPEATED:
                        if not self.attempt.dead_letter or outages >= MOST_OUTAGES:
                            raise self._outage(error) from error
                        outages += 1
                    case culprit:
                        rows = arrivals[culprit.which]
                        if not self.attempt.dead_letter or bad >= MOST_BAD_TUPLES:
                            raise self._failure(rows, culprit) from culprit.error
                        bad += 1
                        bad_row, reason = rows.batch.slice(culprit.row, 1), self._reason(culprit.error)
                        self._set_aside.append(SetAside(bad_row, rows.input, reason))
                        arrivals = without(arrivals, culprit)

    def _pass(self, arrivals: Sequence[Rows]) -> tuple[Operator, list[pa.RecordBatch], State | None]:
        """Process all of `arrivals` on the state of the last commit."""
        attempt = self.attempt
        state = self.context.begin()
        self._move_keys(state)
        operator = self.context.operator()
        flush = attempt.flush or attempt.final or attempt.number % self.node.flush_every == 0
        info = self._batch_info(flush)
        self._gathering = gathering = self.context.gathering()
        with refused_where_tuples_are_processed(operator):
            operator.begin(info)
        self._take_in(operator, state)
        if gathering is not None:
            gathering.begin(info)
        emitted: list[pa.RecordBatch] = []
        self._timed.clear()
        for rows in arrivals:
            started = time.perf_counter()
            own = rows if gathering is None else gathering.take_away(rows, attempt.dead_letter)
            emitted.extend(self._emitted(operator, state, partial(operator.accept, own, state, attempt.dead_letter)))
            if rows.keys is not None:
                seconds = tuple_seconds(operator, len(rows), time.perf_counter() - started)
                self._timed.append((rows.keys.hashes, seconds))
        emitted.extend(self._emitted(operator, state, partial(operator.finish, info, state)))
        if operator.ttl is not None and isinstance(state, KeyedState) and not self.node.is_partial:
            forget_idle(state, attempt.recorded_at, operator.ttl)
        if operator.late and not attempt.dry:
            self.context.late_proof(operator.late_schema).check(operator.late)
        return operator, emitted, state

    def _batch_info(self, flush: bool) -> BatchInfo:
        """The batch as the operator sees it: its watermark is as much earlier as its tuples may be."""
        attempt, behind = self.attempt, self.node.behind_seconds
        watermark = None if attempt.watermark is None else attempt.watermark - behind
        closed_until = None if attempt.closed_until is None else attempt.closed_until - behind
        forgotten = self.context.task.plan.forgotten_until.get(self.node.operator)
        if forgotten is not None and attempt.closed_until is not None:
            forgotten = min(forgotten, attempt.closed_until)  # a watermark that was set back opens windows again
        return BatchInfo(attempt.number, watermark, attempt.final, flush, closed_until, forgotten, attempt.recorded_at)

    def _emitted(self, operator: Operator, state: State | None, call: Callable[[], Output]) -> list[pa.RecordBatch]:
        """The rows that `call` returns, as the operator declares them, and as its sinks can write them after the commit."""
        with refused_where_tuples_are_processed(operator):
            rows = unshared(as_declared(call(), self.node.output, type(operator).__name__), operator, state)
        if self.sinks and not self.attempt.dry:
            self.context.proof().check(rows)
        return rows

    def _move_keys(self, state: State | None) -> None:
        """Evict the keys that belong to others in this batch; insert those that old owners handed over."""
        if state is None or not self.attempt.hands_over:
            return
        table = self.context.route.table
        if table is None or self.node.is_partial:
            return
        began = time.perf_counter()
        state.evict(Ownership(table, self.instance))
        for batch in self.moved_in:
            state.insert(batch)
        self._moving_seconds = time.perf_counter() - began

    def _take_in(self, operator: Operator, state: State | None) -> None:
        """Fold what the batch before gathered elsewhere of keys that belong here into their state."""
        partials = self.attempt.partials.get(self.node.name, ())
        if partials and isinstance(state, KeyedState):
            started = time.perf_counter()
            try:
                taken = take_in(partials, operator, state, self.context.is_home)
            except PartsDoNotFit as wrong:
                raise PartsDoNotFit(wrong.key, wrong.column, self.node.operator, self.attempt.number) from None
            self._merged = taken, time.perf_counter() - started if taken else 0.0

    def _error_of(self, arrivals: Sequence[Rows]) -> Exception | None:
        """The error that the operator raises on `arrivals`; None if they pass. Raises errors that are no tuple's fault."""
        try:
            self._pass(arrivals)
        except Exception as error:
            self.context.discard_operator()
            if not may_be_a_tuples_fault(error):
                raise
            return error
        return None

    def _failure(self, rows: Rows, culprit: Culprit) -> TupleFailed:
        tuple_ = python_rows(rows.batch.slice(culprit.row, 1))[0]
        key = {name: tuple_[name] for name in self.node.key if name in tuple_}
        return TupleFailed(self.node.operator, self.attempt.number, self.instance, key, tuple_, self._reason(culprit.error))

    def _reason(self, error: Exception) -> str:
        if isinstance(error, BadTuple):
            return error.reason
        return f"{type(error).__name__}: {error}{users_line(type(self.context.operator()), error)}"

    def _outage(self, error: Exception) -> ErrorNotRepeated:
        return ErrorNotRepeated(self.node.operator, self.attempt.number, self.instance, self._reason(error))

    def _learning_report(self) -> Mapping[str, Any] | None:
        """The report to the choosers that send this instance tuples; None where they do not learn."""
        if self.attempt.dry or learning_of(self.context.route) is None:
            return None
        observer = self.context.observer()
        for hashes, seconds in self._timed:
            observer.observe(hashes, seconds)
        report = observer.report()
        return None if report is None else report.to_wire()

    def _save(self, state: State | None) -> str | None:
        if state is None or self.attempt.dry:
            return None
        delta = state.delta()
        if delta.num_rows == 0 and not delta.schema.metadata:
            return None
        checkpoint, attempt = self.context.task.checkpoint, self.attempt
        return checkpoint.write_delta(self.node.name, self.instance, attempt.number, attempt.attempt, delta)

    def _stage_outputs(self, emitted: Sequence[pa.RecordBatch]) -> dict[str, list[str]]:
        if not self.sinks or not emitted or self.attempt.dry:
            return {}
        path = self._stage(self.node.name, emitted)
        return {sink: [path] for sink in self.sinks}

    def _rows_out(self, emitted: Sequence[pa.RecordBatch], late: Sequence[pa.RecordBatch]) -> dict[str, int]:
        """The rows that each sink gets."""
        rows = dict.fromkeys(self.sinks, sum(batch.num_rows for batch in emitted))
        if self.late_sink is not None:
            rows[self.late_sink] = sum(batch.num_rows for batch in late)
        return {sink: count for sink, count in rows.items() if count}

    def _stage_late(self, operator: Operator) -> dict[str, list[str]]:
        if self.late_sink is None or not operator.late or self.attempt.dry:
            return {}
        return {self.late_sink: [self._stage(f"{self.node.name}.late", operator.late)]}

    def _stage_dead_letters(self) -> str | None:
        """Write the tuples that were set aside, each with its instance, input and reason."""
        rows = [
            {"operator": self.node.operator, "instance": self.instance, "input": item.input, "reason": item.reason,
             "tuple": tuple_as_json(row)}
            for item in self._set_aside for row in python_rows(item.batch)
        ]  # fmt: skip
        if not rows:
            return None
        return self._stage(f"{self.node.name}.dead", [letters(rows)])

    def _stage(self, name: str, rows: Sequence[pa.RecordBatch]) -> str:
        checkpoint, attempt = self.context.task.checkpoint, self.attempt
        return checkpoint.stage_output(name, self.instance, attempt.number, attempt.attempt, rows)

    def _report(self, operator: Operator, state: State | None, arrivals: Sequence[Rows], busy: float) -> LoadReport:
        rows = sum(len(arrival) for arrival in arrivals)
        keyed = [arrival for arrival in arrivals if arrival.keys is not None and len(arrival)]
        largest = max(keyed, key=len, default=None)
        seconds = operator.last_tuple_seconds
        load = measure_keys(
            None if largest is None else largest.keys,
            seconds if largest is not None and seconds is not None and len(seconds) == len(largest) else None,
        )
        size = 0 if state is None else len(state)
        return LoadReport(
            operator=self.node.name, instance=self.instance, slot=self.context.task.slot, rows=rows, busy_seconds=busy,
            task_seconds=busy + self.wait_seconds, state_keys=size, state_bytes=0 if state is None else state.nbytes,
            late_rows=operator.late_rows, bad_rows=sum(item.batch.num_rows for item in self._set_aside),
            heavy_hashes=load.hashes, heavy_rows=load.rows, heavy_seconds=load.seconds,
            heavy_bytes=np.full(len(load.hashes), _bytes_per_key(state), np.int64), heavy_labels=load.labels,
            bucket_rows=load.bucket_rows, onward=self.downstream.onward, key_pairs=self.downstream.key_pairs,
            parts_merged=self._merged[0], merge_seconds=self._merged[1],
            rows_away=0 if self._gathering is None else self._gathering.rows,
        )  # fmt: skip


def _bytes_per_key(state: State | None) -> int:
    return state.nbytes // len(state) if state is not None and len(state) else 0
