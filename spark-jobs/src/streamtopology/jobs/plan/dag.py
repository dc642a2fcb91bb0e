"""From the manifest to what runs: nodes on levels, joined by edges.

An operator whose grouping may send one key to several instances becomes two nodes, a *partial* (any instance) and a
*merge* (`fields`); every other operator is one node. A level is a Spark stage: all nodes of a level run side by side,
and what they emit reaches later levels. The DAG is a pure function of the topology and the sources' schemas, so
driver and tasks compile the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pyarrow as pa

from streamtopology.contract.reasons import PARTIAL
from streamtopology.jobs.columnar.mentioned import mentioned_columns
from streamtopology.jobs.operators import BUILTINS, load, preparing
from streamtopology.jobs.operators.base import Operator
from streamtopology.jobs.operators.partial_merge import MergeOperator, PartialOperator
from streamtopology.jobs.plan.behind_watermark import behind_watermark
from streamtopology.jobs.plan.diagnosis import diagnose, disk_refusal, split_refusal
from streamtopology.jobs.plan.meeting_keys import cast_columns, casts, meet
from streamtopology.jobs.state import StateSchema
from streamtopology.topology import ManifestError, OperatorSpec, Problem, Topology, groupings, nearest, poured


@dataclass(frozen=True)
class Edge:
    """The stream from a source or node to a node; `alias` is the consumer's name for it, `key` its key columns.

    casts: key columns that arrive in another type, in which keys of all inputs meet. columns: those that the consumer reads;
    None: all.
    """

    producer: str
    consumer: str
    alias: str
    key: tuple[str, ...]
    casts: tuple[tuple[str, pa.DataType], ...] = ()
    columns: tuple[str, ...] | None = None

    def fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of the producer as they arrive at the consumer."""
        read = batch if self.columns is None else batch.select(list(self.columns))
        return cast_columns(read, self.casts) if self.casts else read


@dataclass(frozen=True)
class Node:
    """One operator as it runs. `make()` gives a fresh, prepared operator for one instance.

    is_poured: routers may send tuples to other instances than their key's home. These gather parts of its state in the batch,
    which the home takes in with the next one. behind_seconds: how much earlier its watermark is than the topology's.
    memory_bytes: of its state, what each instance has in memory, where the rest is on disk; None: all of it is in memory.
    """

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
    make: Callable[[], Operator]
    is_poured: bool = False
    behind_seconds: float = 0.0
    memory_bytes: int | None = None

    @property
    def is_built_in(self) -> bool:
        """True for an operator of the project, which may be run on dummy rows."""
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

    @property
    def stateful(self) -> set[str]:
        """The names of the nodes that keep state."""
        return {node.name for node in self.nodes if node.state is not None}

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def at(self, level: int) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.level == level)

    def are_planned_together(self, edge: Edge) -> bool:
        """True if the edge joins two operators whose tables one planner makes together."""
        producer = next((node for node in self.nodes if node.name == edge.producer), None)
        if producer is None or _joint_planner(producer) is None:
            return False
        return _joint_planner(producer) == _joint_planner(self.node(edge.consumer))

    def may_be_joined(self, edge: Edge) -> bool:
        """True if the edge joins two operators that are planned together where rows between executors take time."""
        producer, consumer = next((node for node in self.nodes if node.name == edge.producer), None), self.node(edge.consumer)
        if producer is None or producer.parallelism != consumer.parallelism or not producer.key:
            return False
        joiner = groupings.get(producer.policy).joined_by
        if joiner is None or joiner != groupings.get(consumer.policy).joined_by:
            return False
        return set(producer.key) <= set((producer.output or pa.schema([])).names)

    def edges_from(self, producer: str) -> tuple[Edge, ...]:
        return tuple(edge for node in self.nodes for edge in node.edges if edge.producer == producer)

    def columns_read(self, producer: str) -> frozenset[str] | None:
        """The columns of a producer that its consumers read; None: all."""
        of_edges = [edge.columns for edge in self.edges_from(producer)]
        known = [frozenset(columns) for columns in of_edges if columns is not None]
        return frozenset[str]().union(*known) if len(known) == len(of_edges) else None


def _joint_planner(node: Node) -> str | None:
    """The planner that makes the node's table together with others', if one does."""
    grouping = groupings.get(node.policy)
    return grouping.planner if grouping.plans_jointly else None


