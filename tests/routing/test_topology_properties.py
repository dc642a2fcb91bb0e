"""Properties of manifests: every valid topology round-trips, and nothing but ManifestError is ever raised."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support.depth import deep

from streamtopology.topology import (
    BUILTINS,
    Autoscale,
    Driver,
    ExecutorClass,
    Grouping,
    Input,
    ManifestError,
    Migration,
    OperatorSpec,
    PodSettings,
    Rebalance,
    ScaledClass,
    Sink,
    SnapshotSchedule,
    Source,
    StateRoom,
    Topology,
    Traits,
    Trigger,
    Watermark,
    columns_of,
    parse,
    to_manifest,
)
from streamtopology.topology.cron import CRON_PATTERN, Cron
from streamtopology.topology.groupings import GROUPINGS
from streamtopology.topology.schema import to_ddl

EXAMPLE: Any = yaml.safe_load((Path(__file__).parents[2] / "examples" / "self-join.yaml").read_text(encoding="utf-8"))
GONE = object()

_names = st.from_regex(r"\A[a-z]([-a-z0-9]{0,8}[a-z0-9])?\Z")
_columns = st.from_regex(r"\A[A-Za-z_][A-Za-z0-9_ é]{0,8}[a-z]\Z")
_texts = st.text(min_size=1, max_size=20).map(str.strip).filter(bool)
_durations = st.integers(0, 366 * 24 * 3600 * 10**6).map(lambda microseconds: microseconds / 10**6)
_storages = st.none() | st.integers(2**26, 2**50)
_cpus = st.integers(1, 1_024_000).map(lambda millicores: millicores / 1000)
_numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
_json = st.recursive(
    st.none() | st.booleans() | _numbers | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=8), values, max_size=3),
    max_leaves=6,
)
_schedules = st.from_regex(CRON_PATTERN, fullmatch=True).filter(
    lambda text: len(text) <= 200 and not Cron.parse(text).is_of_no_day
)
_snapshots = st.builds(SnapshotSchedule, _schedules, st.just("s3://b/c"), st.none() | st.integers(1, 1000))
_options = st.dictionaries(st.text(min_size=1, max_size=8).filter(lambda name: name != "emit"), _json, max_size=2)
_keys = st.lists(_columns, min_size=2, max_size=2, unique=True).map(tuple)


@st.composite
def _sources(draw: st.DrawFn, name: str) -> Source:
    format_name = draw(st.sampled_from(["parquet", "csv", "json", "text", "kafka", "rate", "com.example.Format"]))
    columns = draw(st.lists(_columns, min_size=1, max_size=3, unique_by=str.lower))
    types = draw(st.lists(st.sampled_from(["INT", "MAP<STRING, INT>", "DECIMAL(10, 2)"]), min_size=3, max_size=3))
    ddl = ", ".join(f"`{column}` {kind}" for column, kind in zip(columns, types, strict=False))
    options = draw(st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=8), max_size=2))
    needed = {"path": "data", "kafka.bootstrap.servers": "b:9092", "subscribe": "t"}
    select = draw(st.lists(st.sampled_from(["*", "a", "a + 1 AS b", 'unnest(x) as "the word"']), max_size=3))
    watermark = Watermark(draw(_columns), draw(_durations), draw(_durations), draw(_durations))
    where = draw(st.none() | _texts)
    return Source(name, format_name, to_ddl(columns_of(ddl)), options | needed, tuple(select), where, watermark)


@st.composite
def _operators(draw: st.DrawFn, name: str, upstream: list[str]) -> OperatorSpec:
    run = draw(st.sampled_from([*BUILTINS, "package.module:Class", "own/code.py:Class"]))
    traits = BUILTINS.get(run, Traits(stateful=False, max_inputs=None))
    whole = [policy for policy, spec in GROUPINGS.items() if not spec.splits_keys]
    policy = draw(st.sampled_from(whole if traits.stateful and not traits.combinable else list(GROUPINGS)))
    keyless = not traits.stateful and not GROUPINGS[policy].needs_key
    key = draw(st.just(()) | _keys if keyless else _keys)
    count = draw(st.integers(traits.min_inputs, traits.max_inputs or traits.min_inputs + 2))
    origins = draw(st.lists(st.sampled_from(upstream), min_size=count, max_size=count))
    input_keys = st.just(()) | _keys if key else st.just(())
    inputs = tuple(Input(origin, f"in{index}", draw(input_keys)) for index, origin in enumerate(origins))
    grouping = Grouping(policy, key, {"beta": draw(st.floats(0, 9))} if policy == "mixed" else {})
    numbers = draw(st.integers(1, 1024)), draw(st.integers(1, 9))
    state = StateRoom("disk", draw(st.integers(0, 2**40))) if draw(st.booleans()) else StateRoom()
    return OperatorSpec(name, inputs, numbers[0], grouping, run, draw(_options), numbers[1], state=state)


@st.composite
def _sinks(draw: st.DrawFn, name: str, operators: list[str]) -> Sink:
    options = {"path": name, "topic": "t", "kafka.bootstrap.servers": "b:9092"}
    return Sink(name, draw(st.sampled_from(operators)), draw(st.sampled_from(["parquet", "memory", "kafka"])), options)


@st.composite
def _rebalances(draw: st.DrawFn) -> Rebalance:
    mode = draw(st.sampled_from(["Auto", "Recommend", "Off"]))
    tolerance = draw(st.floats(0, 1, exclude_min=True))
    entries, intervals = draw(st.integers(0, 10**6)), draw(st.integers(1, 1000))
    return Rebalance(mode, draw(_durations.filter(bool)), tolerance, entries, intervals)


_pods = st.builds(
    PodSettings,
    volumes=st.just(({"name": "v", "emptyDir": {}},)),
    volume_mounts=st.just(()) | st.just(({"name": "v", "mountPath": "/v"},)),
    env=st.lists(_names, max_size=2, unique=True).map(lambda names: tuple({"name": n, "value": n} for n in names)),
    affinity=st.dictionaries(_names, _json, max_size=1),
    labels=st.dictionaries(_names, st.just("") | _names, max_size=2),
    service_account_name=st.none() | _names,
    init_containers=st.just(()) | st.just(({"name": "side", "image": "i", "restartPolicy": "Always"},)),
    security_context=st.dictionaries(_names, _json, max_size=1),
    scheduler_name=st.none() | _names,
    termination_grace_seconds=st.none() | st.integers(75, 86_400),
) | st.just(PodSettings())


@st.composite
def _autoscales(draw: st.DrawFn, executors: list[ExecutorClass]) -> Autoscale | None:
    named = draw(st.none() | st.sampled_from([executor.name for executor in executors]))
    if named is None:
        return None
    least, most = sorted((draw(st.integers(1, 1024)), draw(st.integers(1, 1024))))
    by = draw(st.sampled_from(["Operator", "External", "Nobody"]))
    utilisation = draw(st.floats(0, 1, exclude_min=True))
    if draw(st.booleans()):
        others = [executor.name for executor in executors if executor.name != named]
        among = draw(st.lists(st.sampled_from(others), unique=True)) if others else []
        bounds = st.tuples(st.integers(0, 300), st.integers(1, 1024)).map(sorted)
        classes = (ScaledClass(named, least, most), *(ScaledClass(name, *draw(bounds)) for name in among))
        return Autoscale("", "Operator", 1, 1, 1024, utilisation, draw(_durations), tuple(draw(st.permutations(classes))))
    return Autoscale(named, by, draw(st.integers(0, 1024)), least, most, utilisation, draw(_durations))


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Any valid topology: up to 3 sources and 5 operators whose inputs are sources or operators before them."""
    names = draw(st.lists(_names, min_size=8, max_size=8, unique=True))
    source_names, operator_names = names[: draw(st.integers(1, 3))], names[3 : draw(st.integers(4, 8))]
    sources = [draw(_sources(name)) for name in source_names]
    operators: list[OperatorSpec] = []
    for name in operator_names:
        operators.append(draw(_operators(name, [*source_names, *(operator.name for operator in operators)])))
    sinks = [draw(_sinks(name, operator_names)) for name in draw(st.lists(_names, max_size=2, unique=True))]
    executors = [
        ExecutorClass(
            name,
            draw(st.integers(1, 300)),
            draw(_cpus),
            draw(st.integers(2**29, 2**50)),
            draw(_pods),
            cost_per_hour=draw(st.none() | st.floats(0, 1e6, exclude_min=True)),
            storage_bytes=draw(_storages),
        )
        for name in draw(st.lists(_names, min_size=1, max_size=3, unique=True))
    ]
    trigger = draw(st.builds(Trigger, _durations) | st.builds(Trigger, available_now=st.booleans()))
    trigger = replace(trigger, latency_seconds=draw(st.none() | _durations.filter(bool)))
    checkpoint = draw(st.sampled_from([None, "a/b", "file:///a", "s3://b/c"]))
    autoscale = draw(_autoscales(executors))
    if autoscale:
        executors = [replace(one, replicas=autoscale.start.get(one.name, one.replicas)) for one in executors]
    parts = (tuple(sources), tuple(operators), tuple(sinks), tuple(executors))
    topology = Topology(
        draw(_names),
        *parts,
        draw(_rebalances()),
        trigger,
        checkpoint,
        draw(st.sampled_from(["fail", "deadLetter"])),
        draw(st.none() | _names),
        draw(st.sampled_from([None, "Always", "IfNotPresent", "Never"])),
        draw(st.booleans()),
        autoscale,
        Driver(draw(_cpus), draw(st.integers(2**30, 2**50)), draw(_pods), draw(_storages)),
        Migration(draw(st.integers(0, 2**50)), storage_bytes=draw(_storages)),
        snapshots=draw(
            st.none() | st.builds(SnapshotSchedule, _schedules, st.just("s3://b/c"), st.none() | st.integers(1, 1000))
        ),
    )
    following = draw(st.booleans())
    parallelism = topology.default_parallelism
    return (
        replace(topology, operators=tuple(replace(one, parallelism=parallelism, follows_executors=True) for one in operators))
        if following
        else topology
    )


