"""Topologies on real executors give what a plain count gives: split, re-routed, changed while they run."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest

from streamtopology.contract.reasons import EpochReason
from streamtopology.jobs.admin.find_run import asking_here
from streamtopology.jobs.cli.main import main
from streamtopology.jobs.connectors.sinks import SinkError
from streamtopology.jobs.connectors.sinks.memory import memory_rows
from streamtopology.jobs.local import control_socket
from streamtopology.jobs.observe.stats import DriverRefusal
from streamtopology.jobs.pods.configmap_follower import Follower
from streamtopology.jobs.pods.routing_configmap import PlannedEpoch, RoutingMap
from streamtopology.jobs.runtime.streaming_query import Until
from streamtopology.lab.bench.tpch_data import make_q5
from streamtopology.lab.reproduce.on_spark.mixed_workloads import q5_streams, query_5
from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.routing.table.table import RoutingTable
from streamtopology.topology import parse

if TYPE_CHECKING:  # the plugins are imported by pytest, which then explains their assertions
    from support.kafka import Broker
    from support.topologies import Runner

from support.config_maps import config_map
from support.feeding import Feed
from support.manifests import counting, counts_in, counts_seen, files, manifest, memory_sink, write_rows

pytest_plugins = ("support.kafka", "support.topologies")
pytestmark = pytest.mark.timeout(300)


UPSERT = """
from pathlib import Path

def upsert(frame, batch):
    frame.write.mode("overwrite").parquet(str(Path(__file__).parent / f"out-{batch}"))
"""


SLOW = """
import time
from pathlib import Path

def wait(rows, batch):
    folder = Path(__file__).parent
    if (folder / "away").exists():
        raise ValueError("away")
    while (folder / "busy").exists():
        time.sleep(0.05)