def compile_dag(topology: Topology, sources: Mapping[str, pa.Schema], base_dir: Path) -> Dag:
    """Lay out `topology`.

    `sources` are the schemas the operators see, after each source's select. Raises ManifestError with every problem
    that only shows here: a class that does not load, an option or column that does not fit, a key that is not there, a
    splitting policy before state that cannot combine.
    """
    schemas: dict[str, pa.Schema] = dict(sources)
    levels = dict.fromkeys(sources, 0)
    behind = behind_watermark(topology, base_dir)
    silent: set[str] = set()
    nodes: list[Node] = []
    problems = list(behind.problems)
    pouring = poured(topology.operators)
    for operator in topology.operators:
        problems += _silent_inputs(operator, silent)
        made: list[Node] = []
        failure: list[Problem] = []
        if all(given.source in schemas for given in operator.inputs):
            try:
                made = _nodes_of(operator, schemas, levels, base_dir, all_columns=topology.on_bad_tuple == "deadLetter")
            except (ValueError, ImportError) as error:
                failure = [Problem(operator.path, f"operator {operator.name!r}: {error}")]
        if not made:
            found = diagnose(operator, _likely_inputs(operator, topology, schemas), base_dir)
            problems += found.problems or failure
            levels[operator.name] = 1 + max((levels.get(given.source, 0) for given in operator.inputs), default=0)
            if found.output is not None:
                schemas[operator.name] = found.output
        for node in made:
            levels[node.name] = node.level
            if node.output is not None:
                schemas[node.name] = node.output
            else:
                silent.add(node.name)
        nodes.extend(
            replace(
                node,
                is_poured=node.name in pouring,
                behind_seconds=behind.seconds[operator.name],
                memory_bytes=_memory_bytes(operator, node),
            )
            for node in made
        )
    dag = Dag(tuple(nodes), dict(sources))
    problems += _uncountable_pairs(topology, dag)
    if problems:
        raise ManifestError(problems)
    return dag


def _silent_inputs(operator: OperatorSpec, silent: set[str]) -> list[Problem]:
    return [
        Problem(
            f"{operator.path}.inputs[{position}]",
            f"operator {operator.name!r} reads {given.source!r}, which emits no rows; set `output` in its class",
        )
        for position, given in enumerate(operator.inputs)
        if given.source in silent
    ]


def _likely_inputs(
    operator: OperatorSpec, topology: Topology, schemas: Mapping[str, pa.Schema]
) -> Mapping[str, pa.Schema] | None:
    """The schemas of the operator's inputs by alias; of a misspelt input that of the only name like it. None: unknown."""
    names = {*(source.name for source in topology.sources), *(other.name for other in topology.operators)}
    meant: dict[str, pa.Schema] = {}
    for given in operator.inputs:
        name = given.source if given.source in names else nearest(given.source, names - {operator.name})
        if name is None or name not in schemas or (name != given.source and nearest(given.source, names - {name})):
            return None
        meant[given.alias] = schemas[name]
    return meant or None


def _uncountable_pairs(topology: Topology, dag: Dag) -> list[Problem]:
    """Problems of operators that are to be planned together and cannot be."""
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
                problems.append(Problem(f"{operator.path}.grouping.policy", sentence))
            if producer.parallelism != node.parallelism:
                sentence = (
                    f"operators {producer.name!r} and {node.name!r} are planned together by {node.policy!r} and need the same "
                    f"parallelism; found {producer.parallelism} and {node.parallelism}"
                )
                problems.append(Problem(f"{operator.path}.parallelism", sentence))
    return problems


def _nodes_of(
    operator: OperatorSpec, schemas: Mapping[str, pa.Schema], levels: Mapping[str, int], base_dir: Path, all_columns: bool
) -> list[Node]:
    """The nodes of an operator. `all_columns`: also those that it does not read are sent to it."""
    policy = operator.grouping.policy
    cls = load(operator.run, base_dir)
    key = operator.grouping.key
    keys = _keys_of(operator, schemas)
    inputs: Mapping[str, pa.Schema] = {given.alias: schemas[given.source] for given in operator.inputs}
    read = None if all_columns or not _reads_mentioned_columns(operator, cls) else _read(operator, inputs, keys)
    inputs = inputs if read is None else read
    meeting = meet(inputs, keys)

    def prepared(inputs: Mapping[str, pa.Schema]) -> tuple[Operator, pa.Schema | None]:
        running = preparing.make(cls, operator.options, base_dir)
        running.late_schema = None if operator.late is None else _late_schema(operator, cls, inputs)
        output = preparing.prepare(running, inputs, key, keys)
        preparing.check_methods(running)
        return running, output

    running, output = prepared(meeting.inputs)
    if running.state is not None:
        if meeting.clashes:
            raise ValueError(meeting.clashes[0].sentence)
        inputs = dict(meeting.inputs)
    elif meeting.inputs != inputs:  # nothing meets where nothing is kept
        running, output = prepared(inputs)

    def make() -> Operator:
        return prepared(inputs)[0]

    _refuse_disk(operator, running)
    level = 1 + max(levels[given.source] for given in operator.inputs)
    splits = running.state is not None and groupings.get(policy).splits_keys
    consumer = operator.name + PARTIAL if splits else operator.name
    edges = tuple(
        Edge(one.source, consumer, one.alias, key, casts(schemas[one.source], inputs[one.alias], key), _names(read, one.alias))
        for one, key in zip(operator.inputs, keys.values(), strict=True)
    )
    if not splits:
        whole = Node(
            name=operator.name,
            operator=operator.name,
            run=operator.run,
            policy=policy,
            parallelism=operator.parallelism,
            level=level,
            key=key,
            flush_every=1,
            edges=edges,
            inputs=inputs,
            output=output,
            state=running.state,
            make=make,
        )
        return [whole]
    if refusal := split_refusal(operator, running):
        raise ValueError(refusal)
    return _split(operator, policy, inputs, edges, output, level, make)


