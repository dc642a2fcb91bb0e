"""Keeping the checkpoint small, beside the batches: long chains of deltas become snapshots, unnamed files go.

Both read or delete only files that no batch at work can need, so nothing waits for them; a snapshot takes effect with
the next commit that names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from streamtopology.jobs.checkpoint import Checkpoint, CommitRecord, StateRef
from streamtopology.jobs.dag import Dag

MOST_DELTAS = 16
COMMITS_PER_SWEEP = 10

_Snapshots = dict[tuple[str, int], tuple[str, StateRef]]


class Upkeep:
    """One background thread. Its errors reach the driver at the next `adopt`."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="upkeep")
        self._compacting: Future[_Snapshots] | None = None
        self._sweeping: Future[list[str]] | None = None

    def after(self, commit: CommitRecord, dag: Dag) -> None:
        """Begin what `commit` calls for, unless the last round is still at work."""
        self._checkpoint.migrations.release_up_to(commit.epochs[0])
        if self._compacting is None:
            long = {
                (node.name, instance): reference
                for node in dag.nodes
                for instance, reference in commit.state.get(node.name, {}).items()
                if len(reference.deltas) > MOST_DELTAS
            }
            # A hand-over after a copy needs every delta since then as a file of its own.
            if long and not self._checkpoint.migrations.leases():
                self._compacting = self._thread.submit(self._compact, long, dag)
        if commit.batch % COMMITS_PER_SWEEP == 0 and (self._sweeping is None or self._sweeping.done()):
            if self._sweeping is not None:
                self._sweeping.result()
            self._sweeping = self._thread.submit(self._checkpoint.collect_garbage)

    def adopt(self, state: Mapping[str, Mapping[int, StateRef]]) -> dict[str, dict[int, StateRef]]:
        """`state` with the snapshots that are ready in place of the files they cover."""
        adopted = {node: dict(instances) for node, instances in state.items()}
        if self._compacting is not None and self._compacting.done():
            for (node, instance), (snapshot, covered) in self._compacting.result().items():
                reference = adopted.get(node, {}).get(instance)
                if reference is not None and reference.continues(covered):  # else the instance was drained meanwhile
                    adopted[node][instance] = reference.compacted(snapshot, covered)
            self._compacting = None
        return adopted

    def close(self) -> None:
        self._thread.shutdown(wait=True)

    def _compact(self, references: Mapping[tuple[str, int], StateRef], dag: Dag) -> _Snapshots:
        snapshots: _Snapshots = {}
        for (name, instance), reference in references.items():
            schema = dag.node(name).state
            assert schema is not None
            snapshots[name, instance] = (self._checkpoint.compact(name, instance, reference, schema), reference)
        return snapshots
