"""The examples that the repository ships run as they are, and give what a plain computation gives."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import psycopg
import pytest
import yaml

from streamtopology.jobs import failpoints
from streamtopology.jobs.connectors.sinks.memory import memory_rows
from streamtopology.jobs.runtime.streaming_query import Until
from streamtopology.topology import groupings

if TYPE_CHECKING:  # the plugins are imported by pytest, which then explains their assertions
    from support.kafka import Broker
    from support.topologies import Runner

from support.manifests import EXECUTORS, counts_in

pytest_plugins = ("support.kafka", "support.postgres", "support.topologies")
pytestmark = pytest.mark.timeout(300)

EXAMPLES = Path(__file__).parents[2] / "examples"
STREAMTOPOLOGY = Path(sys.executable).with_name("streamtopology")


def example(name: str, **options: object) -> dict[str, Any]:
    """An example of the repository on our executors, its source with these options, with its result in memory."""
    given = yaml.safe_load((EXAMPLES / name).read_text())
    spec = given["spec"]
    spec["executors"] = EXECUTORS
    spec["sources"][0]["options"].update(options)
    spec["sinks"][0].update(format="memory", options={})
    return given


def words() -> Counter[str]:
    """Every word of the example text, counted without anything of ours."""
    text = " ".join(path.read_text() for path in (EXAMPLES / "data/text").glob("*.txt"))
    return Counter(re.findall("[a-z]+", text.lower()))


def test_words_are_counted_though_their_edge_is_split(runner: Runner) -> None:
    history = runner.run(example("wordcount.yaml", path=str(EXAMPLES / "data/text/*.txt")), base=EXAMPLES)
    assert counts_in("counts", "word") == words()
    parts = {(report.operator, report.instance) for batch in history.batches for report in batch.reports if report.rows}
    assert len({instance for operator, instance in parts if operator == "counts.partial"}) == 3


def test_words_are_added_to_a_table_once_though_a_killed_driver_gives_a_batch_again(postgres: str, tmp_path: Path) -> None:
    """It dies after the function has the second batch, and before it can note that."""
    command = [str(STREAMTOPOLOGY), "run", "examples/upsert.yaml", "--work-dir", str(tmp_path)]
    environment = {**os.environ, "DATABASE": postgres, failpoints.VARIABLE: f"sink.published:2@{tmp_path}/died"}
    ended = [subprocess.run(command, cwd=EXAMPLES.parent, env=environment, check=False).returncode for _ in range(2)]
    assert ended == [-signal.SIGKILL, 0]
    with psycopg.connect(postgres) as database:
        assert dict(database.execute("SELECT word, count FROM totals").fetchall()) == words()


POLICIES = sorted(path.name for path in (EXAMPLES / "policies").glob("*.yaml"))


@pytest.mark.parametrize("name", POLICIES)
def test_words_are_counted_under_every_policy(runner: Runner, name: str) -> None:
    given = example(f"policies/{name}", path=str(EXAMPLES / "data/text/*.txt"))
    given["spec"]["sinks"][0]["name"] = given["metadata"]["name"]
    history = runner.run(given, base=EXAMPLES)
    assert counts_in(given["metadata"]["name"], "word") == words()
    counted = {report.operator for batch in history.batches for report in batch.reports}
    splits = groupings.get(name.removesuffix(".yaml")).splits_keys
    assert ("counts.partial" in counted) == splits


def test_every_policy_that_runs_has_an_example() -> None:
    shown = {name.removesuffix(".yaml") for name in POLICIES} | {"mixed", "partial-key"}  # flights, wordcount
    assert shown == set(groupings.GROUPINGS)


def test_a_self_join_equals_duckdbs(runner: Runner) -> None:
    given = example("self-join.yaml", path=str(EXAMPLES / "data/trades"))
    runner.run(given, base=EXAMPLES)
    expected = duckdb.sql(f"""
        WITH trades AS (SELECT * FROM read_csv('{EXAMPLES}/data/trades/*.csv', header = true))
        SELECT a.symbol, a.id AS earlier, b.id AS later FROM trades a JOIN trades b USING (symbol)
        WHERE a.at < b.at AND b.at - a.at <= INTERVAL 2 SECONDS AND abs(b.price / a.price - 1) > 0.01
    """).fetchall()
    found = [(row["symbol"], row["earlier"], row["later"]) for row in memory_rows("jumps").to_pylist()]
    assert expected
    assert sorted(found) == sorted(expected)


def alarms() -> Iterator[tuple[int, float, float]]:
    """(sensor, celsius, drift) of each alarm: a file is a batch, and a batch's drifts are from the mean at its end."""
    number, total, alarmed = Counter[int](), defaultdict[int, float](float), set[int]()
    for path in sorted((EXAMPLES / "data/readings").glob("*.csv")):
        with path.open(newline="") as file:
            readings = [(int(row["sensor"]), float(row["celsius"])) for row in csv.DictReader(file)]
        for sensor, celsius in readings:
            number[sensor] += 1
            total[sensor] += celsius
        for sensor, celsius in readings:
            drift = celsius - total[sensor] / number[sensor]
            if abs(drift) <= 5:
                alarmed.discard(sensor)
            elif sensor not in alarmed:
                alarmed.add(sensor)
                yield sensor, celsius, drift