def _keys_of(operator: OperatorSpec, schemas: Mapping[str, pa.Schema]) -> Mapping[str, tuple[str, ...]]:
    """The key columns by input. Raises ValueError for one that is not there."""
    keys: dict[str, tuple[str, ...]] = {}
    for given in operator.inputs:
        keys[given.alias], there = given.key or operator.grouping.key, schemas[given.source].names
        if missing := [column for column in keys[given.alias] if column not in there]:
            raise ValueError(f"key column {missing[0]!r} is not in input {given.alias!r}, which has {there}")
    return keys


def _reads_mentioned_columns(operator: OperatorSpec, cls: type[Operator]) -> bool:
    """False for a class of a user's, too, which may have inherited that it does; and where a sink takes late rows."""
    return operator.run in BUILTINS and operator.late is None and cls.reads_mentioned_columns(operator.options)


def _read(
    operator: OperatorSpec, inputs: Mapping[str, pa.Schema], keys: Mapping[str, tuple[str, ...]]
) -> Mapping[str, pa.Schema]:
    """The columns by input that the operator's key and options mention."""
    texts = list(_texts(operator.options))
    return {
        alias: mentioned_columns(schema, [*texts, *(f'"{name}"' for name in keys[alias])]) for alias, schema in inputs.items()
    }


def _names(read: Mapping[str, pa.Schema] | None, alias: str) -> tuple[str, ...] | None:
    return None if read is None else tuple(read[alias].names)


def _texts(value: object) -> Iterator[str]:
    """All texts in an option's value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in cast("Mapping[object, object]", value).items():
            yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in cast("Sequence[object]", value):
            yield from _texts(part)


def _refuse_disk(operator: OperatorSpec, made: Operator) -> None:
    """Raise ValueError where state is to be on disk that cannot be."""
    if operator.state.backend == "disk" and (refusal := disk_refusal(made)):
        raise ValueError(f"state.backend is disk, {refusal}")


def _memory_bytes(operator: OperatorSpec, node: Node) -> int | None:
    """`Node.memory_bytes`: what parts gather is handed over, and stays in memory."""
    return operator.state.memory_bytes if operator.state.backend == "disk" and not node.is_partial else None


def _late_schema(operator: OperatorSpec, cls: type[Operator], inputs: Mapping[str, pa.Schema]) -> pa.Schema:
    """The rows of the sink that `late` names: the columns of all inputs; a row has NULL in those that its input lacks."""
    if not cls.leaves_out_late(operator.options):
        raise ValueError(f"late names the sink {operator.late!r}, but {operator.run!r} leaves out no row as late; remove late")
    try:
        return pa.unify_schemas(list(inputs.values()))
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(
            f"late names the sink {operator.late!r}, whose rows have the columns of all inputs, but two inputs have a column "
            f"of one name and different types ({error}); rename or cast it in a map"
        ) from error


def _split(
    operator: OperatorSpec,
    policy: str,
    inputs: Mapping[str, pa.Schema],
    edges: tuple[Edge, ...],
    output: pa.Schema | None,
    level: int,
    make: Callable[[], Operator],
) -> list[Node]:
    """The two nodes of a split edge: partials on any instance, merged under the operator's own name."""
    name, key = operator.name, operator.grouping.key

    def make_partial() -> Operator:
        return PartialOperator(make())

    def make_merge() -> Operator:
        return MergeOperator(make())

    partial, merge = make_partial(), make_merge()
    flushed = partial.prepare(inputs, key)
    if flushed is None:
        raise ValueError("a partial operator must emit what it gathered")
    merge_inputs = {name + PARTIAL: flushed}
    merge.prepare(merge_inputs, key)
    return [
        Node(
            name=name + PARTIAL,
            operator=name,
            run=operator.run,
            policy=policy,
            parallelism=operator.parallelism,
            level=level,
            key=key,
            flush_every=operator.aggregate_every,
            edges=edges,
            inputs=inputs,
            output=flushed,
            state=partial.state,
            make=make_partial,
        ),
        Node(
            name=name,
            operator=name,
            run=operator.run,
            policy="fields",
            parallelism=operator.parallelism,
            level=level + 1,
            key=key,
            flush_every=1,
            edges=(Edge(name + PARTIAL, name, name + PARTIAL, key),),
            inputs=merge_inputs,
            output=output,
            state=merge.state,
            make=make_merge,
        ),
    ]
