"""The hand-over of state: keys that a batch gives to other instances leave their old owners in its first stage.

The state of a moved key must be at its new owner before the key's first row. The rows of the batch are shuffled anyway,
so the state travels with them: no second channel, no pause, and one commit for both.

Nothing is changed here. The old owner sends the state as of the last commit; in its own run of the same batch it drops the
keys, and the new owner inserts them. So a lost attempt leaves both as they were. An instance that the epoch no longer has
sends all its state and does not run: the next commit record does not name it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamtopology.jobs.exchange.outbox import Outbox
from streamtopology.jobs.plan.results import MovedState
from streamtopology.jobs.state import KeyedState, Ownership, State, concatenated, routing_hashes
from streamtopology.jobs.worker.attempt_context import AttemptContext, InstanceContext
from streamtopology.routing.table.table import RoutingTable

Move = tuple[str, int, int]  # (node, keys or rows, bytes)


def send_moving_state(context: AttemptContext, outbox: Outbox) -> None:
    """Send the state of keys that this batch gives to others, as of the last commit, to their new owners."""
    moves: list[Move] = []
    began = time.perf_counter()
    for node in context.dag.nodes:
        table, former = context.epoch.routes[node.name].table, context.previous_epoch.routes.get(node.name)
        if node.state is None or node.is_partial or table is None or former is None:
            continue
        for owner in context.instances(node, former):
            state = owner.committed_state()
            if context.attempt.precopied_at is not None and isinstance(state, KeyedState):
                leaving = _Leaving(owner.number, former.table, table)
                moves.append(_send_changes(owner, leaving, state, context.attempt.precopied_at, outbox))
            elif state is not None and len(state) > 0:
                moves += _send_all(owner, table, state, outbox)
    outbox.report(MovedState(moves, time.perf_counter() - began))


def _send_all(owner: InstanceContext, table: RoutingTable, state: State, outbox: Outbox) -> Iterator[Move]:
    for target, entries, rows in state.leaving(Ownership(table, owner.number)):
        outbox.send_state(owner.node.name, target, rows)
        yield owner.node.name, entries, rows.nbytes


@dataclass(frozen=True)
class _Leaving:
    """The keys that leave `instance` in this batch: `before` has them here, `now` elsewhere."""

    instance: int
    before: RoutingTable | None
    now: RoutingTable

    def owners(self, hashes: np.ndarray) -> np.ndarray:
        """int32[n]: the new owners of the keys (uint64[n]) that leave; `instance` for others, which may have left before."""
        owners = self.now.lookup(hashes)
        if self.before is not None:
            owners[self.before.lookup(hashes) != self.instance] = self.instance
        return owners

    def others(self, owners: np.ndarray) -> list[int]:
        return np.unique(owners[owners != self.instance]).tolist()


def _send_changes(owner: InstanceContext, leaving: _Leaving, state: KeyedState, precopied_at: int, outbox: Outbox) -> Move:
    """Send the changes of moving keys since they were pre-copied; the keys and bytes moved include the pre-copied ones."""
    node, precopy = owner.node, owner.task.precopy
    portions = owner.attempt.portions_moving(precopy.portions)
    parts = [part for part in precopy.parts if (part.node, part.instance) == (node.name, owner.number)]
    files = [file for part in parts for file in part.files if file.portion in portions]
    keys, size = sum(file.keys for file in files), sum(file.bytes for file in files)
    slots = state.changed_since(precopied_at)
    if slots is None:
        changed = _changes_in(owner.deltas_since(precopied_at), state, leaving)
    else:
        owners = leaving.owners(state.hashes(slots))
        changed = ((target, state.written(slots[owners == target])) for target in leaving.others(owners))
    for target, changes in changed:
        outbox.send_state(node.name, target, changes)
        size += changes.nbytes
    return node.name, keys, size


def _changes_in(deltas: Iterable[pa.RecordBatch], state: KeyedState, leaving: _Leaving) -> Iterator[tuple[int, pa.RecordBatch]]:
    """By new owner, the changes of its keys in `deltas`, deletions of keys that the state no longer has included."""
    touched: dict[int, list[pa.RecordBatch]] = {}
    for rows in deltas:
        owners = leaving.owners(routing_hashes(rows, state.schema))
        for target in leaving.others(owners):
            touched.setdefault(target, []).append(rows.filter(pa.array(owners == target)).replace_schema_metadata(None))
    for target, batches in touched.items():
        yield target, state.changes(concatenated(batches))
