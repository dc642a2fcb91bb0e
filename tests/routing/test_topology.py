"""Reading a manifest: what is valid becomes typed values, every mistake has its path and its sentence."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.routing.topology import (
    ExecutorClass,
    Grouping,
    Input,
    ManifestError,
    Operator,
    Problem,
    Rebalance,
    Sink,
    Source,
    Traits,
    Trigger,
    Watermark,
    check_traits,
    columns_of,
    parse,
)

GONE = object()

VALID = yaml.safe_load("""
apiVersion: streamtopology.dev/v1alpha1
kind: StreamTopology
metadata: {name: trips}
spec:
  sources:
    - name: rides
      format: csv
      schema: id BIGINT, city STRING, fare DOUBLE, at TIMESTAMP
      options: {path: data/rides, header: true, maxFilesPerTrigger: 1}
      select: [id, city, "fare * 2 AS doubled", at]
      where: fare > 0
      watermark: {column: at, delay: 10s}
  operators:
    - name: clean
      inputs: [rides]
      run: filter
      with: {where: city IS NOT NULL}
    - name: per-city
      inputs: [{from: clean, as: rows}]
      parallelism: 6
      grouping: {policy: mixed, key: city}
      run: quantiles
      with: {column: doubled, min: 0, max: 500, emit: tuples}
    - name: pairs
      inputs:
        - {from: clean, as: left}
        - {from: rides, as: right, key: [id]}
      grouping: {policy: fields, key: id}
      run: window-join
      with: {time: at, size: 10m}
  sinks:
    - {name: out, input: per-city, format: parquet, options: {path: build/out}}
  executors:
    - {name: large, replicas: 3, cpu: 450m, memory: 1Gi}
    - {name: small, cpu: 0.135}
  rebalance: {interval: 5s, tolerance: 0.1}
  checkpoint: build/checkpoint
