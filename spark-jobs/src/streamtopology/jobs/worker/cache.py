"""The memory of a worker process between its tasks: compiled plans, operators, and the state of the instances it runs.

Reading state from the checkpoint for each batch would cost more than most batches. But a worker can be killed at any time,
and may still hold what a lost attempt did. So all of it can be lost and read again, and cached state carries the version
it is at: an attempt builds only on the version that the newest commit names.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from streamtopology.jobs.checkpoint import Checkpoint, CommitRecord, Copied
from streamtopology.jobs.connectors.sinks.takes import Proof
from streamtopology.jobs.errors import PrecopyUnusable
from streamtopology.jobs.operators.base import Operator
from streamtopology.jobs.operators.lookup import Lookup
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.plan.dag import Dag
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.state import KeyedState, State
from streamtopology.jobs.worker.compactor import Background, Compactor, InstanceKey, at_once, in_thread
from streamtopology.jobs.worker.observers import Observers
from streamtopology.routing.epochs.switch_progress import GradualSwitch

Version = tuple[int, int]  # (batch, attempt)
Adoption = tuple[int, GradualSwitch | None]  # the epoch that moves the pre-copied state, and how much of it has moved
OperatorKey = tuple[str, int, str, int]  # (run, epoch, node, instance)
ProofKey = tuple[str, int, str, bool]  # (run, epoch, node, of its late rows)

_PLANS_PER_RUN = 4
_MIXED_PLANS = 4


def lineage_of(run: str) -> str:
    """What the runs on one checkpoint, one after the other, have in common."""
    return run.partition("/")[0]


@dataclass
class CachedState:
    """One instance's state; `base` is its committed version, `pending` the attempt whose changes lie on top.

    `adopted`: the adoption that has merged pre-copied deltas into it, until a commit names them.
    """

    state: State
    base: Version | None
    pending: Version | None = None
    adopted: Adoption | None = None

    def settle(self, committed: Version | None) -> None:
        """Keep the pending changes if `committed` is their version, else roll them back."""
        if self.pending is None:
            return
        if self.pending == committed:
            self.state.commit()
            self.base, self.adopted = self.pending, None
            if isinstance(self.state, KeyedState):
                self.state.mark_version(self.base[0])
        else:
            self.state.rollback()
        self.pending = None


class WorkerCache:
    """The memory of one worker process. Tasks use it through their `AttemptContext`. `background`: as for `Compactor`."""

    def __init__(self, background: Background = at_once) -> None:
        self.compactor = Compactor(background)
        self.states: dict[InstanceKey, CachedState] = {}
        self.observers = Observers()
        self._checkpoints: dict[str, Checkpoint] = {}
        self._plans: dict[tuple[str, int], ExecutionPlan] = {}
        self._dags: dict[tuple[str, int], Dag] = {}
        self._mixed_plans: dict[tuple[str, int, GradualSwitch], ExecutionPlan] = {}
        self._operators: dict[OperatorKey, Operator] = {}
        self._proofs: dict[ProofKey, Proof] = {}
        self._commits: dict[tuple[str, int], CommitRecord] = {}
        self._precopies: dict[tuple[str, int], Copied] = {}
        self._lookups: dict[tuple[str, int, str], Lookup] = {}

    def checkpoint(self, uri: str) -> Checkpoint:
        if uri not in self._checkpoints:
            self._checkpoints[uri] = Checkpoint.attach(uri)
        return self._checkpoints[uri]

    def plan_of(self, attempt: Attempt, epoch: int) -> ExecutionPlan:
        """The plan of `epoch`, read once."""
        key = (attempt.run, epoch)
        if key not in self._plans:
            oldest = epoch - _PLANS_PER_RUN
            self._plans = {key: value for key, value in self._plans.items() if key[0] != attempt.run or key[1] > oldest}
            self._plans[key] = ExecutionPlan.from_json(self.checkpoint(attempt.checkpoint).read_epoch(epoch))
        return self._plans[key]

    def dag_of(self, attempt: Attempt, epoch: int) -> Dag:
        """The DAG of `epoch`, compiled once. That of a previous epoch may be gone: its operators' code, too, can be removed."""
        key = (attempt.run, epoch)
        if key not in self._dags:
            dag = self.plan_of(attempt, epoch).compile()
            self._dags = {key: value for key, value in self._dags.items() if key in self._plans}
            self._dags[key] = dag
        return self._dags[key]

    def mixed_plan(self, attempt: Attempt, epoch: int, switch: GradualSwitch | None) -> ExecutionPlan:
        """The plan of `epoch` as far as batches are switched to it."""
        plan = self.plan_of(attempt, epoch)
        if switch is None:
            return plan
        key = (attempt.run, plan.epoch.number, switch)
        if key not in self._mixed_plans:
            before = self.plan_of(attempt, switch.follows)
            evicted = max(len(self._mixed_plans) - _MIXED_PLANS + 1, 0)
            self._mixed_plans = dict(itertools.islice(self._mixed_plans.items(), evicted, None))
            self._mixed_plans[key] = plan.mixed_with(before, switch)
        return self._mixed_plans[key]

    def commit(self, attempt: Attempt) -> CommitRecord:
        """The commit that `attempt` builds on."""
        assert attempt.previous is not None
        key = (attempt.run, attempt.previous[0])
        if key not in self._commits:
            self._commits = {key: self.checkpoint(attempt.checkpoint).read_commit(attempt.previous[0])}
        return self._commits[key]

    def precopy(self, attempt: Attempt) -> Copied:
        """The pre-copied state of the attempt's epoch. Raises PrecopyUnusable."""
        key = (attempt.run, attempt.epoch)
        if key not in self._precopies:
            copied = self.checkpoint(attempt.checkpoint).precopies.copied(attempt.epoch)
            if copied is None:
                raise PrecopyUnusable(
                    f"epoch {attempt.epoch}: its pre-copied state is gone from checkpoint {attempt.checkpoint}"
                )
            self._precopies = {key: copied}
        return self._precopies[key]

    def operator(self, key: OperatorKey, make: Callable[[], Operator]) -> Operator:
        """The operator object of an instance under an epoch. Those of the run's other epochs are dropped."""
        if key not in self._operators:
            self._operators = {known: operator for known, operator in self._operators.items() if known[:2] == key[:2]}
            self._operators[key] = make()
        return self._operators[key]

    def lookup(self, attempt: Attempt, path: str, over: Callable[[pa.Table], Lookup]) -> Lookup:
        """The lookup in this copy of a table, whose rows are read and put into an index once. Others than the attempt's go."""
        key = (attempt.run, attempt.epoch, path)
        if key not in self._lookups:
            current = {(attempt.run, attempt.epoch, path) for path in attempt.tables.values()}
            self._lookups = {known: lookup for known, lookup in self._lookups.items() if known in current}
            self._lookups[key] = over(self.checkpoint(attempt.checkpoint).read_table(path))
        return self._lookups[key]

    def proof(self, key: ProofKey, make: Callable[[], Proof]) -> Proof:
        """The proof of an operator's rows for its sinks. Those of the run's other epochs are dropped."""
        if key not in self._proofs:
            self._proofs = {known: proof for known, proof in self._proofs.items() if known[:2] == key[:2]}
            self._proofs[key] = make()
        return self._proofs[key]

    def discard_operator(self, key: OperatorKey) -> None:
        self._operators.pop(key, None)

    def inherit(self, run: str) -> None:
        """Keep for `run` the state that earlier runs on the same checkpoint have left; all else of theirs goes.

        Its version says whether the newest commit is that of the state: no two attempts at a batch have one number. What was
        merged and is in no commit is not kept.
        """
        lineage = lineage_of(run)

        def is_theirs(other: str) -> bool:
            return other != run and lineage_of(other) == lineage

        kept = {key: cached for key, cached in self.states.items() if not is_theirs(key[0])}
        inherited = {
            (run, *key[1:]): cached
            for key, cached in self.states.items()
            if is_theirs(key[0]) and cached.adopted is None and (run, *key[1:]) not in kept
        }
        self.states = kept | inherited
        self._plans = {key: plan for key, plan in self._plans.items() if not is_theirs(key[0])}
        self.observers.retain(lambda key: not is_theirs(key[0]))
        self.compactor.retain(lambda key: not is_theirs(key[0]))

    def evict_moved(self, attempt: Attempt, partition: int) -> None:
        """Drop the state and observers of instances that now run at other partitions: here they only grow stale."""

        def is_here(key: InstanceKey) -> bool:
            return key[0] != attempt.run or attempt.partition_of(key[2]) == partition

        self.states = {key: cached for key, cached in self.states.items() if is_here(key)}
        self.observers.retain(is_here)
        self.compactor.retain(is_here)


PROCESS_CACHE = WorkerCache(in_thread)
