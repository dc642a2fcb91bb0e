"""`streamtopology migrate`: copies ahead what an epoch moves, while batches run; a process, or a Kubernetes Job.

    python -m streamtopology.jobs.migrate --checkpoint URI --epoch N

It reads files that never change, of the version on which the epoch holds a lease, and writes new ones that no record
names yet; so it may be killed and started again at any time, or run twice. What is noted as done is not done again.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from streamtopology.jobs.batch import Plan
from streamtopology.jobs.checkpoint import Checkpoint, CheckpointError, CommitRecord, Copied, CopiedPart, Lease
from streamtopology.jobs.dag import Node
from streamtopology.jobs.state import KeyedState, KeyedStateSchema, Ownership, routing_hashes
from streamtopology.jobs.state.schema import DELETED
from streamtopology.routing.epoch import Epoch
from streamtopology.routing.switching import portions_of
from streamtopology.routing.table import RoutingTable

LEASE_SECONDS = 60.0


class GivenUp(Exception):
    """The epoch holds no lease: it runs already, or it never will."""


def planned(checkpoint: Checkpoint, epoch: int) -> Plan:
    """The plan of an epoch as the checkpoint has it."""
    return Plan.from_json(checkpoint.read_epoch(epoch))


def migrate(
    checkpoint: Checkpoint, epoch: int, tell: Callable[[str], None], plan_of: Callable[[Checkpoint, int], Plan] = planned
) -> Copied:
    """Copy everything that `epoch` moves and that has keyed state. Raises GivenUp, CheckpointError, StateFileError."""
    lease = _held(checkpoint, epoch)
    done = checkpoint.migrations.copied(epoch)
    if done is not None:
        return done
    plan, commit = plan_of(checkpoint, epoch), checkpoint.read_commit(lease.batch)
    leaving = list(sources_of(plan, commit))
    parts: list[CopiedPart] = []
    for node, instance, table in leaving:
        part = checkpoint.migrations.part(epoch, node.name, instance)
        if part is None:
            part = _copy(checkpoint, lease, commit, node, Ownership(table, instance))
            checkpoint.migrations.part_done(epoch, part)
        parts.append(part)
        tell(f"{len(parts)} of {len(leaving)}: {part.keys:,} keys, {part.bytes:,} bytes leave {node.name} {instance}")
        _held(checkpoint, epoch)
    return checkpoint.migrations.finish(lease, parts)


def sources_of(plan: Plan, commit: CommitRecord) -> Sequence[tuple[Node, int, RoutingTable]]:
    """The instances with state that may leave them under `plan`, each with its node's new table."""
    return [
        (node, instance, table)
        for node in plan.compile().nodes
        if isinstance(node.state, KeyedStateSchema) and not node.is_partial
        and (table := plan.epoch.routes[node.name].table) is not None
        for instance in commit.state.get(node.name, {})
    ]  # fmt: skip


def moving_bytes(epoch: Epoch, commit: CommitRecord, node_names: Sequence[str], before: Epoch) -> int:
    """About how many bytes of state `epoch` moves, by the share of each instance's buckets that it gives to others."""
    total = 0.0
    for name in node_names:
        old, new = before.routes[name].table, epoch.routes[name].table
        if old is None or new is None or len(old.buckets) != len(new.buckets):
            continue
        for instance, reference in commit.state.get(name, {}).items():
            mine = old.buckets == instance
            if mine.any():
                total += reference.bytes * float(np.mean(new.buckets[mine] != instance))
    return int(total)


def _held(checkpoint: Checkpoint, epoch: int) -> Lease:
    lease = checkpoint.migrations.lease(epoch)
    if lease is None:
        raise GivenUp(f"epoch {epoch} holds no lease in checkpoint {checkpoint.uri}: it runs already, or was given up")
    return lease


def _copy(checkpoint: Checkpoint, lease: Lease, commit: CommitRecord, node: Node, of: Ownership) -> CopiedPart:
    """Copy what leaves one instance, a file for each new owner and portion."""
    assert isinstance(node.state, KeyedStateSchema)
    reference = commit.state[node.name][of.instance]
    moving = KeyedState(node.state)
    bytes_read = 0
    for path in reference.paths:
        rows = checkpoint.read_fitted(path, node.state)
        bytes_read += rows.nbytes
        moving.apply(_as_delta(rows.filter(pa.array(of.strangers(routing_hashes(rows, node.state))))))
    files = [
        checkpoint.migrations.write_copy(lease, node.name, of.instance, target, portion, _as_delta(rows))
        for (target, portion), rows in _dealt(moving, of.table, lease.portions)
    ]
    return CopiedPart(node.name, of.instance, tuple(files), bytes_read)


def _dealt(moving: KeyedState, table: RoutingTable, portions: int) -> Iterator[tuple[tuple[int, int], pa.RecordBatch]]:
    """(new owner, portion) -> its rows."""

    def lots(hashes: np.ndarray) -> np.ndarray:
        return table.lookup(hashes) * np.int32(portions) + portions_of(hashes, len(table.buckets), portions)

    for lot, rows in moving.dealt(lots):
        yield divmod(lot, portions), rows


def _as_delta(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of a snapshot as a delta that deletes nothing; a delta as it is."""
    if DELETED in rows.schema.names:
        return rows
    return rows.append_column(DELETED, pa.array(np.zeros(rows.num_rows, np.bool_)))


def run(uri: str, epoch: int, tell: Callable[[str], None] = print) -> Copied:
    """`migrate`, for a process of its own: a Job may start before the driver has prepared the epoch."""
    deadline = time.monotonic() + LEASE_SECONDS
    while True:
        try:
            checkpoint = Checkpoint.attach(uri)
            _held(checkpoint, epoch)
            break
        except (CheckpointError, GivenUp):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
    copied = migrate(checkpoint, epoch, tell)
    moved = sum(part.bytes for part in copied.parts)
    tell(f"epoch {epoch}: {moved:,} bytes copied as of batch {copied.batch}")
    return copied


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m streamtopology.jobs.migrate", description=__doc__)
    parser.add_argument("--checkpoint", required=True, metavar="URI")
    parser.add_argument("--epoch", required=True, type=int, metavar="N")
    parser.add_argument("--while-stdin-is-open", action="store_true", help="end when whoever started this does")
    parsed = parser.parse_args(given)
    if parsed.while_stdin_is_open:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        run(parsed.checkpoint, parsed.epoch)
    except (GivenUp, CheckpointError) as error:
        print(f"streamtopology migrate: {error}", file=sys.stderr)
        return 1
    return 0


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    os.nice(10)  # batches come first
    sys.exit(main())
