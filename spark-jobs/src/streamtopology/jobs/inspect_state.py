"""`streamtopology state get`: a key's state and owner, read from the checkpoint; the topology may run or not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from streamtopology.jobs.batch import Plan
from streamtopology.jobs.checkpoint import Checkpoint, CheckpointError, CommitRecord
from streamtopology.jobs.dag import Dag, Node
from streamtopology.jobs.failures import TopologyFailed
from streamtopology.jobs.keys import KeyColumns
from streamtopology.jobs.runner import checkpoint_uri
from streamtopology.jobs.state import KeyedStateSchema
from streamtopology.routing.topology import load


def describe_key(manifest: Path, operator: str | None, key: Sequence[str], work_dir: Path) -> str:
    """The state of `key` (one text per key column) as of the newest commit, with the instance that owns it."""
    topology = load(manifest)
    checkpoint = Checkpoint.attach(checkpoint_uri(topology, work_dir))
    commit = checkpoint.last_commit()
    if commit is None:
        raise TopologyFailed(f"topology {topology.name!r} has not committed a batch yet: there is no state to show")
    plan = plan_as_of(checkpoint, commit)
    node = _node(plan.compile(), operator)
    wanted = _key_batch(node, key)
    table = plan.epoch.routes[node.name].table
    keys = KeyColumns.from_arrow(wanted, node.key)
    owner = int(table.lookup(keys.hashes)[0]) if table is not None else None
    held = node_state(checkpoint, commit, node)
    rows = held.filter(_equal(held, wanted)).to_pylist() if held is not None else []
    where = "any instance" if owner is None else f"instance {owner}"
    head = f"operator {node.operator!r}, key {', '.join(key)}: {where}, epoch {commit.epoch}, batch {commit.batch}"
    if not rows:
        return f"{head}\n  no state"
    return "\n".join([head, *(f"  {name}: {_shown(value)}" for row in rows for name, value in row.items())])


def plan_as_of(checkpoint: Checkpoint, commit: CommitRecord) -> Plan:
    """What the batch of `commit` ran, as far as it was switched to its epoch."""
    before, plan = (Plan.from_json(checkpoint.read_epoch(epoch)) for epoch in (commit.epochs[0], commit.epoch))
    return plan.amid(before, commit.switch)


def node_state(checkpoint: Checkpoint, commit: CommitRecord, node: Node) -> pa.Table | None:
    """All keys of a node with their state, over all instances; None when nothing was kept yet."""
    assert node.state is not None
    parts: list[pa.RecordBatch] = []
    for reference in commit.state.get(node.name, {}).values():
        snapshot = checkpoint.load_state(reference, node.state).snapshot()
        if snapshot.num_rows:
            parts.append(snapshot)
    return pa.Table.from_batches(parts) if parts else None


def _node(dag: Dag, operator: str | None) -> Node:
    keyed = [node for node in dag.nodes if isinstance(node.state, KeyedStateSchema) and not node.is_partial]
    if operator is not None:
        keyed = [node for node in keyed if node.operator == operator]
    if len(keyed) != 1:
        names = ", ".join(node.operator for node in dag.nodes if isinstance(node.state, KeyedStateSchema))
        raise CheckpointError(f"name the operator with --operator: operators with keyed state are {names or 'none'}")
    return keyed[0]


def _key_batch(node: Node, key: Sequence[str]) -> pa.RecordBatch:
    """One row of the key's columns, the texts read as their types."""
    if len(key) != len(node.key):
        raise CheckpointError(f"operator {node.operator!r} has the key {', '.join(node.key)}: give {len(node.key)} values")
    schema = next(iter(node.inputs.values()))
    arrays = [
        pa.array([None if text == "NULL" else text]).cast(schema.field(name).type)
        for name, text in zip(node.key, key, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(node.key))


def _equal(held: pa.Table, wanted: pa.RecordBatch) -> pa.Array:
    """bool[n]: which rows have the wanted key, NULL equal to NULL."""
    keys = KeyColumns.from_arrow(held.combine_chunks().to_batches()[0], wanted.schema.names)
    one = KeyColumns.from_arrow(wanted, wanted.schema.names)
    return pa.array(keys.hashes == np.uint64(one.hashes[0]))


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"
