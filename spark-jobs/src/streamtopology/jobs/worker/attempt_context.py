"""The view of one task on its attempt: plan, DAG, checkpoint, commit, and one handle for each instance it runs.

Tasks read these from here alone, so that all tasks of an attempt see one commit and one plan, whatever was published since.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.contract.reasons import PARTIAL
from streamtopology.jobs.checkpoint import CheckpointError, CommitRecord, Copied, StateRef
from streamtopology.jobs.checkpoint.precopies import files_for
from streamtopology.jobs.checkpoint.retention import number_of
from streamtopology.jobs.connectors.sinks.registry import proof
from streamtopology.jobs.connectors.sinks.takes import Proof
from streamtopology.jobs.errors import PrecopyUnusable
from streamtopology.jobs.operators.base import Operator
from streamtopology.jobs.operators.enrich import Enrich
from streamtopology.jobs.operators.partial_merge import PartialOperator
from streamtopology.jobs.operators.partials import Gathering
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.plan.dag import Node
from streamtopology.jobs.plan.results import Compacted
from streamtopology.jobs.state import KeyedStateSchema, State, StateFileError, new_state
from streamtopology.jobs.worker.cache import Adoption, CachedState, WorkerCache
from streamtopology.routing.epochs.epoch import Epoch, Route
from streamtopology.routing.groupings.learning import Observer


class AttemptContext:
    """Opened once per task. `partition` is the task's, and beyond the attempt's partitions where Spark placed it."""

    def __init__(self, attempt: Attempt, partition: int, cache: WorkerCache) -> None:
        self.attempt = attempt
        self.partition = partition
        self.cache = cache
        self.checkpoint = cache.checkpoint(attempt.checkpoint)
        self.plan = cache.mixed_plan(attempt, attempt.epoch, attempt.switch)
        self.dag = cache.dag_of(attempt, attempt.epoch)

    @property
    def epoch(self) -> Epoch:
        """The epoch that this batch runs under, mixed with the one before as far as the switch to it is not done."""
        return self.plan.epoch

    @property
    def slot(self) -> int:
        """The executor slot of this task, -1 where Spark placed it."""
        slots = self.attempt.slot_by_partition
        return slots[self.partition] if self.partition < len(slots) else -1

    @cached_property
    def previous_epoch(self) -> Epoch:
        """The epoch that the batch before ran under."""
        assert self.attempt.previous_epoch is not None
        return self.cache.mixed_plan(self.attempt, self.attempt.previous_epoch, self.attempt.previous_switch).epoch

    @cached_property
    def commit(self) -> CommitRecord | None:
        """The commit that this attempt builds on; None before the first."""
        return None if self.attempt.previous is None else self.cache.commit(self.attempt)

    @cached_property
    def precopy(self) -> Copied:
        """The pre-copied state of this attempt's epoch. Raises PrecopyUnusable."""
        return self.cache.precopy(self.attempt)

    @property
    def adoption(self) -> Adoption | None:
        """The adoption of pre-copied state that this attempt starts with."""
        attempt = self.attempt
        return None if attempt.dry or attempt.precopied_at is None else (attempt.epoch, attempt.switch)

    def instances(self, node: Node, route: Route) -> list[InstanceContext]:
        """The instances that `route` has at this partition."""
        return [self.instance(node, number) for number in self.instances_here(route.instances)]

    def instances_here(self, instances: Iterable[int]) -> list[int]:
        return self.attempt.instances_on(self.partition, instances)

    def instance(self, node: Node, number: int) -> InstanceContext:
        return InstanceContext(self, node, number)


