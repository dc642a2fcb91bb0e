"""The beginning of a checkpoint: a copy of another one, or nothing, as the manifest's `restore` says."""

from __future__ import annotations

from collections.abc import Callable

from streamtopology.jobs.checkpoint import Checkpoint, Store, open_store
from streamtopology.jobs.checkpoint.copying import copy_checkpoint
from streamtopology.jobs.checkpoint.location import resolved
from streamtopology.jobs.checkpoint.retention import HEADER
from streamtopology.jobs.errors import TopologyFailed, WrongUse
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.state import StateError
from streamtopology.topology import EMPTY, Topology

# The plan of a run that continues from a checkpoint. Raises TopologyFailed if the manifest cannot continue from it.
PlanOn = Callable[[Checkpoint], ExecutionPlan]


def begun_checkpoint(topology: Topology, uri: str, former: str, plan_on: PlanOn, notify: Callable[[str], None]) -> Checkpoint:
    """Open the topology's checkpoint at `uri`; one without a committed batch begins as `topology.restore` says.

    `former`: the checkpoint in which the topology has committed batches before, if that is known; else empty. Raises WrongUse
    if a topology that had another checkpoint would begin with nothing unasked, TopologyFailed if the state to restore does not
    fit, CheckpointError.
    """
    store, restore = open_store(uri), topology.restore
    if _has_commit(store):
        return Checkpoint.of(store, topology.name)
    if restore is None:
        _refuse_change(uri, former)
    elif restore.origin != EMPTY:
        source = Checkpoint.attach(resolved(restore.origin))
        try:
            refuse_unfit(source, plan_on(source))
        except StateError as unfit:
            raise TopologyFailed(f"spec.restore: the state in {source.uri} does not fit this manifest: {unfit}") from unfit
        notify(f"checkpoint {uri} begins as a copy of {source.uri}, which is being made")
        made = copy_checkpoint(source, store, topology.name, restore.mode)
        notify(f"checkpoint {uri} is a copy ({restore.mode}) of {source.uri} as of batch {made.batch}: {made.bytes:,} bytes")
    return Checkpoint.of(store, topology.name)


def _has_commit(store: Store) -> bool:
    return store.exists(HEADER) and bool(Checkpoint.attached(store).commits())


def _refuse_change(uri: str, former: str) -> None:
    if former and resolved(former) != uri:
        raise WrongUse(
            f"spec.checkpoint has changed from {former} to {uri}, which is empty: the topology would start over. Put the "
            f"former one back; or say with spec.restore.from what it begins with: {former} for a copy, {EMPTY} for nothing"
        )


def refuse_unfit(source: Checkpoint, plan: ExecutionPlan) -> None:
    """Read the beginning of a state file of each node, which shows whether the state fits. Raises StateFileError."""
    last = source.last_commit()
    if last is None:
        return
    for node in plan.compile().nodes:
        paths = [path for reference in last.state.get(node.name, {}).values() for path in reference.paths]
        if node.state is not None and paths:
            next(source.read_fitted(paths[-1], node.state), None)
