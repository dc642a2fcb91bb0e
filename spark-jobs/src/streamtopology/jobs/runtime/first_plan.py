"""The plan that a run starts with.

A new checkpoint has no measurements: instances are placed by the CPU limits of their executors, the first guess of their
capacity. An old checkpoint continues with its newest epoch, adapted to a manifest that changed meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from streamtopology.contract.reasons import PARTIAL, EpochCause, EpochReason
from streamtopology.jobs.checkpoint import Checkpoint, CommitRecord
from streamtopology.jobs.driver.commit import closed_until
from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.plan.dag import Dag, compile_dag
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.plan.initial_routes import first_routes, measured_routes, with_instances
from streamtopology.jobs.runtime.carried_positions import refuse_other_sources, returns
from streamtopology.jobs.runtime.preflight.sink_columns import refuse_unwritable_columns
from streamtopology.jobs.runtime.raised_lateness import forgotten_until, notices_of_lateness
from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.routing.epochs.placement import NOWHERE, Placement
from streamtopology.routing.epochs.rescaling import most_instances, rescaled_shares, slot_names
from streamtopology.topology import Level, Topology, difference


def first_plan(
    topology: Topology,
    schemas: Mapping[str, pa.Schema],
    base_dir: Path,
    checkpoint: Checkpoint,
    notify: Callable[[str], None],
) -> ExecutionPlan:
    """Return the plan of the newest commit if the manifest is unchanged, else a new epoch that builds on it.

    `notify` gets a sentence for each operator whose state begins or is forgotten, and each source that comes back. Raises
    TopologyFailed if the manifest cannot continue from the checkpoint, ManifestError if a sink cannot write its rows.
    """
    dag = compile_dag(topology, schemas, base_dir)
    refuse_unwritable_columns(topology, dag, base_dir)
    last = checkpoint.last_commit()
    names = slot_names(topology)
    instances = most_instances(topology, len(names))
    if last is None:
        number = 1 + max(checkpoint.epochs(), default=0)
        placement = Placement.first(names, instances)
        routes = first_routes(dag, topology, {}, placement, len(names))
        return ExecutionPlan(topology, Epoch(number, routes, (), EpochReason(EpochCause.FIRST), placement), schemas, base_dir)
    before = ExecutionPlan.from_json(checkpoint.read_epoch(last.epoch))
    change = difference(before.topology, topology)
    forgotten = forgotten_state(last, dag)
    refuse_forgetting(forgotten, topology, checkpoint.uri)
    refuse_other_sources(before.topology, topology, last)
    late_until = forgotten_until(before, topology, base_dir, closed_until(last, checkpoint.batch_records(last.batch)))
    for notice in (
        *notices(forgotten, before, dag, last.batch + 1),
        *returns(before.topology, topology, last),
        *notices_of_lateness(before, late_until),
    ):
        notify(notice)
    newest = max(checkpoint.epochs())
    planned = ExecutionPlan.from_json(checkpoint.read_epoch(newest)).placement
    placed = replace(before.placement, slots=_numbered(before.placement.slots, planned.slots))
    placement = placed.rescaled(names, instances)
    same = change.level == Level.IGNORE and dict(before.sources) == dict(schemas) and placed == placement
    same = same and before.base_dir == base_dir  # the manifest may have moved, with the files of its operators
    same = same and before.topology.migration == topology.migration  # by which plans move state
    if same and before.epoch.number == newest:
        return before
    holding = {node: held for node, held in _partials_holding(last).items() if node.removesuffix(PARTIAL) not in forgotten}
    if holding:  # their instances stay until they have flushed; the router sees to that
        placement = placed.rescaled(names, max(instances, sum(home != NOWHERE for home in placed.slot_by_instance)))
    routes = first_routes(dag, topology, measured_routes(before), placement, len(names))
    for partial, keeping in holding.items():
        if partial not in routes:
            raise TopologyFailed(
                f"operator {partial.removesuffix(PARTIAL)!r} was split over instances, which hold tuples back "
                "(aggregateEvery); a policy that keeps a key together would lose them. Start with the former policy and "
                "apply the change while it runs"
            )
        routes[partial] = with_instances(routes[partial], keeping)
    shares = rescaled_shares(before.epoch.source_shares, placed, placement)
    reason = EpochReason(EpochCause.RESTARTED, changes=change.sentences)
    epoch = Epoch(newest + 1, routes, shares, reason, placement)
    return ExecutionPlan(topology, epoch, schemas, base_dir, late_until)


def _numbered(committed: tuple[str, ...], newest: tuple[str, ...]) -> tuple[str, ...]:
    """Return the slots by their number, with those that the newest epoch has added after that of the newest commit.

    A driver that stood still while another one took over may write an epoch that does not know the other's slots. No batch
    is committed under it; its numbers do not count.
    """
    return newest if newest[: len(committed)] == committed else committed


def _partials_holding(last: CommitRecord) -> dict[str, set[int]]:
    """Return, by partial node, the instances that hold tuples back."""
    holding = {
        node: {instance for instance, left in instances.items() if left.keys}
        for node, instances in last.state.items()
        if node.endswith(PARTIAL)
    }
    return {node: instances for node, instances in holding.items() if instances}


def forgotten_state(last: CommitRecord, dag: Dag) -> dict[str, int]:
    """Return, by operator, the keys in state of `last` that no operator of `dag` keeps."""
    keeping = {node.operator for node in dag.nodes if node.state is not None}
    keys: Counter[str] = Counter()
    for node, instances in last.state.items():
        operator = node.removesuffix(PARTIAL)
        if operator not in keeping:
            keys[operator] += sum(held.keys for held in instances.values())
    return {operator: count for operator, count in sorted(keys.items()) if count}


def refuse_forgetting(forgotten: Mapping[str, int], topology: Topology, checkpoint: str) -> None:
    """Raise TopologyFailed unless the manifest says that state may be forgotten."""
    if not forgotten or topology.on_remove == "drop":
        return
    operator, keys = next(iter(forgotten.items()))
    is_there = operator in {one.name for one in topology.operators}
    raise TopologyFailed(
        f"operator {operator!r} {'keeps no state any more' if is_there else 'is no longer in the manifest'}, and checkpoint "
        f"{checkpoint} has its state ({_keys(keys)}). State belongs to an operator's name: put the operator back under this "
        "name, or set spec.onRemove: drop to forget the state for good"
    )


def notices(forgotten: Mapping[str, int], before: ExecutionPlan, dag: Dag, batch: int) -> Iterator[str]:
    """Return a sentence for each operator whose state is forgotten, or begins, with `batch`."""
    for operator, keys in forgotten.items():
        yield f"operator {operator!r}: its state ({_keys(keys)}) is forgotten with batch {batch}, as onRemove: drop says"
    known = {operator.name for operator in before.topology.operators}
    for operator in sorted({node.operator for node in dag.nodes if node.state is not None} - known):
        yield f"operator {operator!r} was added: it begins without state, with the rows from batch {batch} on"


def _keys(count: int) -> str:
    return "1 key" if count == 1 else f"{count:,} keys"
