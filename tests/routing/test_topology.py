"""Reading a manifest: what is valid becomes typed values, every mistake has its path and its sentence."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.mistakes import GONE, MISTAKES, VALID, changed

from streamtopology.topology import (
    ExecutorClass,
    Grouping,
    Input,
    ManifestError,
    OperatorSpec,
    Problem,
    Rebalance,
    Sink,
    Source,
    Trigger,
    Watermark,
    columns_of,
    parse,
)


def problems_of(manifest: object) -> list[Problem]:
    with pytest.raises(ManifestError) as raised:
        parse(manifest)
    return list(raised.value.problems)


def test_a_manifest_becomes_typed_values() -> None:
    topology = parse(VALID)
    assert topology.sources == (
        Source(
            "rides",
            "csv",
            "id BIGINT, city STRING, fare DOUBLE, at TIMESTAMP",
            {"path": "data/rides", "header": "true", "maxFilesPerTrigger": "1"},
            ("id", "city", "fare * 2 AS doubled", "at"),
            "fare > 0",
            Watermark("at", 10.0, 30.0),
        ),
    )
    assert topology.operator("clean") == OperatorSpec(
        "clean", (Input("rides", "rides"),), 4, Grouping("shuffle"), "filter", {"where": "city IS NOT NULL"}
    )
    assert [topology.operator("pairs").key_of(alias) for alias in ("left", "right")] == [("id",), ("id",)]
    assert topology.operator("per-city").key_of("rows") == ("city",)
    assert topology.sinks == (Sink("out", "per-city", "parquet", {"path": "build/out"}),)
    assert topology.executors == (ExecutorClass("large", 3, 0.45, 2**30), ExecutorClass("small", 1, 0.135, 2**30))
    assert topology.rebalance == Rebalance("Auto", 5.0, 0.1, 3000, 1)
    assert topology.trigger == Trigger(0.0, False)
    assert (topology.checkpoint, topology.on_bad_tuple, topology.replicas) == ("build/checkpoint", "fail", 4)


def test_real_time_is_refused_where_spark_reads_a_source() -> None:
    in_real_time = ("spec.trigger", {"interval": "1s", "realTime": True})
    assert parse(changed(in_real_time)).trigger == Trigger(1.0, real_time=True)
    by_spark = ("spec.sources[0]", {"name": "rides", "format": "rate", "schema": VALID["spec"]["sources"][0]["schema"]})
    found = problems_of(changed(in_real_time, by_spark))
    assert [problem.path for problem in found if "which Spark reads" in str(problem)] == ["spec.trigger.realTime"]


def test_a_topology_finds_its_parts_by_name() -> None:
    topology = parse(VALID)
    assert topology.sources_of("per-city") == topology.sources
    assert topology.sinks_of("per-city") == topology.sinks
    assert topology.sinks_of("clean") == ()
    with pytest.raises(KeyError, match="no operator 'per-town'; there are clean, per-city, pairs"):
        topology.operator("per-town")


def test_operator_without_parallelism_follows_the_scaled_class() -> None:
    topology = parse(
        changed(("spec.executors[0].replicas", GONE), ("spec.autoscale", {"class": "large", "replicas": 3, "maxReplicas": 5}))
    )
    assert topology.executor_class("large").replicas == 3
    assert [operator.parallelism for operator in topology.operators] == [4, 6, 4]  # per-city names its own
    five = topology.resolved({"large": 9})
    assert (five.executor_class("large").replicas, five.autoscale) == (5, None)
    assert [operator.parallelism for operator in five.operators] == [6, 6, 6]
    assert topology.resolved({"large": 0}).executor_class("large").replicas == 1
    assert topology.resolved() == parse(VALID)
    assert parse(VALID).resolved({"large": 7}) == parse(VALID)


def test_several_scaled_classes_start_with_their_least_and_operators_follow() -> None:
    bounds = [{"name": "small", "maxReplicas": 9}, {"name": "large", "minReplicas": 2, "maxReplicas": 5}]
    scaled = {"classes": bounds, "by": "Operator"}
    topology = parse(changed(("spec.executors[0].replicas", GONE), ("spec.autoscale", scaled)))
    assert [executor.replicas for executor in topology.executors] == [2, 0]
    running = topology.resolved({"small": 12, "large": 1})
    assert ([executor.replicas for executor in running.executors], running.autoscale) == ([2, 9], None)
    assert [operator.parallelism for operator in running.operators] == [11, 6, 11]
    assert topology.resolved({"small": 1}).replicas == 3, "of a class that is not given, those that it starts with"


def test_operators_come_in_the_order_of_the_flow_and_remember_their_place() -> None:
    operators = VALID["spec"]["operators"]
    topology = parse(changed(("spec.operators", list(reversed(operators)))))
    assert [operator.name for operator in topology.operators] == ["clean", "pairs", "per-city"]
    assert [operator.path for operator in topology.operators] == [f"spec.operators[{i}]" for i in (2, 0, 1)]


@pytest.mark.parametrize("path", ["./~/rides", "data/a~b", "data/$weird", "file:///data/%24HOME", "data/100$"])
def test_name_with_a_tilde_or_dollar_that_no_shell_would_fill_in_is_a_path(path: str) -> None:
    places = ("spec.sources[0].options.path", "spec.sinks[0].options.path", "spec.checkpoint")
    assert parse(changed(*((place, f"{path}{number}") for number, place in enumerate(places))))


# Each mistake: its path and its sentence ------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "value", "problem_path", "sentence"), MISTAKES)
def test_each_mistake_is_a_single_problem(path: str, value: object, problem_path: str, sentence: str) -> None:
    problems = problems_of(changed((path, value)))
    assert [problem.path for problem in problems] == [problem_path or path]
    assert re.search(sentence, problems[0].message), problems[0].message


@pytest.mark.parametrize("manifest", [None, {}, [], "text", 3, {"spec": None}])
def test_document_that_is_no_manifest_is_refused(manifest: object) -> None:
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
    assert lines[1].startswith("  spec.operators[1].grouping.policy: found 'mixd', installed: ")


def test_policy_left_out_is_auto_with_a_key_and_shuffle_without_a_grouping() -> None:
    with_key, without = parse(changed(("spec.operators[1].grouping.policy", GONE))).operators[1], parse(VALID).operators[0]
    assert (with_key.grouping.policy, without.grouping.policy) == ("auto", "shuffle")
    with pytest.raises(ManifestError, match=r"grouping\.key: is missing, expected columns: the policy 'auto' routes by key"):
        parse(changed(("spec.operators[1].grouping", {})))


def test_policy_that_nobody_named_is_no_mistake_of_its_own() -> None:
    """Quantiles with emit: tuples are not split; without a grouping they lack a key, and nothing else."""
    (problem,) = problems_of(changed(("spec.operators[1].grouping", GONE)))
    assert problem.path == "spec.operators[1].grouping.key"
    assert problem.message == "is missing, expected columns: 'quantiles' keeps state per key"


@settings(max_examples=60)
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


@pytest.mark.parametrize("options", [{"subscribe": "rides"}, {"subscribePattern": "rides.*"}])
def test_kafka_says_which_options_are_missing(options: dict[str, str]) -> None:
    manifest = changed(
        ("spec.sources[0].format", "kafka"),
        ("spec.sources[0].options", options),
        ("spec.sinks[0].format", "kafka"),
        ("spec.sinks[0].options", {"kafka.bootstrap.servers": "b:9092"}),
    )
    assert [str(problem) for problem in problems_of(manifest)] == [
        "spec.sources[0].options.kafka.bootstrap.servers: is missing, a kafka source needs it",
        "spec.sinks[0].options.topic: is missing, format kafka needs it",
    ]


def test_kafka_says_that_no_topics_are_named() -> None:
    manifest = changed(("spec.sources[0].format", "kafka"), ("spec.sources[0].options", {"kafka.bootstrap.servers": "b:9092"}))
    assert [str(problem) for problem in problems_of(manifest)] == [
        "spec.sources[0].options.subscribe: is missing, a kafka source needs it or subscribePattern"
    ]


def test_fields_that_kubernetes_adds_are_accepted() -> None:
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
