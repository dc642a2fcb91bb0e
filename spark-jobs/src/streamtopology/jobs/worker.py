"""What a Python worker keeps between tasks: compiled plans and the state of the instances it runs.

Everything here can be lost at any time (Spark ends idle workers) and is read again from the checkpoint. State in
memory carries the version it is at; only a version that the newest commit names is ever built upon.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streamtopology.jobs.batch import Attempt, Plan
from streamtopology.jobs.checkpoint import Checkpoint, CheckpointError, CommitRecord, Copied
from streamtopology.jobs.checkpoint.migrations import files_for
from streamtopology.jobs.checkpoint.retention import number_of
from streamtopology.jobs.dag import Dag, Node
from streamtopology.jobs.learning import new_observer, what_is_learnt
from streamtopology.jobs.operators.base import Operator
from streamtopology.jobs.state import KeyedState, KeyedStateSchema, State, StateFileError, new_state
from streamtopology.routing.epoch import Route
from streamtopology.routing.groupings.knowledge import Observer
from streamtopology.routing.switching import Switch

Version = tuple[int, int]  # (batch, attempt)
Adopting = tuple[int, Switch | None]  # the epoch that moves what was copied, and how far it is switched to


@dataclass
class Held:
    """One instance's state; `base` is its committed version, `pending` the attempt whose changes lie on top.

    `adopted`: whose copies have been added to `base`, until a commit names them.
    """

    state: State
    base: Version | None
    pending: Version | None = None
    adopted: Adopting | None = None


class CopyUnusable(Exception):
    """State that was copied ahead cannot be used; that from which it was copied can."""


class Worker:
    """The memory of one worker process."""

    def __init__(self) -> None:
        self._checkpoints: dict[str, Checkpoint] = {}
        self._plans: dict[tuple[str, int], tuple[Plan, Dag]] = {}
        self._amid: dict[tuple[str, int, Switch], Plan] = {}
        self._held: dict[tuple[str, str, int], Held] = {}
        self._operators: dict[tuple[str, int, str, int], Operator] = {}
        self._commits: dict[tuple[str, int], CommitRecord] = {}
        self._copied: dict[tuple[str, int], Copied] = {}
        self._observers: dict[tuple[str, str, int], tuple[tuple[str, str], Observer[Any]]] = {}

    def checkpoint(self, attempt: Attempt) -> Checkpoint:
        if attempt.checkpoint not in self._checkpoints:
            self._checkpoints[attempt.checkpoint] = Checkpoint.attach(attempt.checkpoint)
        return self._checkpoints[attempt.checkpoint]

    def plan(self, attempt: Attempt) -> tuple[Plan, Dag]:
        """The plan that `attempt` runs, as far as it is switched to its epoch, and its DAG."""
        plan, dag = self.plan_of(attempt, attempt.epoch)
        return self._switched(attempt, plan, attempt.switch), dag

    def plan_before(self, attempt: Attempt) -> Plan:
        """The plan that the batch before ran."""
        assert attempt.previous_epoch is not None
        return self._switched(attempt, self.plan_of(attempt, attempt.previous_epoch)[0], attempt.previous_switch)

    def plan_of(self, attempt: Attempt, epoch: int) -> tuple[Plan, Dag]:
        """The plan of `epoch` and its DAG, compiled once."""
        known = (attempt.run, epoch)
        if known not in self._plans:
            plan = Plan.from_json(self.checkpoint(attempt).read_epoch(epoch))
            self._plans = {key: value for key, value in self._plans.items() if key[0] != attempt.run or key[1] > epoch - 4}
            self._plans[known] = (plan, plan.compile())
        return self._plans[known]

    def state(self, attempt: Attempt, node: Node, instance: int) -> State | None:
        """The state of `instance` as the newest commit has it, whatever was tried on top of it before."""
        if node.state is None:
            return None
        if attempt.dry:
            return new_state(node.state)
        held = self._held.get((attempt.run, node.name, instance))
        if held is not None and held.pending is not None:
            if held.pending == attempt.previous:
                held.state.commit()
                held.base, held.adopted = held.pending, None
                if isinstance(held.state, KeyedState):
                    held.state.mark_version(held.base[0])
            else:
                held.state.rollback()
            held.pending = None
        if held is None or held.base != attempt.previous or held.adopted not in (None, _adopting(attempt)):
            held = Held(self._load(attempt, node, instance), attempt.previous)
            self._held[attempt.run, node.name, instance] = held
        return held.state

    def adopt(self, attempt: Attempt, node: Node, instance: int) -> list[str]:
        """Add to the state of `instance`, as the newest commit has it, what was copied for it ahead; the files.

        Raises CopyUnusable.
        """
        if _adopting(attempt) is None or not isinstance(node.state, KeyedStateSchema):
            return []
        copied = self.copied(attempt)
        files = list(files_for(copied, node.name, instance, attempt.portions_moving(copied.portions)))
        held = self._held[attempt.run, node.name, instance]
        if files and held.adopted is None:
            held.adopted = _adopting(attempt)  # first: with half of them it is nothing that another epoch could begin with
            try:
                self.checkpoint(attempt).apply_deltas(held.state, files)
            except (CheckpointError, StateFileError) as error:
                raise CopyUnusable(str(error)) from error
        return files

    def copied(self, attempt: Attempt) -> Copied:
        """What was copied ahead for the attempt's epoch. Raises CopyUnusable."""
        known = (attempt.run, attempt.epoch)
        if known not in self._copied:
            copied = self.checkpoint(attempt).migrations.copied(attempt.epoch)
            if copied is None:
                raise CopyUnusable(f"the copy made for epoch {attempt.epoch} is gone from checkpoint {attempt.checkpoint}")
            self._copied = {known: copied}
        return self._copied[known]

    def deltas_since(self, attempt: Attempt, node: Node, instance: int, batch: int) -> list[pa.RecordBatch]:
        """The deltas of `instance` after the commit of `batch`, up to the newest commit."""
        reference = self._commit(attempt).state.get(node.name, {}).get(instance)
        after = [path for path in (reference.deltas if reference else ()) if number_of(path) > batch]
        assert node.state is not None
        return [self.checkpoint(attempt).read_fitted(path, node.state) for path in after]

    def touched(self, attempt: Attempt, node: Node, instance: int) -> None:
        """This attempt is about to change the state of `instance`."""
        if node.state is not None and not attempt.dry:
            self._held[attempt.run, node.name, instance].pending = (attempt.number, attempt.attempt)

    def operator(self, attempt: Attempt, node: Node, instance: int) -> Operator:
        """The operator object of `instance` under the attempt's epoch; all it remembers between batches is state."""
        known = (attempt.run, attempt.epoch, node.name, instance)
        if known not in self._operators:
            self._operators = {key: value for key, value in self._operators.items() if key[:2] == known[:2]}
            self._operators[known] = node.make()
        operator = self._operators[known]
        operator.declare_cost(attempt.iterations_per_second)
        return operator

    def discard_operator(self, attempt: Attempt, node: Node, instance: int) -> None:
        """An operator that raised may be in any condition: the next pass gets a new one."""
        self._operators.pop((attempt.run, attempt.epoch, node.name, instance), None)

    def observer(self, attempt: Attempt, node: Node, instance: int, route: Route) -> Observer[Any]:
        """What `instance` has learnt of its tuples and not yet told, for the choosers of `route`.

        Where the attempt's choosers know nothing the instance has nothing behind it either: one that was inactive for a
        while starts anew with all others, whatever it remembers of the time before (POSG's START).
        """
        known = (attempt.run, node.name, instance)
        begins = node.name not in attempt.knowledge
        if begins or known not in self._observers or self._observers[known][0] != what_is_learnt(route):
            self._observers[known] = what_is_learnt(route), new_observer(route, instance)
        return self._observers[known][1]

    def forget_elsewhere(self, attempt: Attempt, place: int) -> None:
        """Drop what is known of instances that now run at other places: it would only grow stale."""

        def is_here(known: tuple[str, str, int]) -> bool:
            return known[0] != attempt.run or attempt.place_of(known[2]) == place

        self._held = {known: held for known, held in self._held.items() if is_here(known)}
        self._observers = {known: observer for known, observer in self._observers.items() if is_here(known)}

    def _switched(self, attempt: Attempt, plan: Plan, switch: Switch | None) -> Plan:
        if switch is None:
            return plan
        known = (attempt.run, plan.epoch.number, switch)
        if known not in self._amid:
            before, _ = self.plan_of(attempt, switch.follows)
            self._amid = dict(itertools.islice(self._amid.items(), max(len(self._amid) - 3, 0), None))
            self._amid[known] = plan.amid(before, switch)
        return self._amid[known]

    def _load(self, attempt: Attempt, node: Node, instance: int) -> State:
        assert node.state is not None
        if attempt.previous is None:
            return new_state(node.state)
        reference = self._commit(attempt).state.get(node.name, {}).get(instance)
        if reference is None:
            return new_state(node.state)
        return self.checkpoint(attempt).load_state(reference, node.state)

    def _commit(self, attempt: Attempt) -> CommitRecord:
        assert attempt.previous is not None
        known = (attempt.run, attempt.previous[0])
        if known not in self._commits:
            self._commits = {known: self.checkpoint(attempt).read_commit(attempt.previous[0])}
        return self._commits[known]


def _adopting(attempt: Attempt) -> Adopting | None:
    """Whose copies belong to the state that this attempt starts from."""
    return None if attempt.dry or attempt.copied_at is None else (attempt.epoch, attempt.switch)


THIS_WORKER = Worker()
