"""From the manifest to what runs: nodes on levels, joined by edges.

An operator whose grouping may send one key to several instances becomes two nodes, a *partial* (any instance) and a
*merge* (`fields`); every other operator is one node. A level is a Spark stage: all nodes of a level run side by side,
and what they emit reaches later levels. The DAG is a pure function of the topology and the sources' schemas, so
driver and tasks compile the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from streamtopology.jobs.operators import BUILTINS, load
from streamtopology.jobs.operators.base import Operator as RunningOperator
from streamtopology.jobs.operators.base import StateSchema
from streamtopology.jobs.operators.split import MergeOperator, PartialOperator
from streamtopology.routing import groupings
from streamtopology.routing.planners import JOINT_PLANNERS
from streamtopology.routing.topology import ManifestError, Operator, Problem, Topology

PARTIAL = ".partial"


@dataclass(frozen=True)
class Edge:
    """What flows from a source or node to a node; `alias` is the consumer's name for it, `key` its key columns."""

    producer: str
    consumer: str
    alias: str
    key: tuple[str, ...]


@dataclass(frozen=True)
class Node:
    """One operator as it runs. `make()` gives a fresh, prepared operator for one instance."""

    name: str
    operator: str
    run: str
    policy: str
    parallelism: int
    level: int
    key: tuple[str, ...]
    flush_every: int
    edges: tuple[Edge, ...]
    inputs: Mapping[str, pa.Schema]
    output: pa.Schema | None
    state: StateSchema | None
    make: Callable[[], RunningOperator]

    @property
    def is_built_in(self) -> bool:
        """Whether the operator is one of ours, which may be run on made-up rows."""
        return self.run in BUILTINS

    @property
    def is_partial(self) -> bool:
        return self.name.endswith(PARTIAL)


@dataclass(frozen=True)
class Dag:
    """All nodes in topological order; producers are source names and node names."""

    nodes: tuple[Node, ...]
    sources: Mapping[str, pa.Schema]

    @property
    def depth(self) -> int:
        return max(node.level for node in self.nodes)

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def at(self, level: int) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.level == level)

    def are_planned_together(self, edge: Edge) -> bool:
        """Whether an edge joins two operators whose tables one planner makes together."""
        producer = next((node for node in self.nodes if node.name == edge.producer), None)
        if producer is None or _joint_planner(producer) is None:
            return False
        return _joint_planner(producer) == _joint_planner(self.node(edge.consumer))

    def edges_from(self, producer: str) -> tuple[Edge, ...]:
        return tuple(edge for node in self.nodes for edge in node.edges if edge.producer == producer)


def _joint_planner(node: Node) -> str | None:
    """The planner that makes the node's table together with others', if one does."""
    planner = groupings.get(node.policy).planner
    return planner if planner in JOINT_PLANNERS else None


def compile_dag(topology: Topology, sources: Mapping[str, pa.Schema], base_dir: Path) -> Dag:
    """Lay out `topology`.

    `sources` are the schemas the operators see, after each source's select. Raises ManifestError with every problem
    that only shows here: a class that does not load, an option or column that does not fit, a key that is not there, a
    splitting policy before state that cannot combine.
    """
    schemas: dict[str, pa.Schema] = dict(sources)
    levels = dict.fromkeys(sources, 0)
    windows_before: dict[str, str] = {}  # operator -> the window-aggregate whose rows it passes on
    nodes: list[Node] = []
    problems: list[Problem] = []
    for operator in topology.operators:
        if any(given.source not in schemas for given in operator.inputs):
            continue  # what it reads has a problem of its own, already named
        try:
            made = _nodes_of(operator, schemas, levels, base_dir)
            _note_windows(operator, load(operator.run, base_dir), windows_before)
        except (ValueError, ImportError) as error:
            problems.append(Problem(operator.path, f"operator {operator.name!r}: {error}"))
            continue
        for node in made:
            levels[node.name] = node.level
            if node.output is not None:
                schemas[node.name] = node.output
        nodes.extend(made)
    dag = Dag(tuple(nodes), dict(sources))
    problems += _uncountable_pairs(topology, dag)
    if problems:
        raise ManifestError(problems)
    return dag