"""


def test_a_start_says_that_it_waits_for_a_sink(runner: Runner) -> None:
    folder = runner.folder / "slow"
    folder.mkdir()
    write_rows(folder / "rows", 0)
    (folder / "slow.py").write_text(SLOW)
    sink = {"name": "slow", "input": "counts", "format": "function", "options": {"run": "slow/slow.py:wait", "frame": "arrow"}}
    given = manifest("slow", [files(folder / "rows")], [counting()], [sink])
    (folder / "away").touch()
    with pytest.raises(SinkError, match="the function failed at batch 0"):
        runner.run(given)
    (folder / "away").rename(folder / "busy")
    with runner.running(given) as running:
        running.wait_until(lambda: running.history.activity.detail == "the sinks get batch 0, unless they have it")
        (folder / "busy").unlink()
        running.wait_until(running.ended.done)


def test_function_gets_each_batch_as_a_dataframe_that_it_can_write(runner: Runner) -> None:
    folder = runner.folder / "function"
    folder.mkdir()
    expected = sum((write_rows(folder / "rows", number) for number in range(3)), Counter[int]())
    (folder / "crm.py").write_text(UPSERT)
    sink = {"name": "crm", "input": "counts", "format": "function", "options": {"run": "function/crm.py:upsert"}}
    runner.run(manifest("function", [files(folder / "rows")], [counting()], [sink]))
    pages = [duckdb.read_parquet(f"{folder}/out-{batch}/*.parquet").fetchall() for batch in range(3)]
    assert {key: count for page in pages for key, count in page} == expected


@pytest.mark.parametrize("real_time", [False, True])
def test_runs_on_the_same_executors_give_way_to_each_other(runner: Runner, real_time: bool) -> None:
    expected = sum((write_rows(runner.folder / "rows", number) for number in range(5)), Counter[int]())
    names = ("first", "second")
    runs = [
        runner.opened(
            manifest(
                name,
                [files(runner.folder / "rows")],
                [counting()],
                [memory_sink(name, "counts")],
                trigger={"availableNow": True, "realTime": real_time},
            ),
            Until(turn=2),
        )
        for name in names
    ]
    assert len(list(zip_longest(*(run.turns() for run in runs)))) == 2
    assert [counts_in(name) for name in names] == [expected, expected]


def test_query_5_of_tpch_as_a_stream_equals_the_query_over_all_rows(runner: Runner) -> None:
    folders = make_q5(runner.folder / "q5", batches=4, weeks=2, scale=0.04, exponent=0.8, seed=1)
    sink = memory_sink("q5", "revenues")
    runner.run(manifest("q5", q5_streams(runner.folder / "q5"), query_5("mixed", {"cost": "0us"}), [sink]), Until(drain=True))
    for name, folder in folders.items():
        duckdb.read_parquet(f"{folder}/*.parquet").create_view(name, replace=True)
    week = "epoch_us({}.placed) // 604_800_000_000"
    expected = duckdb.sql(
        f"""
        SELECT suppliers.nation, sum(revenue) FROM orders JOIN customers USING (custkey) JOIN lineitems USING (orderkey)
        JOIN suppliers USING (suppkey)
        WHERE region = 'ASIA' AND customers.nation = suppliers.nation AND {week.format("orders")} = {week.format("customers")}
        AND {week.format("orders")} = {week.format("suppliers")}
        GROUP BY suppliers.nation, {week.format("orders")}
        """
    ).fetchall()
    assert len(expected) >= 20
    found = [(row["nation"], row["revenue"]) for row in memory_rows("q5").to_pylist()]
    for of_stream, of_query in zip(sorted(found), sorted(expected), strict=True):
        assert of_stream == (of_query[0], pytest.approx(of_query[1]))


def test_policy_tolerance_and_cpu_change_while_it_runs(runner: Runner) -> None:
    feed = Feed(runner.folder / "rows")

    def given(policy: str, tolerance: float = 0.08, **changed: Any) -> dict[str, Any]:
        return manifest(
            "changing",
            [files(feed.folder)],
            [counting(policy=policy, aggregateEvery=2, **changed)],
            [memory_sink("changing", "counts")],
            trigger={},
            rebalance={"tolerance": tolerance, "interval": "1s"},
        )

    def apply(changed: dict[str, Any]) -> str:
        return control_socket.ask("changing", "apply", path=str(runner.save(changed)))

    with runner.running(given("mixed")) as running:
        running.wait_until(lambda: running.history.is_ready())
        feed.files(running, 3)
        for policy in ("partial-key", "fields", "mixed", "partial-key", "mixed"):
            assert f"-> {policy}" in apply(given(policy))
            feed.files(running, 3)
        assert "tolerance" in apply(given("mixed", 0.2))
        assert apply(given("mixed", 0.2)).startswith(("in force since batch ", "taken already: epoch "))
        feed.files(running, 3)
        assert "500m CPU" in control_socket.ask("changing", "resize", class_name="small", cpu="500m")
        assert [slot.cpu for slot in runner.embedded.slots] == [1.0, 1.0, 0.5]
        with pytest.raises(control_socket.Refused, match="no executor class 'huge'; there are: large, small"):
            control_socket.ask("changing", "resize", class_name="huge", cpu="1")
        with pytest.raises(control_socket.Refused, match=r"this needs a restart \(.*with.*stop the topology and run it again"):
            apply(given("mixed", 0.2, **{"with": {"costPerTuple": "1us"}}))
        feed.files(running, 3)
        assert counts_in("changing") == feed.expected
        epochs = [batch.epoch for batch in running.history.batches]
        assert len(set(epochs)) >= 7, "each change took effect in a batch"


def test_run_that_does_not_decide_follows_the_operator(runner: Runner) -> None:
    feed = Feed(runner.folder / "rows")

    def given(policy: str = "mixed", **changed: Any) -> dict[str, Any]:
        return manifest(
            "followed",
            [files(feed.folder)],
            [counting(policy=policy, **changed)],
            [memory_sink("followed", "counts")],
            trigger={},
            rebalance={"tolerance": 0.01, "interval": "1s"},
        )

    def take(generation: int, reported: dict[str, Any], planned: PlannedEpoch | None = None) -> None:
        follower.take(config_map(RoutingMap(parse(reported), generation, planned)))

    def rerouted(number: int) -> Epoch:
        """All keys of the counts at instance 1, as no planner would have it."""
        route = running.run.router.ready().epoch.routes["counts"]
        table = RoutingTable(np.empty(0, np.uint64), np.empty(0, np.int32), np.ones(len(route.table.buckets), np.int32))
        return Epoch(number, {"counts": replace(route, table=table)}, (), EpochReason.of_text("the operator says so"))

    def refused(follower: Follower) -> tuple[int | None, int | None]:
        """Epoch and generation of the newest refusal."""
        assert follower.refused is not None
        return follower.refused.epoch, follower.refused.generation

    with runner.running(given(), decides=False) as running:
        follower = Follower(running.run, "followed-routing", RoutingMap(parse(given()), 1, None))
        running.wait_until(lambda: running.history.is_ready())
        for _ in range(3):
            feed.files(running, 3)
        assert {batch.epoch for batch in running.history.batches} == {1}, "it only measures, however uneven it is"
        assert running.history.batches[-1].capacities

        take(1, given(), PlannedEpoch(rerouted(2), 1, "prepared"))
        feed.files(running, 3)
        assert running.history.batches[-1].epoch == 1, "not before its state is copied"
        take(1, given(), PlannedEpoch(rerouted(2), 1, "ready"))
        feed.files(running, 3)
        assert running.history.batches[-1].epoch == 2
        assert [r.instance for r in running.history.batches[-1].reports if r.rows] == [1]
        assert (follower.refused, running.run.standing().newest_epoch) == (None, 2)

        take(1, given(), PlannedEpoch(replace(rerouted(2), reason=EpochReason.of_text("another")), 1, "ready"))
        assert refused(follower) == (2, 1), "another one has this number here"

        take(2, given("partial-key"))
        assert (follower.generation, follower.refused) == (2, None)
        feed.files(running, 3)
        stats = asking_here("followed")(since=-1)
        assert stats["policies"] == {"counts": "partial-key"}
        assert [batch["number"] for batch in stats["batches"]] == [batch.number for batch in running.history.batches]

        take(2, given("partial-key"), PlannedEpoch(rerouted(9), 1, "ready"))
        assert follower.refused == DriverRefusal(9, 1, "epoch 9 was planned for generation 1, this run is of 2")
        take(2, given("partial-key"), PlannedEpoch(rerouted(9), 2, "ready"))
        assert refused(follower) == (9, 2), "it has no route for the partial counts"
        take(3, given("partial-key", **{"with": {"costPerTuple": "1us"}}))
        assert (refused(follower), follower.generation) == ((None, 3), 2), "it needs a restart"
        feed.files(running, 3)
        take(4, given("fields"))
        assert (follower.generation, follower.refused) == (4, None), "what comes next is taken as if nothing had been"
        follower.take(None)
        assert refused(follower) == (None, None), "the ConfigMap is gone"
        feed.files(running, 3)
        assert counts_in("followed") == feed.expected
    assert any("not taken from ConfigMap followed-routing: epoch 9" in event.text for event in running.history.events)


def test_a_stop_with_drain_publishes_what_is_held_back_and_what_is_open(
    runner: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a stream without an end: partials hand over, windows close, and rows of a later run are late for them."""
    rows = runner.folder / "rows"
    timed = files(rows) | {"watermark": {"column": "value", "delay": "1h"}}  # values, 0 to 999, as epoch seconds
    split = counting(policy="partial-key", aggregateEvery=100)
    windows = counting(
        "windows", run="window-aggregate", **{"with": {"time": "value", "size": "250s", "aggregates": {"count": "count()"}}}
    )

    def given(**trigger: Any) -> dict[str, Any]:
        sinks = [memory_sink("merged", "counts"), memory_sink("closed", "windows")]
        return manifest("drained", [timed], [split, windows], sinks, trigger=trigger)

    def in_windows() -> Counter[int]:
        return sum((Counter({row["key"]: row["count"]}) for row in memory_rows("closed").to_pylist()), Counter[int]())

    expected = sum((write_rows(rows, number) for number in range(3)), Counter[int]())
    with runner.running(given()) as running:
        running.wait_for_rows(9000)
        assert sum(counts_in("merged").values()) < 9000
        assert not in_windows()
        assert main(["stop", "drained", "--drain"]) == 0
        assert "the sources hold nothing more: closing all open windows" in capsys.readouterr().out
        running.wait_until(running.ended.done)
    before = counts_in("merged")
    assert before == expected
    assert in_windows() == expected
    late = write_rows(rows, 3)
    runner.run(given(availableNow=True), Until(drain=True))
    assert {**before, **counts_in("merged")} == expected + late
    assert in_windows() == expected, "the last batch is published once more, and no window opens again"


