"""`streamtopology migrate`: pre-copies the state that an epoch moves, while batches run; a process, or a Kubernetes Job.

    python -m streamtopology.jobs.rerouting.precopy_job --checkpoint URI --epoch N

It reads immutable files of the version on which the epoch holds a lease, and writes new ones that no record names yet. So
it may be killed and restarted at any time, or run twice. Parts that are noted as done are not copied again.
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

from streamtopology.contract.errors import StreamTopologyError
from streamtopology.jobs.checkpoint import Checkpoint, CheckpointError, CommitRecord, Copied, CopiedPart, Lease
from streamtopology.jobs.plan.dag import Node
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.rerouting.movement import leaving_instances
from streamtopology.jobs.state import KeyedState, KeyedStateSchema, Ownership, routing_hashes
from streamtopology.jobs.state.schema import DELETED
from streamtopology.routing.epochs.gradual_switch import portions_of
from streamtopology.routing.table.table import RoutingTable

LEASE_SECONDS = 60.0


class LeaseReleased(StreamTopologyError):
    """The epoch holds no lease: it runs already, or it was given up."""


def planned(checkpoint: Checkpoint, epoch: int) -> ExecutionPlan:
    """Return the plan of an epoch from the checkpoint."""
    return ExecutionPlan.from_json(checkpoint.read_epoch(epoch))


def migrate(
    checkpoint: Checkpoint,
    epoch: int,
    notify: Callable[[str], None],
    plan_of: Callable[[Checkpoint, int], ExecutionPlan] = planned,
) -> Copied:
    """Copy all keyed state that `epoch` moves. Raises LeaseReleased, CheckpointError, StateFileError."""
    lease = _held(checkpoint, epoch)
    done = checkpoint.precopies.copied(epoch)
    if done is not None:
        return done
    plan, commit = plan_of(checkpoint, epoch), checkpoint.read_commit(lease.batch)
    leaving = list(leaving_instances(plan, commit))
    parts: list[CopiedPart] = []
    for node, instance, table in leaving:
        part = checkpoint.precopies.part(epoch, node.name, instance)
        if part is None:
            part = _copy(checkpoint, lease, commit, node, Ownership(table, instance))
            checkpoint.precopies.part_done(epoch, part)
        parts.append(part)
        notify(f"{len(parts)} of {len(leaving)}: {part.keys:,} keys, {part.bytes:,} bytes leave {node.name} {instance}")
        _held(checkpoint, epoch)
    return checkpoint.precopies.finish(lease, parts)


def _held(checkpoint: Checkpoint, epoch: int) -> Lease:
    lease = checkpoint.precopies.lease(epoch)
    if lease is None:
        raise LeaseReleased(f"epoch {epoch} holds no lease in checkpoint {checkpoint.uri}: it runs already, or was given up")
    return lease


def _copy(checkpoint: Checkpoint, lease: Lease, commit: CommitRecord, node: Node, of: Ownership) -> CopiedPart:
    """Copy the keys that leave one instance, into a file for each new owner and portion."""
    assert isinstance(node.state, KeyedStateSchema)
    reference = commit.state[node.name][of.instance]
    moving = KeyedState(node.state)
    bytes_read = 0
    for path in reference.paths:
        for rows in checkpoint.read_fitted(path, node.state):
            bytes_read += rows.nbytes
            moving.apply(_as_delta(rows.filter(pa.array(of.strangers(routing_hashes(rows, node.state))))))
    files = [
        checkpoint.precopies.write_copy(lease, node.name, of.instance, target, portion, _as_delta(rows))
        for (target, portion), rows in _dealt(moving, of.table, lease.portions)
    ]
    return CopiedPart(node.name, of.instance, tuple(files), bytes_read)


def _dealt(moving: KeyedState, table: RoutingTable, portions: int) -> Iterator[tuple[tuple[int, int], pa.RecordBatch]]:
    """Yield ((new owner, portion), rows)."""

    def lots(hashes: np.ndarray) -> np.ndarray:
        return table.lookup(hashes) * np.int32(portions) + portions_of(hashes, len(table.buckets), portions)

    for lot, rows in moving.dealt(lots):
        yield divmod(lot, portions), rows


def _as_delta(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of a snapshot as a delta that deletes nothing; a delta unchanged."""
    if DELETED in rows.schema.names:
        return rows
    return rows.append_column(DELETED, pa.array(np.zeros(rows.num_rows, np.bool_)))


def run(uri: str, epoch: int, notify: Callable[[str], None] = print) -> Copied:
    """Run `migrate` in a process of its own; waits for the lease, as a Job may start before the driver prepares the epoch."""
    deadline = time.monotonic() + LEASE_SECONDS
    while True:
        try:
            checkpoint = Checkpoint.attach(uri)
            _held(checkpoint, epoch)
            break
        except (CheckpointError, LeaseReleased):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
    copied = migrate(checkpoint, epoch, notify)
    moved = sum(part.bytes for part in copied.parts)
    notify(f"epoch {epoch}: {moved:,} bytes copied as of batch {copied.batch}")
    return copied


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m streamtopology.jobs.rerouting.precopy_job", description=__doc__)
    parser.add_argument("--checkpoint", required=True, metavar="URI")
    parser.add_argument("--epoch", required=True, type=int, metavar="N")
    parser.add_argument("--while-stdin-is-open", action="store_true", help="end when the parent process does")
    parsed = parser.parse_args(given)
    if parsed.while_stdin_is_open:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        run(parsed.checkpoint, parsed.epoch)
    except (LeaseReleased, CheckpointError) as error:
        print(f"streamtopology migrate: {error}", file=sys.stderr)
        return 1
    return 0


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    os.nice(10)  # batches come first
    sys.exit(main())
