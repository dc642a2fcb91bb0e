"""Estimates what a plan moves: the instances that state leaves, and about how many bytes.

It moves nothing. The estimate decides whether a switch is gradual and whether its state is pre-copied; `worker.handover`
moves the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import UnionType

import numpy as np

from streamtopology.jobs.checkpoint import CommitRecord
from streamtopology.jobs.plan.dag import Node
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.state import KeyedStateSchema, StateSchema
from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.routing.table.table import RoutingTable


def moving_state_bytes(
    before: ExecutionPlan, plan: ExecutionPlan, commit: CommitRecord, kinds: type | UnionType = StateSchema
) -> int:
    """Estimate the bytes of state of these kinds that `plan` moves, as of `commit`."""
    owned = _owned(plan, kinds) & before.epoch.routes.keys()
    return moving_bytes(plan.epoch, commit, sorted(owned), before.epoch)


def _owned(plan: ExecutionPlan, kinds: type | UnionType) -> set[str]:
    """Return the nodes whose state belongs to the owner of its key."""
    return {node.name for node in plan.compile().nodes if isinstance(node.state, kinds) and not node.is_partial}


def leaving_instances(plan: ExecutionPlan, commit: CommitRecord) -> Sequence[tuple[Node, int, RoutingTable]]:
    """Return the instances whose state may leave them under `plan`, each with its node's new table."""
    return [
        (node, instance, table)
        for node in plan.compile().nodes
        if isinstance(node.state, KeyedStateSchema)
        and not node.is_partial
        and (table := plan.epoch.routes[node.name].table) is not None
        for instance in commit.state.get(node.name, {})
    ]


def moving_bytes(epoch: Epoch, commit: CommitRecord, node_names: Sequence[str], before: Epoch) -> int:
    """Estimate the bytes of state that `epoch` moves, by the share of each instance's buckets that it gives to others."""
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