def _uncountable_pairs(topology: Topology, dag: Dag) -> list[Problem]:
    """Why operators that are to be planned together cannot be."""
    problems: list[Problem] = []
    for node in dag.nodes:
        for edge in (edge for edge in node.edges if dag.are_planned_together(edge)):
            producer = dag.node(edge.producer)
            operator = topology.operator(producer.operator)
            lost = [column for column in producer.key if column not in (producer.output or pa.schema([])).names]
            if lost:
                sentence = (
                    f"operator {producer.name!r}: it does not pass its key column {lost[0]!r} on, so that policy "
                    f"{producer.policy!r} cannot count which keys of {node.name!r} follow it; emit it, or use mixed"
                )
                problems.append(Problem(operator.path, sentence))
            if producer.parallelism != node.parallelism:
                sentence = (
                    f"operators {producer.name!r} and {node.name!r} are planned together by {node.policy!r} and need the same "
                    f"parallelism; found {producer.parallelism} and {node.parallelism}"
                )
                problems.append(Problem(operator.path, sentence))
    return problems


def _note_windows(operator: Operator, cls: type[RunningOperator], windows_before: dict[str, str]) -> None:
    """Refuse windows over windows: one watermark serves all levels, and all that a closed window emits is behind it."""
    before = next((windows_before[given.source] for given in operator.inputs if given.source in windows_before), None)
    if before is not None and cls.drops_late_rows:
        raise ValueError(
            f"it would leave out every row as late, because {before!r} emits a window only when the watermark has passed "
            f"it. Read the input of {before!r} instead, or write its results to a sink that another topology reads"
        )
    if before is not None or cls.emits_behind_watermark:
        windows_before[operator.name] = before or operator.name


def _nodes_of(operator: Operator, schemas: Mapping[str, pa.Schema], levels: Mapping[str, int], base_dir: Path) -> list[Node]:
    policy = operator.grouping.policy
    cls = load(operator.run, base_dir)
    key = operator.grouping.key
    inputs = {given.alias: schemas[given.source] for given in operator.inputs}
    keys = {given.alias: given.key or key for given in operator.inputs}
    for alias, columns in keys.items():
        missing = [column for column in columns if column not in inputs[alias].names]
        if missing:
            raise ValueError(f"key column {missing[0]!r} is not in input {alias!r}, which has {inputs[alias].names}")

    def prepared() -> tuple[RunningOperator, pa.Schema | None]:
        running = cls(**operator.options)
        running.base_dir = base_dir
        return running, running.prepare(inputs, key)

    def make() -> RunningOperator:
        return prepared()[0]

    running, output = prepared()
    level = 1 + max(levels[given.source] for given in operator.inputs)
    splits = running.state is not None and groupings.get(policy).splits_keys
    if not splits:
        edges = tuple(Edge(i.source, operator.name, i.alias, keys[i.alias]) for i in operator.inputs)
        whole = Node(
            operator.name, operator.name, operator.run, policy, operator.parallelism, level, key, 1, edges, inputs, output,
            running.state, make,
        )  # fmt: skip
        return [whole]
    if not running.combinable:
        raise ValueError(
            f"policy {policy!r} may send one key to several instances, but the state of {operator.run!r} cannot be "
            "combined; use a policy that keeps a key together, such as fields or mixed"
        )
    return _split(operator, policy, inputs, keys, output, level, make)


def _split(
    operator: Operator,
    policy: str,
    inputs: Mapping[str, pa.Schema],
    keys: Mapping[str, tuple[str, ...]],
    output: pa.Schema | None,
    level: int,
    make: Callable[[], RunningOperator],
) -> list[Node]:
    """The two nodes of a split edge: partials on any instance, merged under the operator's own name."""
    name, key = operator.name, operator.grouping.key

    def make_partial() -> RunningOperator:
        return PartialOperator(make())

    def make_merge() -> RunningOperator:
        return MergeOperator(make())

    partial, merge = make_partial(), make_merge()
    flushed = partial.prepare(inputs, key)
    if flushed is None:
        raise ValueError("a partial operator must emit what it gathered")
    merge_inputs = {name + PARTIAL: flushed}
    merge.prepare(merge_inputs, key)
    edges = tuple(Edge(i.source, name + PARTIAL, i.alias, keys[i.alias]) for i in operator.inputs)
    return [
        Node(name + PARTIAL, name, operator.run, policy, operator.parallelism, level, key, operator.aggregate_every, edges,
             inputs, flushed, partial.state, make_partial),
        Node(name, name, operator.run, "fields", operator.parallelism, level + 1, key, 1,
             (Edge(name + PARTIAL, name, name + PARTIAL, key),), merge_inputs, output, merge.state, make_merge),
    ]  # fmt: skip