def test_rows_that_spark_reads_are_counted_along_with_rows_of_files(runner: Runner) -> None:
    rows = runner.folder / "rows"
    expected = sum((write_rows(rows, number) for number in range(3)), Counter[int]())
    ticks = {"name": "ticks", "format": "rate", "options": {"rowsPerSecond": 2000}, "select": ["value % 7 AS key", "value"]}
    given = manifest(
        "both",
        [files(rows), ticks],
        [counting(), counting("ticked", of="ticks", policy="partial-key")],
        [memory_sink("filed", "counts"), memory_sink("ticked", "ticked")],
        trigger={},
    )
    history = runner.run(given, Until(batches=6))
    assert counts_in("filed") == expected
    ticked = counts_in("ticked")
    assert set(ticked) == set(range(7))
    assert sum(ticked.values()) == sum(batch.rows for batch in history.batches) - sum(expected.values())
    assert max(ticked.values()) - min(ticked.values()) <= 1, "ticks are numbered without gaps"


def test_kafka_in_kafka_out(runner: Runner, kafka_broker: Broker) -> None:
    taken, given_out = kafka_broker.topic(partitions=2), kafka_broker.topic()
    expected = Counter[str]()
    for partition in range(2):
        keys = [f"c{(number * number + partition) % 13}" for number in range(1500)]
        expected.update(keys)
        kafka_broker.send(taken, [json.dumps({"customer": key}).encode() for key in keys], partition)
    connection = {"kafka.bootstrap.servers": kafka_broker.servers}
    source = {
        "name": "purchases", "format": "kafka",
        "options": {**connection, "subscribe": taken, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 700},
        "select": ["json_extract_string(decode(value), '$.customer') AS customer"],
    }  # fmt: skip
    upper = {"name": "upper", "inputs": ["purchases"], "run": "map", "with": {"select": ["upper(customer) AS key"]}}
    sink = {"name": "out", "input": "counts", "format": "kafka", "options": {**connection, "topic": given_out}}
    history = runner.run(manifest("through-kafka", [source], [upper, counting(of="upper")], [sink]))
    assert sum(batch.rows > 0 for batch in history.batches) == 5
    messages = [json.loads(message.value() or b"") for message in kafka_broker.committed(given_out)]
    assert counts_seen(messages) == {key.upper(): count for key, count in expected.items()}


