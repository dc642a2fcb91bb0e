"""State in a checkpoint that no operator of a changed manifest keeps: it is forgotten, or the run is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from streamtopology.contract.reasons import PARTIAL
from streamtopology.jobs.checkpoint import CommitRecord
from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.plan.dag import Dag
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.topology import Topology


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
