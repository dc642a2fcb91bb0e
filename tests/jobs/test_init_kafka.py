"""`streamtopology init TOPIC --servers`, against a real broker: its manifest is valid, its refusals have a remedy."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from support.manifests import manifest

from streamtopology.jobs.cli.main import main
from streamtopology.jobs.connectors.sources.kafka import stream as kafka
from streamtopology.jobs.runtime.preflight.checks import check_before_start
from streamtopology.topology import load

if TYPE_CHECKING:  # the plugin is imported by pytest, which then explains its assertions
    from support.kafka import Broker

pytest_plugins = ("support.kafka",)
pytestmark = [pytest.mark.clusters, pytest.mark.timeout(120)]


@pytest.fixture(scope="module", autouse=True)
def no_consumer_outlives_the_broker(kafka_broker: Broker) -> Iterator[None]:
    """librdkafka would report every try to reach it, on the standard error of all tests to come."""
    yield
    kafka._fetcher.cache_clear()
    kafka._admin.cache_clear()
    gc.collect()


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def init(topic: str, servers: str) -> dict[str, Any]:
    """The manifest written for `topic`, checked as `validate` does."""
    assert main(["init", topic, "--servers", servers, "--output", "made.yaml"]) == 0
    check_before_start(load(Path("made.yaml")), Path())
    assert len(Path("made.yaml").read_text().splitlines()) <= 50
    return yaml.safe_load(Path("made.yaml").read_text())["spec"]


def test_fields_of_json_messages_become_columns(kafka_broker: Broker) -> None:
    topic = kafka_broker.topic()
    orders = [{"user id": f"u{n % 9}", "amount": n / 2, "ts": 1_735_689_600_000 + n, "to": {"x": 1}} for n in range(300)]
    kafka_broker.send(topic, [b"no JSON", *(json.dumps(order).encode() for order in orders)])
    spec = init(topic, kafka_broker.servers)
    assert spec["operators"][0]["grouping"]["key"] == "user_id"
    assert spec["operators"][0]["with"]["aggregates"]["total_amount"] == "sum(amount)"
    assert spec["sources"][0]["watermark"]["column"] == "ts"
    assert spec["sources"][0]["options"]["subscribe"] == topic
    assert "trigger" not in spec


def test_fields_of_json_in_a_text_of_a_message_become_columns(kafka_broker: Broker) -> None:
    topic = kafka_broker.topic()
    orders = [{"op": "c", "after": json.dumps({"shop": f"s{n % 9}", "paid": n / 2})} for n in range(300)]
    kafka_broker.send(topic, [json.dumps(order).encode() for order in orders])
    spec = init(topic, kafka_broker.servers)
    assert spec["operators"][0]["grouping"]["key"] == "after_shop"
    assert spec["operators"][0]["with"]["aggregates"]["total_after_paid"] == "sum(after_paid)"


def test_the_first_messages_are_tried(kafka_broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    topic = kafka_broker.topic()
    kafka_broker.send(topic, [json.dumps({"user": f"u{n % 3}", "amount": 1}).encode() for n in range(300)])
    init(topic, kafka_broker.servers)
    capsys.readouterr()
    assert main(["try", "made.yaml", "--rows", "90"]) == 0
    assert "the first 90 rows\n" in capsys.readouterr().out


def test_the_first_messages_are_tried_wherever_a_stream_begins(
    kafka_broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    """With all columns that a source of Kafka can have."""
    topic = kafka_broker.topic()
    kafka_broker.send(topic, [b"a", b"b"])
    options = {"kafka.bootstrap.servers": kafka_broker.servers, "subscribe": topic, "includeHeaders": True, "kafka.acks": "all"}
    options |= {"startingTimestamp": 4_000_000_000_000, "startingOffsetsByTimestampStrategy": "latest"}
    source = {"name": "rows", "format": "kafka", "options": options, "select": ["*", "timestampType AS kind"]}
    operator = {"name": "n", "inputs": ["rows"], "run": "filter", "with": {"where": "kind = 0 AND headers IS NULL"}}
    sink = {"name": "out", "input": "n", "format": "parquet", "options": {"path": "out"}}
    Path("made.yaml").write_text(yaml.safe_dump(manifest("m", [source], [operator], [sink])))
    assert main(["try", "made.yaml"]) == 0
    assert "rows of 'n': 2 rows" in capsys.readouterr().out


def test_messages_that_are_texts_become_key_and_text(kafka_broker: Broker) -> None:
    topic = kafka_broker.topic()
    kafka_broker.send(topic, [f"word {n % 20}".encode() for n in range(300)])
    assert init(topic, kafka_broker.servers)["operators"][0]["grouping"]["key"] == "message_value"


def test_topic_without_messages_is_refused(kafka_broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    topic = kafka_broker.topic()
    assert main(["init", topic, "--servers", kafka_broker.servers]) == 2
    assert f"topic {topic} at {kafka_broker.servers} has no messages yet" in capsys.readouterr().err


def test_unknown_topic_is_refused_with_its_name(kafka_broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "nowhere", "--servers", kafka_broker.servers]) in (1, 2)
    assert "nowhere" in capsys.readouterr().err
    assert not list(Path().iterdir())