class InstanceContext:
    """One instance in one attempt: its state, its operator, its observer."""

    def __init__(self, task: AttemptContext, node: Node, number: int) -> None:
        self.task = task
        self.attempt = task.attempt
        self.node = node
        self.number = number
        self.adopted: Sequence[str] = ()
        """Pre-copied files that the state begins with."""
        self._key = (self.attempt.run, node.name, number)
        self._operator_key = (self.attempt.run, self.attempt.epoch, node.name, number)
        self._gatherer_key = (self.attempt.run, self.attempt.epoch, node.name + PARTIAL, number)

    @property
    def route(self) -> Route:
        return self.task.epoch.routes[self.node.name]

    def committed_state(self) -> State | None:
        """The state as of the newest commit; changes of attempts that were not committed are rolled back."""
        if self.node.state is None:
            return None
        return new_state(self.node.state, self.node.memory_bytes) if self.attempt.dry else self._cached().state

    def begin(self) -> State | None:
        """The committed state with its pre-copied deltas merged; this attempt may change it. Raises PrecopyUnusable."""
        if self.node.state is None or self.attempt.dry:
            return self.committed_state()
        cached = self._cached()
        self._adopt(cached)
        cached.pending = (self.attempt.number, self.attempt.attempt)
        return cached.state

    def deltas_since(self, batch: int) -> list[pa.RecordBatch]:
        """The committed deltas of batches after `batch`."""
        assert self.node.state is not None
        reference = self._committed_files()
        later = [path for path in (reference.deltas if reference else ()) if number_of(path) > batch]
        return [rows for path in later for rows in self.task.checkpoint.read_fitted(path, self.node.state)]

    def compacted(self) -> Compacted | None:
        """The snapshot that the driver asked for, or why there is none; None while it is being made in the background."""
        deltas = self.attempt.compactions.get((self.node.name, self.number))
        held = None if deltas is None or self.attempt.dry else self._committed_files()  # reads the commit: only if asked
        if deltas is None or held is None:
            return None
        schema, checkpoint = self.node.state, self.task.checkpoint
        assert schema is not None

        def compact(covered: StateRef) -> str:
            return checkpoint.compact(covered, schema)

        return self.task.cache.compactor.compacted(self._key, held, deltas, compact)

    def operator(self) -> Operator:
        """The operator object of the instance under the attempt's epoch; all that it keeps between batches is state."""
        operator = self.task.cache.operator(self._operator_key, self.node.make)
        operator.declare_cost(self.attempt.iterations_per_second)
        if isinstance(operator, Enrich) and (path := self.attempt.tables.get(self.node.operator)) is not None:
            operator.lookup = self.task.cache.lookup(self.attempt, path, operator.over)
        return operator

    def gathering(self) -> Gathering | None:
        """The gathering of tuples whose keys have their home elsewhere; None where there are none."""
        if not self.node.is_poured or self.node.state is None:
            return None
        operator = self.task.cache.operator(self._gatherer_key, lambda: PartialOperator(self.node.make()))
        assert isinstance(operator, PartialOperator)
        operator.declare_cost(self.attempt.iterations_per_second)
        return Gathering(operator, self.is_home)

    def is_home(self, hashes: np.ndarray) -> np.ndarray:
        """bool[n]: which of the keys (uint64[n]) belong to the instance in this batch."""
        table = self.route.table
        return np.full(len(hashes), True) if table is None else table.lookup(hashes) == self.number

    def proof(self) -> Proof:
        """The proof that the sinks of the operator can write its rows."""
        topology = self.task.plan.topology
        key = (self.attempt.run, self.attempt.epoch, self.node.name, False)
        return self.task.cache.proof(key, lambda: proof(topology.sinks_of(self.node.name), self.node.output))

    def late_proof(self, schema: pa.Schema | None) -> Proof:
        """The proof that the sink of late rows can write them; `schema` is theirs."""
        topology, key = self.task.plan.topology, (self.attempt.run, self.attempt.epoch, self.node.name, True)
        late = topology.operator(self.node.operator).late
        return self.task.cache.proof(key, lambda: proof([sink for sink in topology.sinks if sink.name == late], schema))

    def discard_operator(self) -> None:
        """Make the next pass use a new operator: one that raised may be in any condition."""
        self.task.cache.discard_operator(self._operator_key)
        self.task.cache.discard_operator(self._gatherer_key)

    def observer(self) -> Observer[Any]:
        """The instance's observer, where its choosers learn."""
        choosers_know_nothing = self.node.name not in self.attempt.knowledge
        return self.task.cache.observers.observer(self._key, self.route, restart=choosers_know_nothing)

    def _cached(self) -> CachedState:
        states, attempt = self.task.cache.states, self.attempt
        cached = states.get(self._key)
        if cached is not None:
            cached.settle(attempt.previous)
        if cached is None or cached.base != attempt.previous or cached.adopted not in (None, self.task.adoption):
            cached = states[self._key] = CachedState(self._load(), attempt.previous)
        return cached

    def _load(self) -> State:
        assert self.node.state is not None
        reference = self._committed_files()
        if reference is None:
            return new_state(self.node.state, self.node.memory_bytes)
        return self.task.checkpoint.load_state(reference, self.node.state, self.node.memory_bytes)

    def _committed_files(self) -> StateRef | None:
        """The files of the committed state; None if there is none, or only that of an operator that was removed meanwhile."""
        commit, name = self.task.commit, self.node.name
        if commit is None or name not in self.task.previous_epoch.routes:
            return None
        return commit.state.get(name, {}).get(self.number)

    def _adopt(self, cached: CachedState) -> None:
        """Merge the instance's pre-copied deltas into its committed state, once."""
        task = self.task
        if task.adoption is None or not isinstance(self.node.state, KeyedStateSchema):
            return
        portions = self.attempt.portions_moving(task.precopy.portions)
        self.adopted = list(files_for(task.precopy, self.node.name, self.number, portions))
        if not self.adopted or cached.adopted is not None:
            return
        cached.adopted = task.adoption  # before the merge: no other epoch may begin with half of the files
        try:
            task.checkpoint.apply_deltas(cached.state, self.adopted)
        except (CheckpointError, StateFileError) as error:
            raise PrecopyUnusable(str(error)) from error