""")


def changed(*changes: tuple[str, object]) -> dict[str, Any]:
    """VALID with the values at these paths replaced, added, or taken away (GONE)."""
    manifest = copy.deepcopy(VALID)
    for path, value in changes:
        *parents, last = [int(step) if step.isdigit() else step for step in re.findall(r"[^.\[\]]+", path)]
        place: Any = manifest
        for step in parents:
            place = place[step] if isinstance(place, list) else place.setdefault(step, {})
        if value is GONE:
            del place[last]
        else:
            place[last] = value
    return manifest


def problems_of(manifest: object) -> list[Problem]:
    with pytest.raises(ManifestError) as raised:
        parse(manifest)
    return list(raised.value.problems)


def test_a_manifest_becomes_typed_values() -> None:
    topology = parse(VALID)
    assert topology.sources == (
        Source(
            "rides", "csv", "id BIGINT, city STRING, fare DOUBLE, at TIMESTAMP",
            {"path": "data/rides", "header": "true", "maxFilesPerTrigger": "1"},
            ("id", "city", "fare * 2 AS doubled", "at"), "fare > 0", Watermark("at", 10.0, 30.0),
        ),
    )  # fmt: skip
    assert topology.operator("clean") == Operator(
        "clean", (Input("rides", "rides"),), 4, Grouping("shuffle"), "filter", {"where": "city IS NOT NULL"}
    )
    assert [topology.operator("pairs").key_of(alias) for alias in ("left", "right")] == [("id",), ("id",)]
    assert topology.operator("per-city").key_of("rows") == ("city",)
    assert topology.sinks == (Sink("out", "per-city", "parquet", {"path": "build/out"}),)
    assert topology.executors == (ExecutorClass("large", 3, 0.45, 2**30), ExecutorClass("small", 1, 0.135, 2**30))
    assert topology.rebalance == Rebalance("Auto", 5.0, 0.1, 3000, 1)
    assert topology.trigger == Trigger(0.0, False)
    assert (topology.checkpoint, topology.on_bad_tuple, topology.replicas) == ("build/checkpoint", "fail", 4)


def test_a_topology_finds_its_parts_by_name() -> None:
    topology = parse(VALID)
    assert [operator.name for operator in topology.readers_of("clean")] == ["per-city", "pairs"]
    assert topology.sources_of("per-city") == topology.sources
    assert topology.sinks_of("per-city") == topology.sinks
    assert topology.sinks_of("clean") == ()
    with pytest.raises(KeyError, match="no operator 'per-town'; there are clean, per-city, pairs"):
        topology.operator("per-town")


def test_an_operator_without_parallelism_follows_the_executors_of_a_class_that_is_scaled() -> None:
    topology = parse(
        changed(("spec.executors[0].replicas", GONE), ("spec.autoscale", {"class": "large", "replicas": 3, "maxReplicas": 5}))
    )
    assert topology.executor_class("large").replicas == 3
    assert [operator.parallelism for operator in topology.operators] == [4, 6, 4]  # per-city names its own
    five = topology.resolved(9)
    assert (five.executor_class("large").replicas, five.autoscale) == (5, None)
    assert [operator.parallelism for operator in five.operators] == [6, 6, 6]
    assert topology.resolved(0).executor_class("large").replicas == 1
    assert topology.resolved() == parse(VALID)
    assert parse(VALID).resolved(7) == parse(VALID)


def test_operators_come_in_the_order_of_the_flow_and_remember_their_place() -> None:
    operators = VALID["spec"]["operators"]
    topology = parse(changed(("spec.operators", list(reversed(operators)))))
    assert [operator.name for operator in topology.operators] == ["clean", "pairs", "per-city"]
    assert [operator.path for operator in topology.operators] == [f"spec.operators[{i}]" for i in (2, 0, 1)]


# Each mistake: its path and its sentence ------------------------------------------------------------------------------

MISTAKES: list[tuple[str, object, str, str]] = [
    # (path to change, new value, path of the problem, sentence)
    ("apiVersion", "v1", "", "found 'v1', allowed: streamtopology.dev/v1alpha1"),
    ("kind", GONE, "", "is missing, expected one of StreamTopology"),
    ("metadata", GONE, "", "is missing, expected a mapping with name"),
    ("metadata.name", "Trips!", "", "found 'Trips!', expected a name of lower-case letters, digits and '-'"),
    ("spec", [], "", "found a list, expected a mapping with sources, operators"),
    ("spec.operatros", [], "", "unknown field: found 'operatros', allowed: sources, .*; did you mean 'operators'"),
    # sources
    ("spec.sources[0].name", GONE, "", "is missing, expected a name"),
    ("spec.sources[0].format", 7, "", "found 7, expected a format: parquet, csv, json, text, kafka"),
    ("spec.sources[0].schema", "a INT, b STRUCT<x: INT", "", "the schema ends before its closing '>'"),
    ("spec.sources[0].schema", "a INT, b", "", "found 'b' in the schema, expected `name TYPE`"),
    ("spec.sources[0].schema", "  ", "", "the schema is empty"),
    ("spec.sources[0].schema", [{"name": "a"}], "spec.sources[0].schema[0].type", "is missing, expected a type"),
    ("spec.sources[0].schema", [{"name": "a", "type": "INT"}, {"name": "A", "type": "INT"}], "spec.sources[0].schema",
     "the schema names the column 'A' twice"),
    ("spec.sources[0].schema", GONE, "", "is missing, expected Spark DDL such as"),
    ("spec.sources[0].options.path", GONE, "", "is missing, expected the folder or pattern of csv files"),
    ("spec.sources[0].options.header", [1], "", "found a list, expected a text, number, true or false"),
    ("spec.sources[0].select[2]", "fare * 2", "", r"found 'fare \* 2', expected a column or `expression AS name`"),
    ("spec.sources[0].watermark", GONE, "", "is missing, expected column and delay: 'pairs' closes windows"),
    ("spec.sources[0].watermark.column", GONE, "", "is missing, expected the column with the time of the event"),
    ("spec.sources[0].watermark.delay", "ten", "", "found 'ten', expected a duration such as"),
    # operators
    ("spec.operators", [], "", "needs at least one of its operators, found none"),
    ("spec.operators[2].name", "clean", "", r"found 'clean' again, spec.operators\[0\] has it"),
    ("spec.operators[1].inputs", [], "", "needs at least one of its inputs, found none"),
    ("spec.operators[1].inputs", ["claen"], "spec.operators[1].inputs[0]",
     "unknown input: found 'claen', allowed: rides, clean, pairs; did you mean 'clean'"),
    ("spec.operators[0].inputs[0]", "clean", "", "operator 'clean' reads from itself"),
    ("spec.operators[0].inputs[0]", "per-city", "spec.operators[0].inputs", "form a cycle: clean -> per-city -> clean"),
    ("spec.operators[2].inputs[1].as", "left", "spec.operators[2].inputs[1]", "found the alias 'left' again"),
    ("spec.operators[2].inputs[1].key", ["id", "city"], "", "found 2 columns, grouping.key has 1: one for each"),
    ("spec.operators[2].inputs", ["clean"], "", "found 1 inputs, 'window-join' takes 2 or more"),
    ("spec.operators[1].parallelism", 0, "", "found 0, expected a whole number from 1 to 1024"),
    ("spec.operators[1].parallelism", 1025, "", "found 1025, expected a whole number from 1 to 1024"),
    ("spec.operators[1].parallelism", True, "", "found true, expected a whole number"),
    ("spec.operators[1].grouping.policy", "mixd", "", "found 'mixd', allowed: .*mixed.*; did you mean 'mixed'"),
    ("spec.operators[1].grouping.policy", "partial-key", "",
     "found 'partial-key', which sends one key to several instances, before 'quantiles', with emit: tuples, which .*; "
     "allowed: .*mixed"),
    ("spec.operators[2].grouping.policy", "partial-key", "",
     "found 'partial-key', which .*, before 'window-join', whose state cannot be combined; allowed: .*mixed"),
    ("spec.operators[1].grouping.options", {"bta": 1}, "spec.operators[1].grouping.options.bta",
     "is no option of the grouping 'mixed'; allowed: beta"),
    ("spec.operators[1].grouping.key", GONE, "", "is missing, expected columns: the policy 'mixed' routes by key"),
    ("spec.operators[0].run", "count", "spec.operators[0].grouping.key",
     "is missing, expected columns: 'count' keeps state per key"),
    ("spec.operators[1].run", "quantile", "",
     "found 'quantile', allowed: count, .*; did you mean 'quantiles'.*or module:Class"),
    ("spec.operators[1].run", GONE, "", "is missing, expected a built-in operator, module:Class"),
    ("spec.operators[1].with", "k=3", "", "found 'k=3', expected a mapping of options"),
    ("spec.operators[1].aggregateEvery", 0, "", "found 0, expected a whole number from 1"),
    # sinks
    ("spec.sinks[0].input", "per-ctiy", "", "unknown operator: found 'per-ctiy', allowed: .*; did you mean 'per-city'"),
    ("spec.sinks[0].input", "rides", "", "unknown operator: found 'rides', allowed: clean, per-city, pairs"),
    ("spec.sinks[0].format", "parqet", "", "found 'parqet', allowed: parquet, .*; did you mean 'parquet'"),
    ("spec.sinks[0].options", GONE, "spec.sinks[0].options.path", "is missing, a parquet sink needs it"),
    # executors
    ("spec.executors", GONE, "", "needs at least one of its executor classes, found none"),
    ("spec.executors", [{"name": "large", "replicas": 0}], "", "all classes together have 0 replicas"),
    ("spec.executors[1].name", "large", "", r"found 'large' again, spec.executors\[0\] has it"),
    ("spec.executors[1].cpu", 0, "", "found 0, expected a positive number of cores .*: an executor without CPU"),
    ("spec.executors[1].cpu", "-1", "", "found '-1', expected a positive number of cores .*: it is negative"),
    ("spec.executors[1].memory", "1GB", "", "found '1GB', expected an amount of memory .*: the units are"),
    ("spec.executors[1].memory", "64Mi", "", "found 67108864 bytes, an executor needs at least 512Mi"),
    # the rest
    ("spec.rebalance.mode", "auto", "", "found 'auto', allowed: Auto, Recommend, Off; did you mean 'Auto'"),
    ("spec.rebalance.mode", False, "", "YAML reads a bare Off as false, write 'Off' with quotes"),
    ("spec.rebalance.interval", "0s", "", "found '0s', expected a duration above 0"),
    ("spec.rebalance.interval", 5, "", "found 5, expected a duration .*: a number alone has no unit"),
    ("spec.rebalance.tolerance", -0.1, "", "found -0.1, expected a number above 0 and at most 1"),
    ("spec.rebalance.maxTableEntries", -1, "", "found -1, expected a whole number from 0"),
    ("spec.rebalance.windowIntervals", 0, "", "found 0, expected a whole number from 1"),
    ("spec.trigger", {"interval": "1s", "availableNow": True}, "", "found interval and availableNow together"),
    ("spec.trigger", {"availableNow": "yes"}, "spec.trigger.availableNow", "found 'yes', expected true or false"),
    ("spec.checkpoint", "gs://bucket/x", "", "found the scheme 'gs' in 'gs://bucket/x', allowed: a path .*, s3://"),
    ("spec.onBadTuple", "skip", "", "found 'skip', allowed: fail, deadLetter"),
    # on Kubernetes
    ("metadata.name", "t" * 47, "", "found 't+', expected at most 46 characters, the first of them a letter"),
    ("metadata.name", "2trips", "", "found '2trips', expected at most 46 characters, the first of them a letter"),
    ("spec.executors[0].name", "l" * 47, "", "found 'trips-l+' for its pods, expected at most 52 characters"),
    ("spec.image", 3, "", "found 3, expected the name of an image"),
    ("spec.imagePullPolicy", "always", "", "found 'always', allowed: Always, IfNotPresent, Never; did you mean 'Always'"),
    ("spec.suspend", "yes", "", "found 'yes', expected true or false"),
    ("spec.driver.memory", "512Mi", "", "found 536870912 bytes, the driver needs at least 1Gi"),
    ("spec.driver.cpu", 0, "", "found 0, expected a positive number of cores"),
    ("spec.driver.pods", {}, "", "unknown field: found 'pods', allowed: cpu, memory, pod; did you mean 'pod'"),
    ("spec.migration.threshold", "64MB", "", "found '64MB', expected an amount of memory .*: the units are"),
    ("spec.autoscale", {}, "spec.autoscale.class", "is missing, expected the name of an executor class"),
    ("spec.autoscale", {"class": "big"}, "spec.autoscale.class", "unknown executor class: found 'big', allowed: large, small"),
    ("spec.autoscale", {"class": "large"}, "spec.executors[0].replicas", "found 3 and spec.autoscale for the class 'large'"),
    ("spec.autoscale", {"class": "small", "by": "me"}, "spec.autoscale.by", "found 'me', allowed: Operator, External, Nobody"),
    ("spec.autoscale", {"class": "small", "by": "Operator"}, "spec.autoscale.maxReplicas", "is missing, expected the most"),
    ("spec.autoscale", {"class": "small", "minReplicas": 3, "maxReplicas": 2}, "spec.autoscale.minReplicas",
     "found 3, expected at most maxReplicas, 2"),
    ("spec.autoscale", {"class": "small", "targetUtilisation": 70}, "spec.autoscale.targetUtilisation", "found 70, expected a"),
    ("spec.executors[0].pod.volumes", [{"emptyDir": {}}], "spec.executors[0].pod.volumes[0].name", "is missing, expected a"),
    ("spec.executors[0].pod.volumes", [None], "spec.executors[0].pod.volumes[0]", "is missing, expected a mapping of what"),
    ("spec.executors[0].pod.volumeMounts", [{"name": "x", "mountPath": "/x"}], "spec.executors[0].pod.volumeMounts[0].name",
     "unknown volume: found 'x', allowed: nothing"),
    ("spec.executors[0].pod.env", [{"name": "A"}, {"name": "A"}], "spec.executors[0].pod.env[1].name", "found 'A' again"),
    ("spec.driver.pod.env", [{"name": "STREAMTOPOLOGY_NAME"}], "spec.driver.pod.env[0].name", "which the operator sets itself"),
    ("spec.driver.pod.labels", {"streamtopology.dev/class": "x"}, "", "which the operator sets itself"),
    ("spec.driver.pod.nodeSelector", {"ssd": True}, "spec.driver.pod.nodeSelector.ssd", "found true, expected a text"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "problem_path", "sentence"), MISTAKES)
def test_one_mistake_is_one_problem(path: str, value: object, problem_path: str, sentence: str) -> None:
    problems = problems_of(changed((path, value)))
    assert [problem.path for problem in problems] == [problem_path or path]
    assert re.search(sentence, problems[0].message), problems[0].message


@pytest.mark.parametrize("manifest", [None, {}, [], "text", 3, {"spec": None}])
def test_what_is_no_manifest_is_refused(manifest: object) -> None:
    assert problems_of(manifest)


def test_two_mistakes_are_two_problems_in_one_message() -> None:
    manifest = changed(("spec.operators[1].grouping.policy", "mixd"), ("spec.executors[0].cpu", "0m"))
    with pytest.raises(ManifestError) as raised:
        parse(manifest, where="trips.yaml")
    assert [problem.path for problem in raised.value.problems] == [
        "spec.executors[0].cpu",
        "spec.operators[1].grouping.policy",
    ]
    first, *lines = str(raised.value).splitlines()
    assert first == "trips.yaml has 2 problems:"
    assert lines[0].startswith("  spec.executors[0].cpu: found '0m', expected a positive number of cores")
    assert lines[1].startswith("  spec.operators[1].grouping.policy: found 'mixd', allowed: ")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([mistake for mistake in MISTAKES if mistake[0].count(".") > 1]), min_size=2, max_size=2))
def test_any_two_mistakes_in_different_items_are_both_named(pair: list[tuple[str, object, str, str]]) -> None:
    places = [re.match(r"spec\.\w+(\[\d\])?", path) for path, *_ in pair]
    kinds = {place[0].split("[")[0] for place in places if place}
    if len(kinds) < 2 or "spec.operators" in kinds:
        return  # a mistake in an operator may take the ground from under another one
    found = {problem.path for problem in problems_of(changed(*[(path, value) for path, value, *_ in pair]))}
    assert {problem_path or path for path, _, problem_path, _ in pair} <= found


def test_two_cycles_are_both_named() -> None:
    def reading(name: str, *inputs: str) -> dict[str, object]:
        return {"name": name, "inputs": list(inputs), "run": "map", "with": {"select": ["id"]}}

    edges = (("a", "rides", "c"), ("b", "a"), ("c", "b"), ("d", "e"), ("e", "d"))
    manifest = changed(
        ("spec.operators", [reading(*names) for names in edges]),
        ("spec.sinks", []),
    )
    assert [str(problem) for problem in problems_of(manifest)] == [
        "spec.operators[0].inputs: the operators form a cycle: a -> b -> c -> a",
        "spec.operators[3].inputs: the operators form a cycle: d -> e -> d",
    ]


def test_two_sinks_do_not_share_a_folder() -> None:
    twin = {"name": "twin", "input": "clean", "format": "json", "options": {"path": "build/out"}}
    problems = problems_of(changed(("spec.sinks", [*VALID["spec"]["sinks"], twin])))
    assert [str(problem) for problem in problems] == [
        "spec.sinks[1].options.path: found 'build/out' again, spec.sinks[0] writes there already"
    ]


def test_kafka_says_which_options_are_missing() -> None:
    manifest = changed(
        ("spec.sources[0].format", "kafka"), ("spec.sources[0].options", {"subscribe": "rides"}),
        ("spec.sinks[0].format", "kafka"), ("spec.sinks[0].options", {"kafka.bootstrap.servers": "b:9092"}),
    )  # fmt: skip
    assert [str(problem) for problem in problems_of(manifest)] == [
        "spec.sources[0].options.kafka.bootstrap.servers: is missing, a kafka source needs it",
        "spec.sinks[0].options.topic: is missing, a kafka sink needs it",
    ]


def test_traits_of_a_users_own_class_are_judged_like_a_builtins() -> None:
    topology = parse(
        changed(
            ("spec.operators[1].run", "ride.py:Latest"),
            ("spec.operators[1].with", {}),
            ("spec.operators[1].grouping.policy", "partial-key"),
        )
    )
    assert check_traits(topology, {"per-city": Traits(stateful=True, combinable=True)}) == []
    [problem] = check_traits(topology, {"per-city": Traits(stateful=True)})
    assert problem.path == "spec.operators[1].grouping.policy"
    assert "before 'ride.py:Latest', whose state cannot be combined" in problem.message
    [problem] = check_traits(topology, {"per-city": Traits(stateful=True, combinable=True, min_inputs=2, max_inputs=2)})
    assert str(problem) == "spec.operators[1].inputs: found 1 inputs, 'ride.py:Latest' takes 2"


def test_what_kubernetes_adds_to_a_manifest_is_no_problem() -> None:
    manifest = changed(("metadata", {"name": "trips", "uid": "1", "labels": {"a": "b"}}), ("status", {"epoch": 3}))
    assert parse(manifest) == parse(VALID)


def test_a_schema_as_a_list_is_the_same_as_ddl() -> None:
    columns = [{"name": name, "type": kind} for name, kind in columns_of(VALID["spec"]["sources"][0]["schema"])]
    assert parse(changed(("spec.sources[0].schema", columns))) == parse(VALID)


def test_columns_of_ddl_keep_nested_types_comments_and_quoted_names() -> None:
    ddl = "`a ``b` INT COMMENT 'one, two', m: MAP<STRING, DECIMAL(10, 2)>,  c STRUCT<x: INT, y: STRING> NOT NULL"
    assert columns_of(ddl) == [
        ("a `b", "INT COMMENT 'one, two'"),
        ("m", "MAP<STRING, DECIMAL(10, 2)>"),
        ("c", "STRUCT<x: INT, y: STRING> NOT NULL"),
    ]