def test_a_consumer_group_shows_how_far_committed_batches_have_read(runner: Runner, kafka_broker: Broker) -> None:
    topic, group = kafka_broker.topic(partitions=2), "streamtopology-watched-taken"
    for partition in range(2):
        kafka_broker.send(topic, [b"%d" % (number % 7) for number in range(1500)], partition)
    source = {
        "name": "taken", "format": "kafka", "select": ["decode(value) AS key"],
        "options": {
            "kafka.bootstrap.servers": kafka_broker.servers, "subscribe": topic, "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": 700,
        },
    }  # fmt: skip
    given = manifest("watched", [source], [counting(of="taken")], [memory_sink("watched", "counts")])

    assert sum(batch.rows for batch in runner.run(given, Until(batches=2)).batches) == 1400
    assert kafka_broker.group_offsets(group, topic, 2) == [700, 700]  # and not what Spark has planned since

    with kafka_broker.member_of(group, topic):  # Kafka refuses our offsets now
        refused = runner.run(given)
    assert sum(batch.rows for batch in refused.batches) == 1600
    assert counts_in("watched") == Counter(str(number % 7) for number in range(1500) for _ in range(2))
    assert ["consumer group" in event.text for event in refused.events].count(True) == 1
    assert kafka_broker.group_offsets(group, topic, 2) == [700, 700]

    assert sum(batch.rows for batch in runner.run(given).batches) == 0
    assert kafka_broker.group_offsets(group, topic, 2) == [1500, 1500], "a start reports what the former run could not"
