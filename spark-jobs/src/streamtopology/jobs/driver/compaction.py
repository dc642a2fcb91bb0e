"""Compaction of the checkpoint: long chains of deltas become snapshots, and a sweep deletes files that no kept commit names.

A batch writes only what it changed, so that its cost follows the changes and not the state. Without compaction a restart
would read every delta since the first batch.

The executor that holds the state makes the snapshot, in the background. The driver asks for it with each attempt until it
is there, and the next commit names it. No running batch needs the files that are read or deleted, so no batch waits for a
compaction or fails with it. Now and then the sweep also gives the driver's idle memory back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass

from streamtopology.jobs.checkpoint import Checkpoint, CommitRecord, StateRef
from streamtopology.jobs.malloc import give_back_idle_memory
from streamtopology.jobs.plan.dag import Dag
from streamtopology.jobs.plan.results import Compacted

MOST_DELTAS = 16
COMMITS_PER_SWEEP, SWEEPS_PER_TRIM = 10, 10
# Times `most_deltas` from which on a chain is reported as too long, and again when it has doubled.
BEHIND = 8

# Batches until an instance's failed compaction is tried again: doubled with each failure in a row.
FIRST_PAUSE, LONGEST_PAUSE = 4, 256

_Instance = tuple[str, int]


@dataclass(frozen=True)
class _PutOff:
    """A compaction that has failed: it is tried again with batch `until`; the next pause is twice `pause`."""

    until: int
    pause: int


class Compaction:
    """Has chains of more than `most_deltas` deltas compacted, and sweeps in a background thread.

    A failure is passed to `notify`, and tried again some batches later; so is a chain that grows faster than it is compacted.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        most_deltas: int = MOST_DELTAS,
        commits_per_sweep: int = COMMITS_PER_SWEEP,
        thread: Executor | None = None,
        notify: Callable[[str], None] = print,
    ) -> None:
        self._checkpoint = checkpoint
        self._most_deltas = most_deltas
        self._commits_per_sweep = commits_per_sweep
        self._thread = thread or ThreadPoolExecutor(1, thread_name_prefix="sweep")
        self._notify = notify
        self._asked: dict[_Instance, int] = {}
        self._sweeping: Future[None] | None = None
        self._sweeps = 0
        self._put_off: dict[_Instance, _PutOff] = {}
        self._reported_deltas = 0
        self._newest = -1

    @property
    def asked(self) -> Mapping[_Instance, int]:
        """The instances whose state is to be compacted: how many of its deltas, from the first, a snapshot shall cover."""
        return dict(self._asked)

    def after(self, commit: CommitRecord, dag: Dag) -> None:
        """Ask for what `commit` calls for, and sweep now and then."""
        self._newest = commit.batch
        self._checkpoint.precopies.release_up_to(commit.epochs[0])
        self._ask(commit, dag)
        self._report_if_behind(commit)
        if commit.batch % self._commits_per_sweep == 0 and (self._sweeping is None or self._sweeping.done()):
            self._report_failed_sweep()
            self._sweeping = self._thread.submit(self._sweep)

    def adopt(
        self, state: Mapping[str, Mapping[int, StateRef]], compacted: Mapping[_Instance, Compacted]
    ) -> dict[str, dict[int, StateRef]]:
        """`state` with the snapshots that are ready in place of the files they cover."""
        adopted = {node: dict(instances) for node, instances in state.items()}
        for (node, instance), done in compacted.items():
            self._asked.pop((node, instance), None)
            if done.snapshot is None:
                self._retry_later(node, instance, done.failure or "")
                continue
            self._put_off.pop((node, instance), None)
            reference = adopted.get(node, {}).get(instance)
            if reference is not None and reference.continues(done.covered):  # else the instance was drained meanwhile
                adopted[node][instance] = reference.compacted(done.snapshot, done.covered)
        return adopted

    def _ask(self, commit: CommitRecord, dag: Dag) -> None:
        chains = {
            (node.name, instance): len(reference.deltas)
            for node in dag.nodes
            for instance, reference in commit.state.get(node.name, {}).items()
        }
        self._asked = {instance: deltas for instance, deltas in self._asked.items() if deltas <= chains.get(instance, 0)}
        long = {
            instance: deltas
            for instance, deltas in chains.items()
            if deltas > self._most_deltas and instance not in self._asked and self._is_due(instance)
        }
        # A hand-over after a pre-copy needs every later delta as a file of its own.
        if long and not self._checkpoint.precopies.leases():
            self._asked.update(long)

    def _sweep(self) -> None:
        self._checkpoint.collect_garbage()
        self._sweeps += 1
        if self._sweeps % SWEEPS_PER_TRIM == 0:
            give_back_idle_memory()

    def close(self) -> None:
        self._thread.shutdown(wait=True)

    # --- what went wrong ---

    def _is_due(self, instance: _Instance) -> bool:
        put_off = self._put_off.get(instance)
        return put_off is None or self._newest >= put_off.until

    def _retry_later(self, node: str, instance: int, failure: str) -> None:
        before = self._put_off.get((node, instance))
        pause = FIRST_PAUSE if before is None else min(2 * before.pause, LONGEST_PAUSE)
        self._put_off[node, instance] = _PutOff(self._newest + pause, pause)
        self._notify(
            f"state of {node} {instance} could not be compacted: {failure}; trying again after {pause} batches. No row is "
            "lost; until then the checkpoint grows, and a restart takes longer"
        )

    def _report_if_behind(self, commit: CommitRecord) -> None:
        chains = [(len(ref.deltas), node, i) for node, refs in commit.state.items() for i, ref in refs.items()]
        longest, node, instance = max(chains, default=(0, "", 0))
        if longest <= BEHIND * self._most_deltas:
            self._reported_deltas = 0
        elif longest >= 2 * self._reported_deltas:
            self._reported_deltas = longest
            self._notify(
                f"compaction is behind: state of {node} {instance} is in {longest} deltas, which a restart reads one by one. "
                "Either its last tries have failed, or a pre-copy holds it up, or state changes faster than it is written: "
                "then raise trigger.interval, give executors more cpu, or use faster storage for the checkpoint"
            )

    def _report_failed_sweep(self) -> None:
        failure = None if self._sweeping is None else self._sweeping.exception()
        if failure is not None:
            self._notify(f"files that nobody needs could not be deleted: {failure}; trying again")