def test_operators_of_ones_own_raise_the_alarms_that_they_should(runner: Runner) -> None:
    given = example("own-operator.yaml", path=str(EXAMPLES / "data/readings"))
    runner.run(given, base=EXAMPLES)
    expected = sorted(alarms())
    found = sorted((row["sensor"], row["celsius"], row["drift"]) for row in memory_rows("alarms").to_pylist())
    assert len(expected) >= 10
    assert [row[:2] for row in found] == [row[:2] for row in expected]
    assert [row[2] for row in found] == pytest.approx([row[2] for row in expected])


def test_every_trip_is_enriched_once(runner: Runner) -> None:
    history = runner.run(example("enrich.yaml"), Until(batches=5), base=EXAMPLES)
    fares = memory_rows("fares").sort_by("trip").to_pydict()
    assert fares["trip"] == list(range(sum(batch.rows for batch in history.batches)))
    assert len(fares["trip"]) >= 10_000
    assert fares["miles"] == [trip % 97 for trip in fares["trip"]]
    assert fares["km"] == [miles * Decimal("1.609") for miles in fares["miles"]]
    assert fares["fare"] == [Decimal("2.5") + miles * Decimal("1.75") for miles in fares["miles"]]
    worked = {report.instance for batch in history.batches for report in batch.reports if report.rows}
    assert len(worked) == 3


def test_ten_most_frequent_words_of_all_are_ranked(runner: Runner) -> None:
    runner.run(example("top-ten.yaml", path=str(EXAMPLES / "data/text/*.txt")), base=EXAMPLES)
    newest = memory_rows("top").to_pylist()[-1]
    ranked = sorted(words().items(), key=lambda counted: (-counted[1], counted[0]))
    assert list(zip(newest["word"], newest["count"], strict=True)) == ranked[:10]


def test_current_values_of_updates_are_those_of_the_newest_batch(runner: Runner, tmp_path: Path) -> None:
    given = example("wordcount.yaml", path=str(EXAMPLES / "data/text/*.txt"))
    given["metadata"]["name"] = "current-values"
    given["spec"]["sinks"][0].update(format="parquet", options={"path": str(tmp_path / "counts")})
    runner.run(given, base=EXAMPLES)
    query = (EXAMPLES / "current_values.sql").read_text().replace("build/wordcount/counts", str(tmp_path / "counts"))
    assert Counter(dict(duckdb.sql(query).fetchall())) == words()
    updates = duckdb.sql(f"SELECT count(*) FROM '{tmp_path}/counts/*.parquet'").fetchall()[0][0]
    assert updates > len(words())


def test_sessions_equal_duckdbs(runner: Runner) -> None:
    given = example("sessions.yaml", path=str(EXAMPLES / "data/trades"))
    runner.run(given, Until(drain=True), base=EXAMPLES)
    expected = duckdb.sql(f"""
        WITH trades AS (SELECT symbol, "at"::TIMESTAMP AS t FROM read_csv('{EXAMPLES}/data/trades/*.csv', header = true)),
        begun AS (SELECT *, t - lag(t) OVER by_symbol <= INTERVAL 20 SECONDS AS goes_on FROM trades
                  WINDOW by_symbol AS (PARTITION BY symbol ORDER BY t)),
        numbered AS (SELECT *, count(*) FILTER (goes_on IS NOT true) OVER by_symbol AS session FROM begun
                     WINDOW by_symbol AS (PARTITION BY symbol ORDER BY t))
        SELECT symbol, min(t), max(t), count(*) FROM numbered GROUP BY symbol, session
    """).fetchall()
    rows = memory_rows("sessions").to_pylist()
    found = [(row["symbol"], row["start"].replace(tzinfo=None), row["end"].replace(tzinfo=None), row["rows"]) for row in rows]
    assert len(expected) > 100
    assert sorted(found) == sorted(expected)


def test_purchases_are_summed_by_customer_and_minute(runner: Runner, kafka_broker: Broker) -> None:
    purchases, spending = kafka_broker.topic(partitions=2), kafka_broker.topic()
    number, total = Counter[tuple[str, datetime]](), Counter[tuple[str, datetime]]()
    for partition in range(2):
        sent = [b"no JSON", b"\xff"]
        for second in range(0, 300, 2):
            customer, at = f"Zoë {second * second % 7}", datetime(2025, 1, 31, 12, second // 60, second % 60, tzinfo=UTC)
            purchase = {"customer": customer, "amount": second / 2, "at": at.isoformat()}
            sent.append(json.dumps(purchase, ensure_ascii=False).encode())
            number[customer, at.replace(second=0)] += 1
            total[customer, at.replace(second=0)] += second // 2
        kafka_broker.send(purchases, sent, partition)
    given = example("kafka.yaml", subscribe=purchases, **{"kafka.bootstrap.servers": kafka_broker.servers})
    options = {"kafka.bootstrap.servers": kafka_broker.servers, "topic": spending}
    given["spec"]["sinks"][0].update(format="kafka", options=options)
    given["spec"]["trigger"] = {"availableNow": True}
    runner.run(given, Until(drain=True), base=EXAMPLES)
    messages = [json.loads(message.value() or b"") for message in kafka_broker.committed(spending)]
    windows = {(m["customer"], datetime.fromisoformat(m["window_start"])): m for m in messages}
    assert len(windows) == len(messages) == len(number) > 10
    assert {window: message["purchases"] for window, message in windows.items()} == number
    assert {window: message["total"] for window, message in windows.items()} == pytest.approx(dict(total))
