"""Routing of a task's output: hash -> lookup or choose -> one envelope per partition.

This is where a row meets the routing table, once per edge. It works on whole Arrow batches: hash all keys, look up all
instances, take each instance's rows. A loop over rows in Python would cost more than the operators.

An outbox belongs to one task of one attempt. Choosers live as long as it does: each task is a scheduler of its own that
starts from the loads that the driver merged after the last batch. So routers need not talk to each other.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.exchange.downstream_counts import DownstreamCounts
from streamtopology.jobs.exchange.envelope import Envelope, EnvelopeKind, Section
from streamtopology.jobs.exchange.learning import apply_knowledge, rehearse_learning
from streamtopology.jobs.exchange.reports import Report, encode
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.plan.dag import Dag, Edge, Node
from streamtopology.jobs.plan.results import FailureKind, TaskFailure
from streamtopology.routing.epochs.epoch import Epoch, Route
from streamtopology.routing.groupings import Chooser, make_chooser
from streamtopology.routing.table.pouring import Pace, Pourer
from streamtopology.routing.table.table import partition
from streamtopology.topology import groupings

# A JVM of the smallest executors can hold that in its heap, as a whole, while it is shuffled.
MOST_BLOB_BYTES = 64 << 20


class Outbox:
    """All that one task sends, by partition. `order` places its rows among those of other tasks at their receivers.

    It is the task's partition, or a number beyond the attempt's partitions where Spark placed the task.
    """

    def __init__(self, attempt: Attempt, epoch: Epoch, dag: Dag, order: int) -> None:
        self._attempt = attempt
        self._epoch = epoch
        self._dag = dag
        self._order = order
        self._envelopes = [Envelope() for _ in range(attempt.partitions)]
        self._own_partition = order if order < attempt.partitions else 0
        self._choosers: dict[str, Chooser] = {}
        self._pourers: dict[str, Pourer] = {}

    def send(self, producer: str, batch: pa.RecordBatch, counts: DownstreamCounts | None = None) -> None:
        """Route `batch` along every edge that leaves `producer`; count it in `counts`, where an instance sends it."""
        if batch.num_rows == 0 and not self._attempt.dry:
            return
        for edge in self._dag.edges_from(producer):
            self._send_along(edge, batch, counts)

    def send_state(self, node: str, instance: int, batch: pa.RecordBatch) -> None:
        """Hand state over to `instance`, its new owner."""
        partition = self._attempt.partition_of(instance)
        self._envelopes[partition].add_batch(EnvelopeKind.MOVED, node, instance, self._order, batch)

    def report(self, report: Report) -> None:
        """Send a report to the driver; it stays at the partition of this task until the last stage."""
        self._envelopes[self._own_partition].add_bytes(EnvelopeKind.REPORT, "", 0, self._order, encode(report))

    def forward(self, section: Section) -> None:
        """Pass a section for a later stage on at the partition of this task."""
        self._envelopes[self._own_partition].forward(section)

    def envelopes(self) -> list[pa.Buffer]:
        """The blobs for each partition, in their order, empty ones included; the same number for each, see `Attempt.blobs`.

        If they would be too large, only a report of that is sent.
        """
        largest = max(envelope.size for envelope in self._envelopes)
        if largest > self._attempt.blobs * MOST_BLOB_BYTES:
            self._envelopes = [Envelope() for _ in self._envelopes]
            self.report(TaskFailure("sending rows", f"{largest:,} bytes for one partition", FailureKind.LARGE_ENVELOPE, ""))
        return [blob for envelope in self._envelopes for blob in envelope.seal(self._attempt.blobs)]

    def _send_along(self, edge: Edge, batch: pa.RecordBatch, counts: DownstreamCounts | None) -> None:
        node, sent = self._dag.node(edge.consumer), batch
        batch = edge.fitted(sent)
        hashes = KeyColumns.from_arrow(batch, edge.key).hashes if edge.key else None
        active = self._epoch.routes[node.name].instances
        order, bounds = partition(self._targets(node, hashes, batch.num_rows), active[-1] + 1)
        if counts is not None:
            stayed = sum(int(bounds[i + 1] - bounds[i]) for i in self._local_instances(node))
            counts.add(edge, sent, hashes, stayed)
        # A dry attempt sends empty pieces, so that every instance sees the real schema and compiles its kernels.
        receivers = active if self._attempt.dry else np.flatnonzero(np.diff(bounds)).tolist()
        for instance in receivers:
            piece = take(batch, order[bounds[instance] : bounds[instance + 1]])
            receiver = self._attempt.partition_of(instance)
            target = f"{edge.consumer}/{edge.alias}"
            self._envelopes[receiver].add_batch(EnvelopeKind.ROWS, target, instance, self._order, piece)

    def _targets(self, node: Node, hashes: np.ndarray | None, n: int) -> np.ndarray:
        """int32[n]: the instance of every row; `hashes` uint64[n] are those of their keys."""
        route = self._epoch.routes[node.name]
        spec = groupings.get(node.policy)
        if spec.kind == "table":
            if route.table is None or hashes is None:
                raise ValueError(f"{node.name!r} is routed by a table but has none, or no key")
            pourer = self._pourer(node, route) if node.is_poured else None
            return route.table.lookup(hashes) if pourer is None else pourer.pour(route.table, hashes).owners
        return self._chooser(node, route).choose(hashes, n)

    def _chooser(self, node: Node, route: Route) -> Chooser:
        """One chooser for all inputs of a node: its load estimates are about instances, not edges.

        There is one at every partition. Each starts from its part of the loads: if every chooser closed the whole gap
        between two instances, together they would open another, larger by the number of partitions.
        """
        if node.name not in self._choosers:
            active = np.asarray(route.instances, np.int32)
            loads = np.zeros(active[-1] + 1)
            known = self._attempt.chooser_loads.get(node.name, loads)[: len(loads)]
            loads[: len(known)] = known
            self._choosers[node.name] = make_chooser(
                node.policy,
                active,
                loads[active] / self._attempt.partitions,
                seed=self._attempt.number * 1_000_003 + self._order,
                options=route.options,
                table=route.table,
                local=self._local_instances(node),
            )
            if self._attempt.dry:
                rehearse_learning(route)
            apply_knowledge(self._choosers[node.name], route, self._attempt.knowledge.get(node.name), self._attempt.partitions)
        return self._choosers[node.name]

    def _pourer(self, node: Node, route: Route) -> Pourer | None:
        """The pourer of this task's rows for the node; None as long as the speed of its instances is unknown.

        A batch that flushes may be the last: none follows that takes parts in, so all of its rows go to their homes.
        """
        if self._attempt.flush or self._attempt.final:
            return None
        if node.name not in self._pourers:
            size = route.instances[-1] + 1
            pace = Pace(np.ones(size), np.zeros(size)) if self._attempt.dry else self._attempt.paces.get(node.name)
            if pace is None or len(pace.capacities) != size:
                return None
            turn = self._attempt.number * 2 * self._attempt.partitions + self._order
            self._pourers[node.name] = Pourer(replace(pace, routers=self._routers), turn * 1_000_003)
        return self._pourers[node.name]

    @property
    def _routers(self) -> float:
        """Tasks that route, if all had as many rows as this one."""
        readers = self._attempt.reading_partitions
        shares = self._epoch.source_shares
        if not shares or self._order not in readers:
            return float(self._attempt.partitions)
        slots = self._attempt.slot_by_partition
        share = shares[slots[self._order]]  # 0 of all readers where the executors that have shares are gone, see `deal`
        return sum(shares[slots[reader]] for reader in readers) / share if share > 0 else float(self._attempt.partitions)

    def _local_instances(self, node: Node) -> list[int]:
        """The node's instances at this partition; none where Spark placed the task."""
        active = self._epoch.routes[node.name].instances
        return self._attempt.instances_on(self._order, active) if self._order < self._attempt.partitions else []


def take(batch: pa.RecordBatch, indices: np.ndarray) -> pa.RecordBatch:
    """Rows of `batch` at `indices`; fixed-width columns without NULLs take numpy's faster path."""
    columns = [_take_column(column, indices) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _take_column(column: pa.Array, indices: np.ndarray) -> pa.Array:
    kind = column.type
    if column.null_count == 0 and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return pa.array(np.take(column.to_numpy(), indices), kind)
    return pc.take(column, pa.array(indices))
