"""Executors that follow a script: they read no rows, and answer orders of real time with real reports and real, tiny files.

The driver cannot tell them from executors that work. So its own cost can be measured for as many of them as nobody has here.
"""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import PurePosixPath

import numpy as np
import pyarrow as pa

from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.driver.attempt_runner import Executor
from streamtopology.jobs.exchange.envelope import Envelope, EnvelopeKind
from streamtopology.jobs.exchange.reports import encode
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.plan.results import Compacted, InstanceResult, SourceResult
from streamtopology.jobs.plan.span import Span
from streamtopology.jobs.realtime import messages
from streamtopology.jobs.realtime.desk import Desk
from streamtopology.jobs.realtime.messages import Order
from streamtopology.jobs.worker.key_load import measure_keys
from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.routing.load.load_report import LoadReport, Onward, SourceReport

# Keys of an instance, of which about 16 are heavy; the rows of each in a batch, by its rank.
KEYS = 200
ROWS_OF_KEYS = np.maximum(1, 48 // np.arange(1, KEYS + 1))
# Of an instance, and of a task that reads.
ROWS = int(ROWS_OF_KEYS.sum())
BUSY_SECONDS, NOISE = 0.2, 0.02


class ScriptedWorkers:
    """Implements `Workers`, and is at the other end of `desk`: one for each of `slots`.

    sent_bytes, report_bytes, reports: of the orders and of the answers so far. `attempt`: the newest.
    """

    def __init__(self, slots: Sequence[str], checkpoint: Checkpoint) -> None:
        self.desk = Desk(self._take)
        self.sent_bytes = self.report_bytes = self.reports = 0
        self.attempt: Attempt | None = None
        self._executors = [Executor(slot, f"10.0.{i >> 8}.{i & 255}", slot) for i, slot in enumerate(slots)]
        self._checkpoint = checkpoint
        self._random = np.random.default_rng(1)
        self._loads: dict[str, list[LoadReport]] = {}
        self._waiting: list[tuple[str, bytes]] = []
        self._answered_at = 0.0
        rows = np.arange(KEYS)
        self._delta = pa.record_batch({"k": rows, "count": rows, "__deleted": np.zeros(KEYS, np.bool_)})
        self._output = pa.record_batch({"k": rows, "n": rows, "total": rows})

    def route(self, epoch: Epoch) -> None:
        """Let each instance have keys that `epoch` routes to it. `sums` follows `counts`, and gets its rows."""
        for operator, route in epoch.routes.items():
            assert route.table is not None, "mixed routes by a table"
            keys = np.arange(3 * KEYS * len(route.instances))
            owners = route.table.lookup(_columns(keys).hashes)
            self._loads[operator] = [
                _load(operator, i, keys[owners == i][:KEYS], len(self._executors)) for i in route.instances
            ]

    # --- as the runner sees them ---

    def executors(self) -> list[Executor]:
        return list(self._executors)

    def await_executors(self, wanted: Callable[[Executor], bool]) -> list[Executor]:
        return [executor for executor in self._executors if wanted(executor)]

    def begin_batch(self, batch: int) -> None:
        pass

    def rehearsing(self, rehearse: Callable[[Executor], None]) -> AbstractContextManager[None]:
        return nullcontext()

    def start(self, executor: Executor, name: str, ended: Callable[[Exception], None]) -> None:
        self.desk.heard(name, messages.HELLO, [f"tcp://{executor.host}:41234".encode()])

    def give_up(self, name: str) -> None:
        pass

    def await_ends(self) -> None:
        pass

    # --- what they do ---

    def _take(self, frames: list[bytes]) -> None:
        """Take a message of the driver's. All answer when the last one has its order."""
        self.sent_bytes += sum(map(len, frames))
        if frames[1] != messages.RUN:
            return
        self._waiting.append((frames[0].decode(), frames[4]))
        if len(self._waiting) == len(self._executors):
            waiting, self._waiting = self._waiting, []
            self.answer(frames[2], [name for name, _ in waiting], [descriptors for _, descriptors in waiting])

    def answer(self, pickled: bytes, names: Sequence[str], descriptors: Sequence[bytes]) -> None:
        """Do all the work of an order: `names` and `descriptors` (pickled) are those of the workers by partition."""
        order: Order = pickle.loads(pickled)
        self._answered_at = time.monotonic()
        dealt = tuple(pickle.loads(own) for own in descriptors)
        attempt = self.attempt = replace(order.attempt, descriptors=dealt if any(dealt) else ())
        envelopes = [Envelope() for _ in names]
        for partition in attempt.reading_partitions:
            self._add(envelopes, partition, self._source(attempt, partition))
        for result in self._instances(attempt):
            self._add(envelopes, attempt.partition_of(result.report.instance), result)
        for name, envelope in zip(names, envelopes, strict=True):
            blobs = [blob.to_pybytes() for blob in envelope.seal(attempt.blobs)]
            self.report_bytes += sum(map(len, blobs))
            frames = [messages.numbered(order.number), messages.timed(math.nan), *blobs]  # nothing known of links
            self.desk.heard(name, messages.DONE, frames)

    def _add(self, envelopes: Sequence[Envelope], partition: int, report: InstanceResult | SourceResult) -> None:
        envelopes[partition].add_bytes(EnvelopeKind.REPORT, "", 0, partition, encode(report))
        self.reports += 1

    def _source(self, attempt: Attempt, partition: int) -> SourceResult:
        event_time = float(attempt.number)
        report = SourceReport(attempt.slot_by_partition[partition], ROWS, 0.05, 0.06, {"rows": event_time})
        times = {"rows": {"": event_time}}
        return SourceResult(report, self._span(partition), event_times=times, read_bytes={"rows": [65536, 65536]})

    def _instances(self, attempt: Attempt) -> list[InstanceResult]:
        compacted = self._compacted(attempt)
        return [
            self._instance(attempt, load, compacted.get((operator, load.instance)))
            for operator, loads in self._loads.items()
            for load in loads
        ]

    def _instance(self, attempt: Attempt, load: LoadReport, compacted: Compacted | None) -> InstanceResult:
        partition = attempt.partition_of(load.instance)
        busy = BUSY_SECONDS * (1 + NOISE * float(self._random.standard_normal()))
        report = replace(load, slot=attempt.slot_by_partition[partition], busy_seconds=busy, task_seconds=busy + 0.05)
        name = load.operator, load.instance, attempt.number, attempt.attempt
        delta = self._checkpoint.write_delta(*name, self._delta)
        outputs = {} if load.onward else {"sums": [self._checkpoint.stage_output(*name, [self._output])]}
        rows_out = dict.fromkeys(outputs, KEYS)
        return InstanceResult(report, delta, outputs, None, self._span(partition), rows_out=rows_out, compacted=compacted)

    def _span(self, partition: int) -> Span:
        """A task of no time by the clock of its own host; all of an attempt at once, or the last ones would seem slow."""
        return Span(f"host-{partition}", self._answered_at, self._answered_at)

    def _compacted(self, attempt: Attempt) -> Mapping[tuple[str, int], Compacted]:
        """All snapshots that the driver asks for, at once; nobody reads what is in them."""
        if not attempt.compactions or attempt.previous is None:
            return {}
        state, made = self._checkpoint.read_commit(attempt.previous[0]).state, dict[tuple[str, int], Compacted]()
        for (node, instance), deltas in attempt.compactions.items():
            held = state[node][instance]
            path = str(PurePosixPath(held.deltas[deltas - 1]).with_suffix(".snapshot"))
            self._checkpoint.keep(path, b"")
            made[node, instance] = Compacted(replace(held, deltas=held.deltas[:deltas]), path)
        return made


def _load(operator: str, instance: int, keys: np.ndarray, executors: int) -> LoadReport:
    """What an instance reports of its keys in any batch; its times and its slot are those of the batch."""
    load = measure_keys(_columns(np.repeat(keys, ROWS_OF_KEYS)), None)
    return LoadReport(
        operator, instance, 0, ROWS, BUSY_SECONDS, BUSY_SECONDS, state_keys=KEYS, state_bytes=48 * KEYS,
        heavy_hashes=load.hashes, heavy_rows=load.rows, heavy_seconds=load.seconds, heavy_labels=load.labels,
        heavy_bytes=np.full(len(load.hashes), 48, np.int64), bucket_rows=load.bucket_rows,
        onward={"sums": Onward(KEYS, KEYS // executors)} if operator == "counts" else {},
    )  # fmt: skip


def _columns(keys: np.ndarray) -> KeyColumns:
    return KeyColumns.of_values(pa.schema([("k", pa.int64())]), keys, None)
