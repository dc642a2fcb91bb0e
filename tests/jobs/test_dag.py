"""From a manifest to nodes, levels and edges; mistakes that only show there are reported with the operator's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.reasons import BY_TEST
from support.stages import SLOTS, manifest

from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.plan.attempt import place_instances
from streamtopology.jobs.plan.dag import Dag, compile_dag
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.plan.initial_routes import first_routes
from streamtopology.jobs.worker.key_load import measure_keys
from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.routing.epochs.placement import Placement
from streamtopology.routing.epochs.rescaling import slot_names
from streamtopology.routing.table.table import BUCKETS, bucket_of
from streamtopology.topology import ManifestError, parse

SOURCE = pa.schema([("k", pa.int64()), ("v", pa.float64())])
COUNT: Mapping[str, Any] = {"inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": "count"}


def dag_of(*operators: Mapping[str, Any], base_dir: Path = Path()) -> Dag:
    topology = parse(manifest(operators, {"s": "k BIGINT, v DOUBLE"}))
    return compile_dag(topology, {"s": SOURCE}, base_dir)


def operator(name: str, inputs: Sequence[Any] = ("s",), policy: str = "mixed", **more: Any) -> dict[str, Any]:
    return {**COUNT, "name": name, "inputs": list(inputs), "grouping": {"policy": policy, "key": "k"}, **more}


def test_a_node_is_one_level_after_the_last_it_reads() -> None:
    dag = dag_of(operator("a"), operator("b", ["a"]), operator("c", ["s", "b"]), operator("d", ["a"]), operator("e"))
    assert {node.name: node.level for node in dag.nodes} == {"a": 1, "b": 2, "c": 3, "d": 2, "e": 1}
    assert dag.depth == 3
    assert {node.name for node in dag.at(2)} == {"b", "d"}
    assert {edge.consumer for edge in dag.edges_from("s")} == {"a", "c", "e"}
    assert {(edge.producer, edge.alias) for edge in dag.node("c").edges} == {("s", "s"), ("b", "b")}


ON_DISK: Mapping[str, Any] = {"state": {"backend": "disk", "memory": "1Mi"}}


def test_state_on_disk_is_that_of_whole_keys() -> None:
    dag = dag_of(operator("a", policy="partial-key", **ON_DISK), operator("b", **ON_DISK), operator("c"))
    found = {node.name: node.memory_bytes for node in dag.nodes}
    assert found == {"a.partial": None, "a": 1 << 20, "b": 1 << 20, "c": None}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"run": "map", "with": {"select": ["k"]}}, "which count, aggregate, quantiles and top-k can have; leave `state` out"),
        ({"run": "deduplicate"}, "which count, aggregate, quantiles and top-k can have"),
        ({"with": {"emit": "all"}}, "emit: all reads the state of all keys in every batch; take emit: updates"),
        ({"with": {"ttl": "1h"}}, "ttl looks for idle keys among all in every batch; leave `ttl` or `state` out"),
        ({"with": {"groupBy": ["v"]}}, r"a key of one column of numbers.*here it is \(k int64, v double\)"),
        ({"run": "aggregate", "with": {"aggregates": {"all": "collect_list(v)"}}}, "fields of numbers; field .* is list"),
    ],
)
def test_state_that_cannot_be_on_disk_is_refused(changed: Mapping[str, Any], sentence: str) -> None:
    with pytest.raises(ManifestError, match=f"state.backend is disk, .*{sentence}"):
        dag_of({**operator("a", **ON_DISK), **changed})


def test_a_split_operator_is_a_partial_and_a_merge_under_its_own_name() -> None:
    dag = dag_of(operator("a", policy="partial-key", aggregateEvery=3), operator("b", ["a"]))
    partial, merge = dag.node("a.partial"), dag.node("a")
    assert (partial.policy, partial.level, partial.flush_every, partial.is_partial) == ("partial-key", 1, 3, True)
    assert (merge.policy, merge.level, merge.flush_every, merge.is_partial) == ("fields", 2, 1, False)
    assert partial.operator == merge.operator == "a"
    assert [(edge.producer, edge.key) for edge in merge.edges] == [("a.partial", ("k",))]
    assert partial.output == pa.schema([("k", pa.int64()), ("count", pa.int64())])
    assert dag.node("b").level == 3


def test_an_operator_without_state_is_never_split() -> None:
    dag = dag_of({"name": "m", "inputs": ["s"], "run": "map", "with": {"select": ["k"]}})
    assert [(node.name, node.policy) for node in dag.nodes] == [("m", "shuffle")]


WIDE = pa.schema([("k", pa.int64()), ("v", pa.float64()), ("long text", pa.string()), ("V2", pa.int64())])


@pytest.mark.parametrize(
    ("run", "options", "read"),
    [
        ("count", {}, ["k"]),
        ("aggregate", {"aggregates": {"total": "sum(V2)"}}, ["k", "V2"]),
        ("aggregate", {"aggregates": {"most": 'max("long text")'}}, ["k", "long text"]),
        ("window-aggregate", {"time": "V2", "size": "1s", "groupBy": ["v"], "aggregates": {"n": "count()"}}, ["k", "v", "V2"]),
        ("map", {"select": ["v * 2 AS twice"], "where": "k > 3"}, ["k", "v"]),
        ("map", {"select": ["1 AS one"]}, ["k"]),
        ("map", {"select": ["*"]}, None),
        ("filter", {"where": "v > 3"}, None),
        ("deduplicate", {}, None),
        ("count", {"emit": "tuples"}, None),
        ("count", {"emit": "tuples", "select": ["v"]}, ["k", "v"]),
    ],
)
def test_columns_that_an_operator_does_not_mention_are_not_sent(
    run: str, options: Mapping[str, Any], read: Sequence[str] | None
) -> None:
    times = {"watermarks": {"s": {"column": "V2", "delay": "1s"}}}
    of_all = dag_of_wide({"name": "a", "inputs": ["s"], "run": run, "grouping": {"key": "k"}, "with": options}, times)
    (edge,) = of_all.edges_from("s")
    assert of_all.node("a").inputs["s"].names == (WIDE.names if read is None else read)
    assert edge.columns is None or list(edge.columns) == (WIDE.names if read is None else read)
    rows = pa.record_batch([pa.array([1], kind) if not pa.types.is_string(kind) else ["x"] for kind in WIDE.types], schema=WIDE)
    assert edge.fitted(rows).schema == of_all.node("a").inputs["s"]
    assert of_all.columns_read("s") == (None if edge.columns is None else frozenset(edge.columns))


def dag_of_wide(one: Mapping[str, Any], more: Mapping[str, Any], *others: Mapping[str, Any]) -> Dag:
    topology = parse(manifest([one, *others], {"s": "k BIGINT, v DOUBLE, `long text` STRING, V2 BIGINT"}, **more))
    return compile_dag(topology, {"s": WIDE}, Path())


def test_all_columns_are_sent_where_a_tuple_may_be_wanted_as_it_is() -> None:
    assert dag_of_wide(operator("a"), {"onBadTuple": "deadLetter"}).columns_read("s") is None
    assert dag_of_wide(operator("a"), {}).columns_read("s") == {"k"}
    both = dag_of_wide(operator("a"), {}, {"name": "f", "inputs": ["s"], "run": "filter", "with": {"where": "k > 1"}})
    assert both.columns_read("s") is None
    assert {edge.columns for edge in both.edges_from("s")} == {("k",), None}


def test_inputs_of_one_source_are_distinguished_by_alias_and_key() -> None:
    dag = dag_of(
        {"name": "m", "inputs": ["s"], "run": "map", "with": {"select": ["k AS id", "v"]}},
        operator("a", ["s", {"from": "m", "as": "other", "key": "id"}]),
    )
    assert {(edge.alias, edge.key) for edge in dag.node("a").edges} == {("s", ("k",)), ("other", ("id",))}


def test_every_operator_with_a_problem_is_named_once() -> None:
    with pytest.raises(ManifestError) as raised:
        dag_of(
            operator("a", run="nowhere.py:Gone"),
            {"name": "b", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "z"}, "run": "count"},
            operator("c", run="aggregate", **{"with": {"aggregates": {"t": "sum(w)"}}}),
            operator("fine"),
            operator("follows", ["a"]),
        )
    reported = [(problem.path, problem.message) for problem in raised.value.problems]
    assert [path for path, _ in reported] == [
        "spec.operators[0].run",
        "spec.operators[1].grouping.key",
        "spec.operators[2].with.aggregates.t",
    ]
    for (_, message), found in zip(reported, ["nowhere.py", "'z'", "'w'"], strict=True):
        assert found in message


def test_state_that_cannot_be_combined_refuses_a_splitting_policy(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from streamtopology.api import Field, TupleOperator\n"
        "class Last(TupleOperator):\n"
        "    fields = (Field('last', float),)\n"
        "    def process_tuple(self, row, state):\n"
        "        state['last'] = row['v']\n"
    )
    assert dag_of(operator("a", run="mine.py:Last"), base_dir=tmp_path).node("a").output is None
    with pytest.raises(ManifestError, match="fields or mixed"):
        dag_of(operator("a", policy="partial-key", run="mine.py:Last"), base_dir=tmp_path)


def test_windows_over_closed_windows_wait_for_them_or_are_refused() -> None:
    def windows(name: str, inputs: list[str], time: str, column: str) -> dict[str, Any]:
        options = {"time": time, "size": "1m", "aggregates": {"total": f"sum({column})"}}
        return operator(name, inputs, run="window-aggregate", **{"with": options})

    sources = {"s": "k BIGINT, v DOUBLE, at TIMESTAMP"}
    schemas = {"s": SOURCE.append(pa.field("at", pa.timestamp("us", tz="UTC")))}
    first = windows("first", ["s"], "at", "v")
    passed = {"name": "passed", "inputs": ["first"], "run": "filter", "with": {"where": "total > 1"}}
    counted = operator("counted", ["passed"])
    mark = {"s": {"column": "at", "delay": "1s"}}
    topology = parse(manifest([first, passed, counted], sources, watermarks=mark))
    assert compile_dag(topology, schemas, Path()).node("counted").level == 3

    def second(time: str, between: str) -> Dag:
        passed = {"name": "passed", "inputs": ["first"], "run": "map", "with": {"select": ["k", "total", between]}}
        made = manifest([first, passed, windows("second", ["passed"], time, "total")], sources, watermarks=mark)
        return compile_dag(parse(made), schemas, Path())

    assert second("window_end", "window_end").node("second").behind_seconds == 0
    assert second("begun", "window_start AS begun").node("second").behind_seconds == 60
    with pytest.raises(ManifestError, match="may have passed 'later' of 'passed'; write them to a sink"):
        second("later", "window_end + INTERVAL 1 DAY AS later")


def test_a_plan_comes_back_from_the_checkpoint_as_it_was() -> None:
    topology = parse(manifest([operator("a", policy="partial-key"), operator("b", ["a"])], {"s": "k BIGINT, v DOUBLE"}))
    dag = compile_dag(topology, {"s": SOURCE}, Path())
    placement = Placement.first(slot_names(topology), SLOTS)
    routes = first_routes(dag, topology, {}, placement, SLOTS)
    plan = ExecutionPlan(topology, Epoch(7, routes, (0.25, 0.75, 0.0, 0.0), BY_TEST, placement), {"s": SOURCE}, Path("/base"))
    again = ExecutionPlan.from_json(plan.to_json())
    assert again == plan
    assert [node.name for node in again.compile().nodes] == ["a.partial", "a", "b"]


@settings(max_examples=50)
@given(st.integers(1, 6), st.integers(1, 14), st.data())
def test_instances_stay_home_and_orphans_are_dealt_evenly(slots: int, instances: int, data: st.DataObject) -> None:
    homes = tuple(sorted(data.draw(st.sets(st.integers(0, slots - 1), min_size=1))))
    placement = place_instances(homes, Placement.first([f"slot-{slot}" for slot in range(slots)], instances))
    orphans = [place for instance, place in enumerate(placement) if instance % slots not in homes]
    for instance, place in enumerate(placement):
        if instance % slots in homes:
            assert homes[place] == instance % slots
    dealt = [orphans.count(place) for place in range(len(homes))]
    assert max(dealt) - min(dealt) <= 1


def test_an_executor_whose_slot_is_gone_runs_only_what_it_hands_over() -> None:
    before = Placement.first(("a", "b", "c"), 3)
    now = before.rescaled(("a", "c"), 3)
    assert place_instances((0, 1, 2), now) == tuple({0: 0, 2: 2}[slot] for slot in now.slot_by_instance)
    assert place_instances((1, 2), now, before) == (1, 1, 1), "without the executor of a, that of c has all instances"


@settings(max_examples=30)
@given(st.integers(0, 1000), st.sampled_from([0, 5, 500, 40_000]), st.booleans())
def test_measured_keys_are_counted_exactly(seed: int, n: int, timed: bool) -> None:
    random = np.random.default_rng(seed)
    values = np.where(random.random(n) < 0.5, random.integers(0, 4, n), random.integers(0, 10**6, n))
    seconds = random.random(n) if timed else None
    keys = KeyColumns.from_arrow(pa.record_batch({"k": values}), ("k",))
    load = measure_keys(keys, seconds)
    counted = np.zeros(BUCKETS, np.int64)
    heavy = np.isin(keys.hashes, load.hashes)
    np.add.at(counted, bucket_of(keys.hashes[~heavy], BUCKETS), 1)
    assert np.array_equal(load.bucket_rows.dense(), counted)
    assert load.rows.sum() + load.bucket_rows.rows.sum() == n
    for hashed, rows, spent, label in zip(load.hashes, load.rows, load.seconds, load.labels, strict=True):
        mine = keys.hashes == hashed
        assert rows == np.count_nonzero(mine)
        assert set(values[mine]) == {int(label)}
        assert spent == pytest.approx(seconds[mine].sum() if seconds is not None else 0.0)
    if n >= 500:
        assert {"0", "1", "2", "3"} <= set(load.labels), "keys with an eighth of the rows each are heavy"


def test_labels_distinguish_a_key_that_is_null_from_the_text() -> None:
    values = pa.array([None, "NULL", ""] * 100)
    load = measure_keys(KeyColumns.from_arrow(pa.record_batch({"k": values}), ("k",)), None)
    assert sorted(load.labels) == ["", "'NULL'", "NULL"]


def test_label_of_a_long_key_shows_that_it_is_cut() -> None:
    values = pa.array(["k" * 40, "k" * 41, "m" * 10_000] * 100)
    load = measure_keys(KeyColumns.from_arrow(pa.record_batch({"k": values}), ("k",)), None)
    assert sorted(load.labels) == ["k" * 40, "k" * 39 + "…", "m" * 39 + "…"]
