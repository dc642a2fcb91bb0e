"""The plan and the state as of a commit, read from the checkpoint."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamtopology.jobs.checkpoint import Checkpoint, CommitRecord
from streamtopology.jobs.operators.partials import take_in
from streamtopology.jobs.plan.dag import Node
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.state import KeyedState, KeyedStateSchema


def plan_as_of(checkpoint: Checkpoint, commit: CommitRecord) -> ExecutionPlan:
    """The plan of the commit's batch, mixed as far as the batch was switched to its epoch."""
    before, plan = (ExecutionPlan.from_json(checkpoint.read_epoch(epoch)) for epoch in (commit.epochs[0], commit.epoch))
    return plan.mixed_with(before, commit.switch)


def keyed_nodes(plan: ExecutionPlan) -> list[Node]:
    """The nodes whose state of keys can be looked up; partial results are not."""
    return [node for node in plan.compile().nodes if isinstance(node.state, KeyedStateSchema) and not node.is_partial]


def node_state(checkpoint: Checkpoint, commit: CommitRecord, node: Node) -> pa.Table | None:
    """The state of all keys of a node, over all instances and with the parts on their way there; None if there is none yet."""
    assert node.state is not None
    parts: list[pa.RecordBatch] = []
    for reference in commit.state.get(node.name, {}).values():
        snapshot = checkpoint.load_state(reference, node.state).snapshot()
        if snapshot.num_rows:
            parts.append(snapshot)
    if partials := commit.partials.get(node.name):
        assert isinstance(node.state, KeyedStateSchema)
        whole = KeyedState(node.state)
        for part in parts:
            whole.insert(part)
        take_in(partials, node.make(), whole, lambda hashes: np.full(len(hashes), True))
        parts = [whole.snapshot()]
    return pa.Table.from_batches(parts) if parts else None
