"""Routing on the way out of a task: hash -> lookup or choose -> one envelope per place.

An outbox belongs to one task of one attempt. Choosers live as long as it does: each task is a scheduler of its own
that starts from the loads the driver merged after the last batch.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamtopology.jobs.batch import Attempt
from streamtopology.jobs.dag import Dag, Edge, Node
from streamtopology.jobs.departures import Departures
from streamtopology.jobs.envelope import Envelope, Kind, Section
from streamtopology.jobs.keys import KeyColumns
from streamtopology.jobs.learning import rehearse_learning, tell
from streamtopology.routing import groupings
from streamtopology.routing.epoch import Epoch, Route
from streamtopology.routing.groupings import Chooser
from streamtopology.routing.table import partition


class Outbox:
    """All that one task sends, by place; `order` tells its receivers where its rows belong among other tasks' rows."""

    def __init__(self, attempt: Attempt, epoch: Epoch, dag: Dag, order: int) -> None:
        self._attempt = attempt
        self._epoch = epoch
        self._dag = dag
        self._order = order
        self._envelopes = [Envelope() for _ in range(attempt.places)]
        self._choosers: dict[str, Chooser] = {}

    def send(self, producer: str, batch: pa.RecordBatch, departures: Departures | None = None) -> None:
        """Route `batch` along every edge that leaves `producer`; `departures` takes note, where an instance sends it."""
        if batch.num_rows == 0 and not self._attempt.dry:
            return
        for edge in self._dag.edges_from(producer):
            self._send_along(edge, batch, departures)

    def send_state(self, node: str, instance: int, batch: pa.RecordBatch) -> None:
        """Hand state over to `instance`, its new owner."""
        place = self._attempt.place_of(instance)
        self._envelopes[place].add_batch(Kind.MOVED, node, instance, self._order, batch)

    def report(self, place: int, payload: bytes) -> None:
        """Something for the driver; it rides along at the place that wrote it until the last stage."""
        self._envelopes[place].add_bytes(Kind.REPORT, "", 0, self._order, payload)

    def forward(self, place: int, section: Section) -> None:
        self._envelopes[place].forward(section)

    def envelopes(self) -> list[pa.Buffer]:
        """What goes to each place, in the order of places: one each, empty ones included."""
        return [envelope.seal() for envelope in self._envelopes]

    def _send_along(self, edge: Edge, batch: pa.RecordBatch, departures: Departures | None) -> None:
        node = self._dag.node(edge.consumer)
        hashes = KeyColumns.from_arrow(batch, edge.key).hashes if edge.key else None
        active = self._epoch.routes[node.name].instances
        order, bounds = partition(self._targets(node, hashes, batch.num_rows), active[-1] + 1)
        if departures is not None:
            stayed = sum(int(bounds[i + 1] - bounds[i]) for i in self._instances_beside(node))
            departures.note(edge, batch, hashes, stayed)
        # A dry attempt sends empty pieces, so that every instance sees the real schema and compiles its kernels.
        receivers = active if self._attempt.dry else np.flatnonzero(np.diff(bounds)).tolist()
        for instance in receivers:
            piece = take(batch, order[bounds[instance] : bounds[instance + 1]])
            place = self._attempt.place_of(instance)
            target = f"{edge.consumer}/{edge.alias}"
            self._envelopes[place].add_batch(Kind.ROWS, target, instance, self._order, piece)

    def _targets(self, node: Node, hashes: np.ndarray | None, n: int) -> np.ndarray:
        """int32[n]: the instance of every row; `hashes` uint64[n] are those of their keys."""
        route = self._epoch.routes[node.name]
        spec = groupings.get(node.policy)
        if spec.kind == "table":
            if route.table is None or hashes is None:
                raise ValueError(f"{node.name!r} is routed by a table but has none, or no key")
            return route.table.lookup(hashes)
        return self._chooser(node, route).choose(hashes, n)

    def _chooser(self, node: Node, route: Route) -> Chooser:
        """One chooser for all inputs of a node: its load estimates are about instances, not edges.

        There is one at every place. Each starts from its part of the loads: if all made up the whole gap between two
        instances, they would open another, as many times as large as there are places.
        """
        if node.name not in self._choosers:
            active = np.asarray(route.instances, np.int32)
            loads = np.zeros(active[-1] + 1)
            known = self._attempt.chooser_loads.get(node.name, loads)[: len(loads)]
            loads[: len(known)] = known
            self._choosers[node.name] = groupings.get(node.policy).chooser(
                active,
                loads[active] / self._attempt.places,
                seed=self._attempt.number * 1_000_003 + self._order,
                options=route.options,
                table=route.table,
                beside=self._instances_beside(node),
            )
            if self._attempt.dry:
                rehearse_learning(route)
            tell(self._choosers[node.name], route, self._attempt.knowledge.get(node.name), self._attempt.places)
        return self._choosers[node.name]

    def _instances_beside(self, node: Node) -> list[int]:
        """The node's instances at this place; none where Spark put the task, whose order is beyond the places."""
        active = self._epoch.routes[node.name].instances
        return self._attempt.instances_at(self._order, active) if self._order < self._attempt.places else []


def take(batch: pa.RecordBatch, indices: np.ndarray) -> pa.RecordBatch:
    """Rows of `batch` at `indices`; fixed-width columns without NULLs take numpy's faster path."""
    columns = [_take_column(column, indices) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _take_column(column: pa.Array, indices: np.ndarray) -> pa.Array:
    kind = column.type
    if column.null_count == 0 and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return pa.array(np.take(column.to_numpy(), indices), kind)
    return pc.take(column, pa.array(indices))
