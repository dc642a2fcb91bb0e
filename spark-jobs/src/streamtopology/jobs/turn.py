"""One instance's turn in a batch: state at the last commit, moved keys in, tuples through the operator, delta out.

A turn changes nothing that anyone else can see: its files carry the attempt in their names and count only when the
commit record names them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.jobs.batch import Attempt
from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.dag import Node
from streamtopology.jobs.departures import Departures
from streamtopology.jobs.failures import TupleFailed
from streamtopology.jobs.learning import learning_of, seconds_of_tuples
from streamtopology.jobs.load import measure_keys
from streamtopology.jobs.operators.base import BadTuple, BatchInfo, Operator, Output, Rows, SetAside
from streamtopology.jobs.publishing import DEAD_LETTER
from streamtopology.jobs.state import Ownership, State
from streamtopology.jobs.worker import Worker
from streamtopology.routing.epoch import Epoch
from streamtopology.routing.report import LoadReport

MOST_BAD_TUPLES = 100


@dataclass(frozen=True)
class TurnResult:
    """What a turn leaves for the driver to commit."""

    report: LoadReport
    delta: str | None
    outputs: dict[str, list[str]]
    dead_letters: str | None
    adopted: Sequence[str]
    learnt: Mapping[str, Any] | None = None

    def to_wire(self, left_at: float) -> bytes:
        """`left_at`: when the turn was over, epoch seconds."""
        wire = {
            "report": self.report.to_wire(), "delta": self.delta, "outputs": self.outputs, "dead": self.dead_letters,
            "left_at": left_at, "adopted": list(self.adopted), "learnt": self.learnt,
        }  # fmt: skip
        return json.dumps(wire).encode()


@dataclass
class Turn:
    """`arrivals` are the instance's tuples in routing order; `moved_in` state handed over by former owners.

    `route_on` sends a batch that the operator emitted along the node's edges, and `departures` counts it; `wait_seconds` is
    this turn's share of the task's time before the first turn.
    """

    attempt: Attempt
    node: Node
    instance: int
    home: int
    epoch: Epoch
    worker: Worker
    checkpoint: Checkpoint
    arrivals: Sequence[Rows]
    moved_in: Sequence[pa.RecordBatch]
    route_on: Callable[[pa.RecordBatch], None]
    departures: Departures
    sinks: Sequence[str] = ()
    wait_seconds: float = 0.0
    _set_aside: list[SetAside] = field(default_factory=list)
    _adopted: Sequence[str] = ()
    _timed: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)

    def run(self) -> TurnResult:
        started = time.perf_counter()
        operator, emitted, state, arrivals = self._work()
        for batch in emitted:
            self.route_on(batch)
        outputs = self._stage_outputs(emitted)
        delta = self._save(state)
        dead_letters = self._stage_dead_letters()
        busy = time.perf_counter() - started
        report = self._report(operator, state, arrivals, busy)
        return TurnResult(report, delta, outputs, dead_letters, self._adopted, self._learn())

    def _work(self) -> tuple[Operator, list[pa.RecordBatch], State | None, Sequence[Rows]]:
        """Run the operator; where the manifest says `deadLetter`, set aside the tuples it raises on and run it again."""
        arrivals, bad = self.arrivals, 0
        while True:
            try:
                operator, emitted, state = self._pass(arrivals)
                self._set_aside.extend(operator.set_aside)
                return operator, emitted, state, arrivals
            except Exception as error:
                self.worker.discard_operator(self.attempt, self.node, self.instance)
                culprit = self._first_failing(arrivals)
                if culprit is None:
                    raise
                which, row = culprit
                if not self.attempt.dead_letter or bad >= MOST_BAD_TUPLES:
                    raise self._failure(arrivals[which], row, error) from error
                bad += 1
                self._set_aside.append(SetAside(arrivals[which].batch.slice(row, 1), arrivals[which].input, str(error)))
                arrivals = _without(arrivals, which, row)

    def _pass(self, arrivals: Sequence[Rows]) -> tuple[Operator, list[pa.RecordBatch], State | None]:
        """All of `arrivals` through a fresh operator, on the state of the last commit."""
        attempt, node = self.attempt, self.node
        state = self.worker.state(attempt, node, self.instance)
        self._adopted = self.worker.adopt(attempt, node, self.instance)
        self.worker.touched(attempt, node, self.instance)
        self._hand_over(state)
        operator = self.worker.operator(attempt, node, self.instance)
        flush = attempt.flush or attempt.final or attempt.number % node.flush_every == 0
        info = BatchInfo(attempt.number, attempt.watermark, attempt.final, flush)
        operator.begin(info)
        emitted: list[pa.RecordBatch] = []
        self._timed.clear()
        for rows in arrivals:
            started = time.perf_counter()
            emitted.extend(_batches(operator.accept(rows, state, attempt.dead_letter)))
            if rows.keys is not None:
                seconds = seconds_of_tuples(operator, len(rows), time.perf_counter() - started)
                self._timed.append((rows.keys.hashes, seconds))
        emitted.extend(_batches(operator.finish(info, state)))
        return operator, emitted, state

    def _hand_over(self, state: State | None) -> None:
        """Drop what belongs to others in this batch, take in what its former owners sent."""
        attempt = self.attempt
        if state is None or not attempt.hands_over:
            return
        table = self.epoch.routes[self.node.name].table
        if table is None or self.node.is_partial:
            return
        state.evict(Ownership(table, self.instance))
        for batch in self.moved_in:
            state.insert(batch)

    def _first_failing(self, arrivals: Sequence[Rows]) -> tuple[int, int] | None:
        """(which arrival, row) of the first tuple without which the tuples before it pass; None: not a tuple's fault."""
        total = sum(len(rows) for rows in arrivals)
        if total == 0 or self._fails(_prefix(arrivals, 0)) or not self._fails(arrivals):
            return None
        low, high = 0, total  # the prefix of length low passes, that of length high fails
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._fails(_prefix(arrivals, middle)) else (middle, high)
        for which, rows in enumerate(arrivals):
            if low < len(rows):
                return which, low
            low -= len(rows)
        return None

    def _fails(self, arrivals: Sequence[Rows]) -> bool:
        try:
            self._pass(arrivals)
        except Exception:  # noqa: BLE001 - the caller already holds the error and only asks where it comes from
            self.worker.discard_operator(self.attempt, self.node, self.instance)
            return True
        return False

    def _failure(self, rows: Rows, row: int, error: Exception) -> TupleFailed:
        reason = error.reason if isinstance(error, BadTuple) else f"{type(error).__name__}: {error}"
        tuple_ = rows.batch.slice(row, 1).to_pylist()[0]
        key = {name: tuple_[name] for name in self.node.key if name in tuple_}
        return TupleFailed(self.node.operator, self.attempt.number, self.instance, key, tuple_, reason)

    def _learn(self) -> Mapping[str, Any] | None:
        """What this instance has to tell the choosers that send it tuples; None where they do not learn."""
        route = self.epoch.routes[self.node.name]
        if self.attempt.dry or learning_of(route) is None:
            return None
        observer = self.worker.observer(self.attempt, self.node, self.instance, route)
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
        return self.checkpoint.write_delta(self.node.name, self.instance, self.attempt.number, self.attempt.attempt, delta)

    def _stage_outputs(self, emitted: Sequence[pa.RecordBatch]) -> dict[str, list[str]]:
        if not self.sinks or not emitted or self.attempt.dry:
            return {}
        path = self.checkpoint.stage_output(self.node.name, self.instance, self.attempt.number, self.attempt.attempt, emitted)
        return {sink: [path] for sink in self.sinks}

    def _stage_dead_letters(self) -> str | None:
        """The tuples set aside as rows: which, of which instance and input, why."""
        rows = [
            {"operator": self.node.operator, "instance": self.instance, "input": item.input, "reason": item.reason,
             "tuple": json.dumps(row, default=str)}
            for item in self._set_aside for row in item.batch.to_pylist()
        ]  # fmt: skip
        if not rows:
            return None
        return self.checkpoint.stage_output(
            f"{self.node.name}.dead",
            self.instance,
            self.attempt.number,
            self.attempt.attempt,
            [pa.RecordBatch.from_pylist(rows, DEAD_LETTER)],
        )

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
            operator=self.node.name, instance=self.instance, slot=self.home, rows=rows, busy_seconds=busy,
            task_seconds=busy + self.wait_seconds, state_keys=size, state_bytes=0 if state is None else state.nbytes,
            late_rows=operator.late_rows, bad_rows=sum(item.batch.num_rows for item in self._set_aside),
            heavy_hashes=load.hashes, heavy_rows=load.rows, heavy_seconds=load.seconds,
            heavy_bytes=np.full(len(load.hashes), _bytes_per_key(state), np.int64), heavy_labels=load.labels,
            bucket_rows=load.bucket_rows, onward=self.departures.onward, key_pairs=self.departures.key_pairs,
        )  # fmt: skip


def _bytes_per_key(state: State | None) -> int:
    return state.nbytes // len(state) if state is not None and len(state) else 0


def _batches(output: Output) -> list[pa.RecordBatch]:
    if output is None:
        return []
    return output.to_batches() if isinstance(output, pa.Table) else [output]


def _prefix(arrivals: Sequence[Rows], length: int) -> list[Rows]:
    kept: list[Rows] = []
    for rows in arrivals:
        if length >= len(rows):
            kept.append(rows)
        elif length > 0:
            kept.append(rows.take(np.arange(length)))
        length = max(0, length - len(rows))
    return kept


def _without(arrivals: Sequence[Rows], which: int, row: int) -> list[Rows]:
    left = list(arrivals)
    left[which] = arrivals[which].take(np.delete(np.arange(len(arrivals[which])), row))
    return left