@deep(gate=20, long=60)
@given(topologies())
def test_any_topology_comes_back_from_its_manifest(topology: Topology) -> None:
    manifest = to_manifest(topology)
    assert parse(manifest) == topology
    assert parse(yaml.load(yaml.safe_dump(manifest), Loader=yaml.SafeLoader)) == topology


@deep(gate=20, long=60)
@given(topologies(), st.integers(0, 2000))
def test_replicas_of_an_autoscaler_survive_the_running_manifest(topology: Topology, replicas: int) -> None:
    running = topology.resolved({one.name: replicas for one in topology.executors})
    assert parse(to_manifest(running)) == running
    assert running.autoscale is None
    if topology.autoscale:
        bounds = {one.name: one for one in topology.autoscale.scaled}
        for executor, at_first in zip(running.executors, topology.executors, strict=True):
            kept = bounds[executor.name].within(replicas) if executor.name in bounds else at_first.replicas
            assert executor.replicas == kept


@settings(max_examples=30)
@given(topologies(), st.randoms(use_true_random=False))
def test_the_order_of_operators_in_the_manifest_means_nothing(topology: Topology, random: Any) -> None:
    manifest: Any = to_manifest(topology)
    random.shuffle(manifest["spec"]["operators"])
    shuffled = parse(manifest)
    assert {operator.name: operator for operator in shuffled.operators} == {
        operator.name: operator for operator in topology.operators
    }
    known = {source.name for source in shuffled.sources}
    for operator in shuffled.operators:
        assert {edge.source for edge in operator.inputs} <= known
        known.add(operator.name)


