"""Checks of a manifest as a whole: names, the graph, policies before state, watermarks, what formats need."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from streamtopology.topology import other_words
from streamtopology.topology.groupings import BUILT_IN, GROUPINGS, KEYLESS_POLICY, GroupingError, find
from streamtopology.topology.limits import (
    LEAST_DRIVER_MEMORY,
    LEAST_EXECUTOR_MEMORY,
    LEAST_STORAGE,
    LONGEST_STATEFUL_SET_NAME,
    LONGEST_TOPOLOGY_NAME,
)
from streamtopology.topology.pods import DRIVER_POD, EXECUTOR_POD, pod_problems
from streamtopology.topology.problems import Problem, one_of, without_consequences
from streamtopology.topology.reading import TOPOLOGY_NAME_EXPECTED
from streamtopology.topology.shell_paths import shell_path_problems
from streamtopology.topology.spark_conf import spark_conf_problems
from streamtopology.topology.traits import BUILTINS, Traits, windowed
from streamtopology.topology.values import (
    DESCRIPTOR_FILE_FORMATS,
    ICEBERG_NEEDS,
    SINK_NEEDS,
    WITH_SCHEMA,
    OperatorSpec,
    Source,
    Topology,
)

_NAME = r'(?:[A-Za-z_]\w*|"(?:[^"]|"")+")'
_NAMED_EXPRESSION = re.compile(rf"\*.*|{_NAME}|.*\sAS\s+{_NAME}", re.DOTALL | re.IGNORECASE)


NO_CHECKPOINT = "a pod's own storage is lost with it: name storage that the driver's and all executors' pods share"
EXECUTOR_TOO_SMALL = "an executor needs at least 512Mi to start its JVM"
STORAGE_TOO_SMALL = "a pod needs at least 64Mi of its node's disk for its log and the files of its processes"
DRIVER_TOO_SMALL = "the driver needs at least 1Gi for its JVM and Python"


def problems_in_pods(topology: Topology) -> Iterator[Problem]:
    """Find what is wrong with a valid topology only if it is to run in pods."""
    if topology.checkpoint is None:
        yield Problem("spec.checkpoint", NO_CHECKPOINT)


def check(topology: Topology, problems: list[Problem]) -> Topology:
    """Add what is wrong with a topology that was read with these problems; return it with operators in flow order.

    A problem that only follows from one of reading (a key that could not be read is missing, too) is left out.
    """
    order, cycles = _flow(topology.operators)
    ordered = replace(topology, operators=tuple(topology.operators[index] for index in order))
    found = [
        *_duplicates(topology),
        *(problem for source_check in enumerate(topology.sources) for problem in _source_problems(*source_check)),
        *_real_time_problems(topology),
        *_unknown_inputs(topology),
        *cycles,
        *_edge_problems(topology.operators),
        *_policy_problems(topology.operators),
        *(problem for operator in topology.operators for problem in _builtin_problems(ordered, operator)),
        *_sink_problems(topology),
        *_late_problems(topology),
        *_executor_problems(topology),
        *_autoscale_problems(topology),
        *_name_problems(topology),
        *_driver_problems(topology),
        *_storage_problems(topology),
        *shell_path_problems(topology),
        *spark_conf_problems(topology.spark_conf),
    ]
    problems.extend(without_consequences(found, problems))
    return ordered


def _duplicates(topology: Topology) -> Iterator[Problem]:
    sources = [(f"spec.sources[{index}]", source.name) for index, source in enumerate(topology.sources)]
    operators = [(operator.path, operator.name) for operator in topology.operators]
    sinks = [(f"spec.sinks[{index}]", sink.name) for index, sink in enumerate(topology.sinks)]
    executors = [(f"spec.executors[{index}]", executor.name) for index, executor in enumerate(topology.executors)]
    for what, named in (("sources and operators", sources + operators), ("sinks", sinks), ("executor classes", executors)):
        first: dict[str, str] = {}
        for path, name in named:
            if name and name in first:
                message = f"found {name!r} again, {first[name]} has it; {what} need different names"
                yield Problem(f"{path}.name", message)
            first.setdefault(name, path)


def _source_problems(index: int, source: Source) -> Iterator[Problem]:
    path = f"spec.sources[{index}]"
    if source.format in DESCRIPTOR_FILE_FORMATS and "path" not in source.options:
        yield Problem(f"{path}.options.path", f"is missing, expected the folder or pattern of {source.format} files")
    if source.format in WITH_SCHEMA and source.schema is None:
        yield Problem(f"{path}.schema", "is missing, expected Spark DDL such as `tailnum STRING, arr_delay DOUBLE`")
    if source.format == "iceberg":
        yield from _missing_options(path, source.options, ICEBERG_NEEDS, "a table of iceberg")
    if source.format == "kafka":
        yield from _missing_options(path, source.options, ("kafka.bootstrap.servers",), "a kafka source")
        if not {"subscribe", "subscribePattern"} & source.options.keys():
            yield Problem(f"{path}.options.subscribe", "is missing, a kafka source needs it or subscribePattern")
    for position, expression in enumerate(source.select):
        if expression and not _NAMED_EXPRESSION.fullmatch(expression.strip()):
            message = f"found {expression!r}, expected a column or `expression AS name`"
            yield Problem(f"{path}.select[{position}]", message)


def _real_time_problems(topology: Topology) -> Iterator[Problem]:
    by_spark = [source for source in topology.sources if not source.reads_descriptors]
    if topology.trigger.real_time and by_spark:
        given = by_spark[0]
        yield Problem(
            "spec.trigger.realTime",
            f"source {given.name!r} has format {given.format!r}, which Spark reads, and in real time its executors have no "
            "room for Spark's tasks; leave realTime out, or read files, tables or Kafka",
        )


def _missing_options(path: str, options: Mapping[str, str], needed: Iterable[str], what: str) -> Iterator[Problem]:
    for name in needed:
        if name not in options:
            yield Problem(f"{path}.options.{name}", f"is missing, {what} needs it")


def _unknown_inputs(topology: Topology) -> Iterator[Problem]:
    operators = [operator.name for operator in topology.operators]
    names = [source.name for source in topology.sources] + operators
    # An item whose name could not be read may well be the one that is meant.
    for operator in topology.operators if all(names) else ():
        others = [name for name in names if name != operator.name]
        for position, edge in enumerate(operator.inputs):
            if edge.source and edge.source not in names:
                yield Problem(f"{operator.path}.inputs[{position}]", f"unknown input: {one_of(edge.source, others)}")
    between = "it is a source, and a sink takes the rows of an operator: put one between, as run: filter with where: 'true'"
    sources = {source.name: between for source in topology.sources}
    for index, sink in enumerate(topology.sinks if all(operators) else ()):
        if sink.input and operators and sink.input not in operators:
            message = f"unknown operator: {one_of(sink.input, operators, others=sources)}"
            yield Problem(f"spec.sinks[{index}].input", message)


def _flow(operators: tuple[OperatorSpec, ...]) -> tuple[list[int], list[Problem]]:
    """Indices of the operators in an order in which rows flow, as near to the given one as can be, and the cycles."""
    index_of = {operator.name: index for index, operator in reversed(list(enumerate(operators)))}
    upstream = [
        {index_of[edge.source] for edge in operator.inputs if edge.source in index_of and edge.source != operator.name}
        for operator in operators
    ]
    readers: list[list[int]] = [[] for _ in operators]
    for reader, origins in enumerate(upstream):
        for origin in origins:
            readers[origin].append(reader)
    waiting = {index: len(origins) for index, origins in enumerate(upstream)}
    ready = [index for index, count in waiting.items() if count == 0]
    order: list[int] = []
    problems: list[Problem] = []
    while waiting:
        if not ready:
            cycle = _a_cycle(waiting, upstream)
            names = " -> ".join(operators[index].name for index in (*cycle, cycle[0]))
            problems.append(Problem(f"{operators[cycle[0]].path}.inputs", f"the operators form a cycle: {names}"))
            ready = [cycle[0]]
        index = heapq.heappop(ready)
        order.append(index)
        del waiting[index]
        for reader in readers[index]:
            if reader in waiting:
                waiting[reader] -= 1
                if waiting[reader] == 0:
                    heapq.heappush(ready, reader)
    return order, problems


def _a_cycle(waiting: Mapping[int, int], upstream: list[set[int]]) -> list[int]:
    """A cycle among operators that all wait for another of them: along the flow, from its first in the manifest."""
    walked = [min(waiting)]
    while True:
        origin = min(index for index in upstream[walked[-1]] if index in waiting)
        if origin in walked:
            cycle = walked[walked.index(origin) :][::-1]
            start = cycle.index(min(cycle))
            return cycle[start:] + cycle[:start]
        walked.append(origin)


def _edge_problems(operators: tuple[OperatorSpec, ...]) -> Iterator[Problem]:
    named = [operator.name for operator in operators]
    for operator in operators:
        aliases: set[str] = set()
        for position, edge in enumerate(operator.inputs):
            path = f"{operator.path}.inputs[{position}]"
            if edge.source and edge.source == operator.name and named.count(operator.name) == 1:
                yield Problem(path, f"operator {operator.name!r} reads from itself; rows cannot flow back")
            if edge.alias and edge.alias in aliases:
                yield Problem(path, f"found the alias {edge.alias!r} again; distinguish the inputs by `as`")
            aliases.add(edge.alias)
            if edge.key and len(edge.key) != len(operator.grouping.key):
                message = f"found {len(edge.key)} columns, grouping.key has {len(operator.grouping.key)}: one for each"
                yield Problem(f"{path}.key", message)


def _policy_problems(operators: tuple[OperatorSpec, ...]) -> Iterator[Problem]:
    for operator in operators:
        grouping, path = operator.grouping, f"{operator.path}.grouping"
        try:
            spec = find(grouping.policy)
        except GroupingError as error:
            yield Problem(f"{path}.policy", str(error))
            continue
        if spec is None:
            yield Problem(f"{path}.policy", one_of(grouping.policy, GROUPINGS, "installed", other_words.POLICIES))
            continue
        if spec.needs_key and not grouping.key:
            yield Problem(f"{path}.key", f"is missing, expected columns: the policy {grouping.policy!r} routes by key")
        for name, message in spec.option_problems(grouping.options).items():
            yield Problem(f"{path}.options.{name}", message)


def _builtin_problems(topology: Topology, operator: OperatorSpec) -> Iterator[Problem]:
    if operator.run in BUILTINS:
        yield from _traits_problems(topology, operator, BUILTINS[operator.run])


def _traits_problems(topology: Topology, operator: OperatorSpec, traits: Traits) -> Iterator[Problem]:
    yield from _input_count_problems(operator, traits)
    yield from _state_problems(operator, traits)
    yield from _watermark_problems(topology, operator)


def _input_count_problems(operator: OperatorSpec, traits: Traits) -> Iterator[Problem]:
    count = len(operator.inputs)
    most = traits.max_inputs
    if count and (count < traits.min_inputs or (most is not None and count > most)):
        allowed = f"{traits.min_inputs} or more" if most is None else f"{traits.min_inputs} to {most}"
        allowed = str(most) if traits.min_inputs == most else allowed
        yield Problem(f"{operator.path}.inputs", f"found {count} inputs, {operator.run!r} takes {allowed}")


def _state_problems(operator: OperatorSpec, traits: Traits) -> Iterator[Problem]:
    spec = GROUPINGS.get(operator.grouping.policy)
    if spec is None or not traits.stateful:
        return
    if not spec.needs_key and not operator.grouping.key:
        message = f"is missing, expected columns: {operator.run!r} keeps state per key"
        yield Problem(f"{operator.path}.grouping.key", message)
        if operator.grouping.policy == KEYLESS_POLICY:  # nobody has named it
            return
    passes_tuples = operator.options.get("emit") == "tuples"
    if spec.splits_keys and (passes_tuples or not traits.combinable):
        whole = ", ".join(name for name, other in BUILT_IN.items() if not other.splits_keys)
        why = "with emit: tuples, which cannot wait for partial results" if passes_tuples else "whose state cannot be combined"
        message = (
            f"found {operator.grouping.policy!r}, which sends one key to several instances, before {operator.run!r}, "
            f"{why}; allowed: {whole}"
        )
        yield Problem(f"{operator.path}.grouping.policy", message)


def _watermark_problems(topology: Topology, operator: OperatorSpec) -> Iterator[Problem]:
    if not windowed(operator):
        return
    reaching = topology.sources_of(operator.name)
    for index, source in enumerate(topology.sources):
        if source in reaching and source.watermark is None:
            message = f"is missing, expected column and delay: {operator.name!r} closes windows by this source's time"
            yield Problem(f"spec.sources[{index}].watermark", message)


def _sink_problems(topology: Topology) -> Iterator[Problem]:
    written: dict[str, str] = {}
    for index, sink in enumerate(topology.sinks):
        path = f"spec.sinks[{index}]"
        needs = SINK_NEEDS.get(sink.format, ())
        yield from _missing_options(path, sink.options, needs, f"format {sink.format}")
        if "path" in needs:
            folder = sink.options.get("path", "")
            if folder and folder in written:
                yield Problem(f"{path}.options.path", f"found {folder!r} again, {written[folder]} writes there already")
            written.setdefault(folder, path)


def _late_problems(topology: Topology) -> Iterator[Problem]:
    """Problems of operators that name a sink for their late rows."""
    for operator in topology.operators:
        if operator.late is None:
            continue
        path = f"{operator.path}.late"
        readers = [sink.name for sink in topology.sinks if sink.input == operator.name]
        if operator.late not in readers:
            message = f"found {operator.late!r}, expected a sink whose input is {operator.name!r}"
            yield Problem(path, f"{message}; allowed: {', '.join(readers) or 'nothing'}")
        if operator.run in BUILTINS and not windowed(operator):
            those = [f"{name} with {other.windowed_with}".removesuffix(" with ") for name, other in _windowed_builtins()]
            message = f"found {operator.late!r}, but {operator.run!r} leaves out no row as late; of the built-ins"
            yield Problem(path, f"{message} {', '.join(those[:-1])} and {those[-1]} do: remove it")


def _windowed_builtins() -> Iterator[tuple[str, Traits]]:
    return ((name, traits) for name, traits in BUILTINS.items() if traits.windowed)


def _executor_problems(topology: Topology) -> Iterator[Problem]:
    if topology.executors and topology.replicas == 0 and topology.autoscale is None:
        yield Problem("spec.executors", "all classes together have 0 replicas, a topology needs at least one executor")
    for index, executor in enumerate(topology.executors):
        path = f"spec.executors[{index}]"
        if executor.memory_bytes < LEAST_EXECUTOR_MEMORY:
            message = f"found {executor.memory_bytes} bytes, {EXECUTOR_TOO_SMALL}"
            yield Problem(f"{path}.memory", message)
        yield from pod_problems(f"{path}.pod", executor.pod, EXECUTOR_POD)


def _autoscale_problems(topology: Topology) -> Iterator[Problem]:
    autoscale = topology.autoscale
    if autoscale is None:
        return
    classes = [executor.name for executor in topology.executors]
    for index, scaled in enumerate(autoscale.scaled):
        path = f"spec.autoscale.classes[{index}].name" if autoscale.classes else "spec.autoscale.class"
        if scaled.name not in classes and all(classes):
            yield Problem(path, f"unknown executor class: {one_of(scaled.name, classes)}")
        if any(scaled.name == other.name for other in autoscale.scaled[:index]):
            yield Problem(path, f"found {scaled.name!r} again")


def _name_problems(topology: Topology) -> Iterator[Problem]:
    name = topology.name
    if len(name) > LONGEST_TOPOLOGY_NAME or name[:1].isdigit():
        yield Problem("metadata.name", f"found {name!r}, expected {TOPOLOGY_NAME_EXPECTED}")
        return
    for index, executor in enumerate(topology.executors):
        together = f"{name}-{executor.name}"
        if len(together) > LONGEST_STATEFUL_SET_NAME:
            message = (
                f"found {together!r} for its pods, expected at most {LONGEST_STATEFUL_SET_NAME} characters: shorten a name"
            )
            yield Problem(f"spec.executors[{index}].name", message)


def _driver_problems(topology: Topology) -> Iterator[Problem]:
    if topology.driver.memory_bytes < LEAST_DRIVER_MEMORY:
        message = f"found {topology.driver.memory_bytes} bytes, {DRIVER_TOO_SMALL}"
        yield Problem("spec.driver.memory", message)
    yield from pod_problems("spec.driver.pod", topology.driver.pod, DRIVER_POD)
    names = topology.image_pull_secrets
    for index, name in enumerate(names):
        if name and name in names[:index]:
            yield Problem(f"spec.imagePullSecrets[{index}].name", f"found {name!r} again")


def _storage_problems(topology: Topology) -> Iterator[Problem]:
    executors = [(f"spec.executors[{index}]", one.storage_bytes) for index, one in enumerate(topology.executors)]
    others = [("spec.driver", topology.driver.storage_bytes), ("spec.migration.resources", topology.migration.storage_bytes)]
    for path, storage in (*executors, *others):
        if storage is not None and storage < LEAST_STORAGE:
            yield Problem(f"{path}.storage", f"found {storage} bytes, {STORAGE_TOO_SMALL}")