def _paths(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(below for step, child in children for below in _paths(child, (*path, step)))]


def _parses_or_is_refused(manifest: object) -> None:
    refused: list[ManifestError] = []
    try:
        topology = parse(manifest)
        assert parse(to_manifest(topology)) == topology
    except ManifestError as error:
        refused.append(error)
    assert all(error.problems and all(problem.message for problem in error.problems) for error in refused)


_garbage = _json | st.sampled_from([float("nan"), float("inf"), b"bytes", {3}, {1: 2}, (), object(), "1e400", "9" * 50])


@settings(max_examples=300)
@given(st.lists(st.tuples(st.sampled_from(_paths(EXAMPLE)[1:]), _garbage | st.just(GONE)), min_size=1, max_size=4))
def test_mutilated_manifests_parse_or_are_refused(mutilations: list[tuple[tuple[Any, ...], object]]) -> None:
    manifest: Any = copy.deepcopy(EXAMPLE)
    for (*parents, last), value in mutilations:
        place = manifest
        for step in parents:
            try:
                place = place[step]
            except (KeyError, IndexError, TypeError):  # an earlier mutilation took it away
                place = None
        if isinstance(place, dict) and value is GONE:
            place.pop(last, None)
        elif isinstance(place, dict) or (isinstance(place, list) and isinstance(last, int) and last < len(place)):
            place[last] = copy.copy(value)
    _parses_or_is_refused(manifest)


_sections = st.dictionaries(st.sampled_from(list(EXAMPLE["spec"])), _garbage)


@settings(max_examples=100)
@given(_garbage | st.dictionaries(st.sampled_from(list(EXAMPLE)), _garbage | _sections))
def test_garbage_is_refused(garbage: object) -> None:
    _parses_or_is_refused(garbage)
