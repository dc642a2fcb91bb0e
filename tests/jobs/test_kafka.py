"""Kafka in and out against a real broker: every committed batch once, whenever the process dies."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from support.connectors import read, stage
from support.spark_stream import run_query
from support.stages import Flow, manifest

from streamtopology import topology
from streamtopology.jobs.connectors.sinks import SinkError, Writer, open_sink
from streamtopology.jobs.connectors.sinks.kafka import BATCH_HEADER, KEPT_ENDS, KafkaSink
from streamtopology.jobs.connectors.sources.descriptor_stream import DescriptorStream, Positions
from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceError, SourceSpec, Tally
from streamtopology.jobs.connectors.sources.group_offsets import GroupOffsets
from streamtopology.jobs.connectors.sources.kafka import stream as kafka
from streamtopology.jobs.connectors.sources.kafka.fetcher import Fetcher
from streamtopology.jobs.connectors.sources.kafka.positions import TopicPosition
from streamtopology.jobs.connectors.sources.kafka.topic_look import check_topics
from streamtopology.jobs.connectors.sources.lag import SourceLag
from streamtopology.jobs.connectors.sources.schema.declared import KAFKA_SCHEMA
from streamtopology.jobs.driver.progress import BatchInput
from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.failpoints import POINTS, VARIABLE

if TYPE_CHECKING:  # the plugin is imported by pytest, which then explains its assertions
    from support.kafka import Broker

pytest_plugins = ("support.kafka",)
pytestmark = pytest.mark.clusters


@pytest.fixture(scope="module", autouse=True)
def no_consumer_outlives_the_broker(kafka_broker: Broker) -> Iterator[None]:
    """librdkafka would report every try to reach it, on the standard error of all tests to come."""
    yield
    kafka._fetcher.cache_clear()
    kafka._admin.cache_clear()
    gc.collect()  # consumers of readers that are in a cycle, or in a traceback that pytest has kept


WRITER = Writer(topology="flights", run="run-1")


def spec(broker: Broker, topic: str, **options: str) -> SourceSpec:
    given = {"kafka.bootstrap.servers": broker.servers, "subscribe": topic, "startingOffsets": "earliest"} | options
    return SourceSpec.of(topology.Source("in", "kafka", None, given), "flights")


def step(reader: DescriptorStream, start: Positions) -> tuple[list[Descriptor], Positions]:
    """What there is after `start`, and the positions after it."""
    end = reader.advance(start) or start
    return between(reader, start, end), end


def between(reader: DescriptorStream, start: Positions, end: Positions) -> list[Descriptor]:
    return [Descriptor.from_json(text) for text in reader.part(start, end).descriptors]


def at(offsets: dict[str, int], topic_id: str = "") -> TopicPosition:
    """A position by partition; without an id, as of a broker that has none."""
    return {"id": topic_id, "next": offsets}


def hours_ago(hours: int) -> int:
    """In milliseconds. Messages much older are deleted by Kafka's retention."""
    return int((time.time() - hours * 3600) * 1000)


def values(descriptors: list[Descriptor], source: SourceSpec) -> list[bytes]:
    return [value for d in descriptors for batch in read(d, source) for value in batch.column("value").to_pylist()]


# --- source


@pytest.mark.smoke
def test_offset_ranges_are_read_once_and_replayed(kafka_broker: Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic(partitions=2)
    sent = [b"value-%d" % n for n in range(2500)]
    kafka_broker.send(topic, sent[:1500], partition=0)
    kafka_broker.send(topic, sent[1500:], partition=1)
    source = spec(kafka_broker, topic, maxOffsetsPerTrigger="1000")
    reader = DescriptorStream([source], tmp_path)
    offset, batches = {}, []
    while (found := step(reader, offset))[1] != offset:
        batches.append((offset, *found))
        offset = found[1]
    assert [sum(d.rows for d in descriptors) for _, descriptors, _ in batches] == [1000, 1000, 500]
    restarted = DescriptorStream([source], tmp_path)
    for start, descriptors, end in batches:
        assert between(restarted, start, end) == descriptors
    assert sorted(v for _, descriptors, _ in batches for v in values(descriptors, source)) == sorted(sent)


def test_rows_have_sparks_columns(kafka_broker: Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic()
    kafka_broker.send(topic, [b"12345"])
    source = spec(kafka_broker, topic)
    reader = DescriptorStream([source], tmp_path)
    descriptors, _ = step(reader, {})
    (batch,) = read(descriptors[0], source)
    assert batch.schema == KAFKA_SCHEMA
    (row,) = batch.to_pylist()
    assert (row["key"], row["value"], row["topic"], row["partition"], row["offset"]) == (b"1234", b"12345", topic, 0, 0)
    assert row["timestamp"].year >= 2024


def test_rows_have_headers_and_kind_of_time_where_they_are_asked_for(kafka_broker: Broker, tmp_path: Path) -> None:
    """As Spark has them: NULL without headers; 0 for a time of the producer, 1 for one of the broker."""
    ours = kafka_broker.topic()
    kafka_broker.create(theirs := f"{ours}-theirs", config={"message.timestamp.type": "LogAppendTime"})
    producer = Producer({"bootstrap.servers": kafka_broker.servers})
    sent = [[("trace", b"\xff\x00"), ("trace", None), ("Zürich", "東京".encode())], None, [("", b"")]]
    for headers in sent:
        producer.produce(ours, b"v", headers=headers)
    producer.produce(theirs, b"v")
    producer.flush()
    select = ["topic", "headers", "timestampType"]
    source = replace(spec(kafka_broker, f"{ours}, {theirs}", includeHeaders="true"), select=tuple(select))
    descriptors, _ = step(DescriptorStream([source], tmp_path), {})
    rows = [row for d in descriptors for batch in read(d, source) for row in batch.to_pylist()]
    found = [row["headers"] and [(each["key"], each["value"]) for each in row["headers"]] for row in rows]
    assert found == [*sent, None]
    assert [(row["topic"], row["timestampType"]) for row in rows] == [(ours, 0)] * 3 + [(theirs, 1)]


def test_operators_take_a_header(kafka_broker: Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic()
    producer = Producer({"bootstrap.servers": kafka_broker.servers})
    for name in ("a", "b", "a"):
        producer.produce(topic, b"v", headers=[("other", b"x"), ("of", name.encode())])
    producer.flush()
    given = counted_values(kafka_broker.servers, topic, includeHeaders="true")
    given["spec"]["sources"][0]["select"] = ["decode(list_filter(headers, lambda h: h.key = 'of')[1].value) AS v"]
    run_query(flow := Flow(tmp_path, given))
    assert {row["v"]: row["count"] for row in flow.state("n")} == {"a": 2, "b": 1}


def test_aborted_transactions_are_not_rows(kafka_broker: Broker, tmp_path: Path) -> None:
    """Transaction marks take offsets but are no messages: a range that ends with them must end, too."""
    topic = kafka_broker.topic()
    producer = Producer({"bootstrap.servers": kafka_broker.servers, "transactional.id": topic})
    producer.init_transactions()
    for text, commits in ((b"one", True), (b"not this", False), (b"two", True), (b"nor this", False)):
        producer.begin_transaction()
        producer.produce(topic, text)
        producer.flush()
        producer.commit_transaction() if commits else producer.abort_transaction()
    source = spec(kafka_broker, topic)
    reader = DescriptorStream([source], tmp_path)
    descriptors, _ = step(reader, {})
    assert values(descriptors, source) == [b"one", b"two"]


def test_latest_means_the_first_start(kafka_broker: Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic()
    kafka_broker.send(topic, [b"before"])
    source = spec(kafka_broker, topic, startingOffsets="latest")
    assert DescriptorStream([source], tmp_path).advance({}) is None
    kafka_broker.send(topic, [b"after"])
    restarted = DescriptorStream([source], tmp_path)
    assert values(step(restarted, {})[0], source) == [b"after"]


def test_new_partitions_are_read_from_their_beginning(kafka_broker: Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic()
    source = spec(kafka_broker, topic)
    reader = DescriptorStream([source], tmp_path)
    assert reader.advance({}) is None
    kafka_broker.add_partitions(topic, 2)
    kafka_broker.send(topic, [b"new"], partition=1)
    descriptors, end = step(reader, {})
    assert values(descriptors, source) == [b"new"]
    assert end["in"][topic]["next"] == {"0": 0, "1": 1}


def test_available_now_ends_at_the_offsets_that_were_there(kafka_broker: Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic()
    kafka_broker.send(topic, [b"there"])
    source = spec(kafka_broker, topic)
    reader = DescriptorStream([source], tmp_path)
    reader.close_listing()
    kafka_broker.send(topic, [b"later"])
    descriptors, end = step(reader, {})
    assert values(descriptors, source) == [b"there"]
    assert step(reader, end) == ([], end)


def test_lost_offsets_are_refused(kafka_broker: Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic()
    reader = DescriptorStream([spec(kafka_broker, topic)], tmp_path)
    with pytest.raises(SourceError, match="partition 0 holds offsets 0 to 0, but the stream is at 7"):
        reader.advance({"in": {topic: at({"0": 7})}})


def test_a_topic_that_does_not_exist_is_named(kafka_broker: Broker, tmp_path: Path) -> None:
    reader = DescriptorStream([spec(kafka_broker, "no-such-topic", failOnDataLoss="false")], tmp_path)
    with pytest.raises(SourceError, match=r"topic no-such-topic at .* cannot be read: there is none. Create it, or correct"):
        reader.advance({})


# --- the identity of a topic


ALLOWED = {"failOnDataLoss": "false"}


def test_topic_that_was_created_again_is_refused_with_a_way_on(kafka_broker: Broker, tmp_path: Path) -> None:
    """It has more messages than were read of the former one, so their offsets say nothing."""
    topic = kafka_broker.topic()
    kafka_broker.send(topic, [b"old-%d" % n for n in range(5)])
    reader = DescriptorStream([spec(kafka_broker, topic)], tmp_path)
    _, end = step(reader, {})
    kafka_broker.create_again(topic)
    new = [b"new-%d" % n for n in range(8)]
    kafka_broker.send(topic, new)
    for again in (reader, DescriptorStream([spec(kafka_broker, topic)], tmp_path)):
        with pytest.raises(SourceError, match=r"is not the one that was read: .*failOnDataLoss: false reads it from its first"):
            again.advance(end)
    allowed = spec(kafka_broker, topic, **ALLOWED)
    descriptors, after = step(DescriptorStream([allowed], tmp_path), end)
    assert values(descriptors, allowed) == new
    kafka_broker.send(topic, [b"newer"])
    descriptors, _ = step(DescriptorStream([spec(kafka_broker, topic)], tmp_path), after)
    assert values(descriptors, allowed) == [b"newer"], "after a batch the option can be true again"


def test_topic_that_was_created_again_with_fewer_partitions_is_refused(kafka_broker: Broker, tmp_path: Path) -> None:
    """So it is seen where brokers have no ids, too."""
    topic = kafka_broker.topic(partitions=2)
    start = {"in": {topic: at({"0": 0, "1": 0})}}
    kafka_broker.create_again(topic, partitions=1)
    with pytest.raises(SourceError, match=f"topic {topic} has no partition 1 any more: it was created again"):
        DescriptorStream([spec(kafka_broker, topic)], tmp_path).advance(start)
    _, end = step(DescriptorStream([spec(kafka_broker, topic, **ALLOWED)], tmp_path), start)
    assert end["in"][topic]["next"] == {"0": 0}


def test_planned_messages_of_a_former_topic_are_not_those_of_the_new_one(kafka_broker: Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic()
    kafka_broker.send(topic, [b"old-%d" % n for n in range(5)])
    reader = DescriptorStream([spec(kafka_broker, topic)], tmp_path)
    (planned,), end = step(reader, {})
    kafka_broker.create_again(topic)
    kafka_broker.send(topic, [b"new-%d" % n for n in range(8)])
    assert between(DescriptorStream([spec(kafka_broker, topic)], tmp_path), {}, end) == [planned]
    with pytest.raises(SourceError, match="is not the one that was read"):
        values([planned], spec(kafka_broker, topic))
    tally = Tally()
    assert (list(kafka.read_ranges([planned], spec(kafka_broker, topic, **ALLOWED), tally)), tally.skipped) == ([], 5)


def test_topic_that_is_deleted_while_it_is_read_gives_no_batch(kafka_broker: Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic()
    kafka_broker.send(topic, [b"old"])
    source = spec(kafka_broker, topic, **ALLOWED)
    reader = DescriptorStream([source], tmp_path)
    (planned,), _ = step(reader, {})
    tables = kafka.read_ranges([planned], source, Tally())
    assert next(tables)[1].num_rows == 1
    kafka_broker.create_again(topic)
    with pytest.raises(SourceError, match=f"topic {topic} was deleted while it was read; start again"):
        next(tables)


def test_topic_that_is_gone_is_refused_or_left_until_it_is_back(kafka_broker: Broker, tmp_path: Path) -> None:
    gone, other = kafka_broker.topic(), kafka_broker.topic()
    kafka_broker.send(gone, [b"old"])
    source = spec(kafka_broker, f"{gone}, {other}", **ALLOWED)
    _, end = step(reader := DescriptorStream([source], tmp_path), {})
    kafka_broker.delete(gone)
    kafka_broker.send(other, [b"goes on"])
    with pytest.raises(SourceError, match=f"topic {gone} at .* cannot be read: there is none.*failOnDataLoss: false continues"):
        DescriptorStream([spec(kafka_broker, f"{gone}, {other}")], tmp_path).advance(end)
    descriptors, after = step(reader, end)
    assert (values(descriptors, source), after["in"][gone]) == ([b"goes on"], end["in"][gone])
    kafka_broker.create(gone)
    kafka_broker.send(gone, [b"new"])
    descriptors, _ = step(reader, after)
    assert values(descriptors, source) == [b"new"]


def test_topic_that_is_subscribed_to_again_continues_where_it_was_left(kafka_broker: Broker, tmp_path: Path) -> None:
    one, two = kafka_broker.topic(), kafka_broker.topic()
    both, alone = spec(kafka_broker, f"{one},{two}"), spec(kafka_broker, one)
    kafka_broker.send(two, [b"read"])
    _, end = step(DescriptorStream([both], tmp_path), {})
    kafka_broker.send(one, [b"meanwhile"])
    kafka_broker.send(two, [b"later"])
    descriptors, end = step(DescriptorStream([alone], tmp_path), end)
    assert values(descriptors, alone) == [b"meanwhile"]
    descriptors, _ = step(DescriptorStream([both], tmp_path), end)
    assert values(descriptors, both) == [b"later"]


# --- a partition that goes on


def fetcher_of(source: SourceSpec) -> Fetcher:
    return kafka._fetcher(tuple(sorted(kafka.consumer_settings(source).items())))


def whole(reader: DescriptorStream, topic: str) -> Descriptor:
    """All messages of a topic of one partition."""
    ((planned,), _) = step(reader, {})
    assert planned.path == topic
    return planned


def test_ranges_that_follow_each_other_are_read_without_a_new_assignment(kafka_broker: Broker, tmp_path: Path) -> None:
    """Others may have read what is between them. Messages that have come already are used."""
    topic = kafka_broker.topic()
    sent = [b"%d" % n for n in range(100)]
    kafka_broker.send(topic, sent)
    source = spec(kafka_broker, topic)
    planned = whole(DescriptorStream([source], tmp_path), topic)
    for number, (start, end) in enumerate([(0, 1), (1, 30), (33, 60), (60, 100)]):
        part = planned.between(start, end)
        assert fetcher_of(source).goes_on_with(part) == (number > 0)
        assert values([part], source) == sent[start:end]


def test_range_that_is_read_again_begins_where_it_began(kafka_broker: Broker, tmp_path: Path) -> None:
    """As in the next attempt at a batch, or in that of a worker that had read further."""
    topic = kafka_broker.topic()
    sent = [b"%d" % n for n in range(2000)]
    kafka_broker.send(topic, sent)
    source = spec(kafka_broker, topic)
    planned = whole(DescriptorStream([source], tmp_path), topic)
    for start, end in [(0, 50), (0, 50), (20, 70), (1900, 2000), (60, 80)]:
        assert values([planned.between(start, end)], source) == sent[start:end]


def test_range_that_was_left_half_read_is_read_whole(kafka_broker: Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic()
    sent = [bytes(500_000) + b"%d" % n for n in range(60)]
    kafka_broker.send(topic, sent)
    source = spec(kafka_broker, topic)
    planned = whole(DescriptorStream([source], tmp_path), topic)
    tables = kafka.read_ranges([planned], source, Tally())
    assert next(tables)[1].num_rows < len(sent)
    tables.close()
    assert values([planned], source) == sent


def test_partitions_of_a_batch_are_read_with_what_came_between_them(kafka_broker: Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic(partitions=3)
    source = spec(kafka_broker, topic)
    reader, end = DescriptorStream([source], tmp_path), {}
    for batch in range(4):
        for partition in range(3):
            kafka_broker.send(topic, [b"%d-%d-%d" % (batch, partition, n) for n in range(50)], partition)
        descriptors, end = step(reader, end)
        read = values(descriptors, source)
        assert read == [b"%d-%d-%d" % (batch, partition, n) for partition in range(3) for n in range(50)]


def test_partition_that_is_not_read_is_let_go_before_it_fills_the_memory(kafka_broker: Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic(partitions=2)
    source = spec(kafka_broker, topic)
    reader = DescriptorStream([source], tmp_path)
    for partition in range(2):
        kafka_broker.send(topic, [b"first"], partition)
    descriptors, end = step(reader, {})
    values(descriptors, source)
    large = [bytes(500_000) + b"%d" % n for n in range(60)]
    for partition in range(2):
        kafka_broker.send(topic, large, partition)
    (read, unread), _ = step(reader, end)
    assert fetcher_of(source).goes_on_with(unread)
    assert values([read], source) == large
    assert not fetcher_of(source).goes_on_with(unread)
    assert values([unread], source) == large


def test_aborted_transactions_between_ranges_are_not_rows(kafka_broker: Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic()
    producer = Producer({"bootstrap.servers": kafka_broker.servers, "transactional.id": topic})
    producer.init_transactions()
    source = spec(kafka_broker, topic)
    reader, end = DescriptorStream([source], tmp_path), {"in": {topic: at({"0": 0})}}
    texts = ((b"one", True), (b"not this", False), (b"nor this", False), (b"two", True), (b"not that", False))
    for number, (text, commits) in enumerate(texts, start=1):
        producer.begin_transaction()
        producer.produce(topic, text)
        producer.flush()
        producer.commit_transaction() if commits else producer.abort_transaction()
        read: list[bytes] = []
        while end["in"][topic]["next"]["0"] < 2 * number:  # the message and the mark, which comes after the commit's answer
            descriptors, end = step(reader, end)
            read += values(descriptors, source)
        assert read == ([text] if commits else [])


@pytest.mark.parametrize(
    ("old", "of_the_new", "told"), [(10, 20, "was deleted"), (5, 20, "was deleted"), (5, 0, "holds offsets")]
)
def test_topic_that_is_created_again_between_two_ranges_gives_no_batch(
    kafka_broker: Broker, tmp_path: Path, old: int, of_the_new: int, told: str
) -> None:
    """Whether the messages of the former one have come already or not, and the new one has others at their offsets or none."""
    topic = kafka_broker.topic()
    kafka_broker.send(topic, [b"old-%d" % n for n in range(old)])
    source = spec(kafka_broker, topic)
    planned = whole(DescriptorStream([source], tmp_path), topic)
    assert len(values([planned.between(0, 5)], source)) == 5
    kafka_broker.create_again(topic)
    kafka_broker.send(topic, [b"new-%d" % n for n in range(of_the_new)])
    assert fetcher_of(source).goes_on_with(replace(planned, start=5, end=10))
    with pytest.raises(SourceError, match=f"topic {topic}.* {told}"):
        values([replace(planned, start=5, end=10)], source)


# --- a pattern of topics


def of_pattern(broker: Broker, pattern: str, **options: str) -> SourceSpec:
    given = {"kafka.bootstrap.servers": broker.servers, "subscribePattern": pattern, "startingOffsets": "earliest"} | options
    return SourceSpec.of(topology.Source("in", "kafka", None, given), "flights")


def test_topics_of_a_pattern_are_found_in_mid_run_and_read_from_their_first_messages(
    kafka_broker: Broker, tmp_path: Path
) -> None:
    first = kafka_broker.topic()
    second, other = f"{first}-2", f"other-{first}"
    kafka_broker.create(other)
    kafka_broker.send(first, [b"before"])
    kafka_broker.send(other, [b"of another name"])
    source = of_pattern(kafka_broker, f"{first}(-[0-9]+)?", startingOffsets="latest")
    reader = DescriptorStream([source], tmp_path)
    assert reader.advance({}) is None
    kafka_broker.create(second)
    kafka_broker.send(second, [b"a new topic"])
    kafka_broker.send(first, [b"later"])
    descriptors, end = step(reader, {})
    assert sorted(values(descriptors, source)) == [b"a new topic", b"later"]
    kafka_broker.add_partitions(second, 2)
    kafka_broker.send(second, [b"a new partition"], partition=1)
    for again in (reader, DescriptorStream([source], tmp_path)):
        descriptors, _ = step(again, end)
        assert values(descriptors, source) == [b"a new partition"]


def test_pattern_that_no_topic_matches_waits_for_one(kafka_broker: Broker, tmp_path: Path) -> None:
    later = f"later-{kafka_broker.topic()}"
    source = of_pattern(kafka_broker, f"later-{later[6:]}|nothing", startingTimestamp=str(hours_ago(0)))
    (doubt,) = check_topics(source)
    assert (doubt.path, "matches it; those that are created later are read" in str(doubt)) == ("options.subscribePattern", True)
    reader = DescriptorStream([source], tmp_path)
    assert reader.advance({}) is None
    kafka_broker.create(later)
    kafka_broker.send(later, [b"there"], times=[hours_ago(2)])
    assert values(step(reader, {})[0], source) == [b"there"]
    assert not list(check_topics(source))


def test_topic_of_a_pattern_that_is_gone_is_refused_or_left(kafka_broker: Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic()
    gone = f"{topic}-gone"
    kafka_broker.create(gone)
    kafka_broker.send(gone, [b"old"])
    _, end = step(DescriptorStream([of_pattern(kafka_broker, f"{topic}.*")], tmp_path), {})
    kafka_broker.delete(gone)
    kafka_broker.send(topic, [b"goes on"])
    with pytest.raises(SourceError, match=f"topic {gone} at .* cannot be read: there is none"):
        DescriptorStream([of_pattern(kafka_broker, f"{topic}.*")], tmp_path).advance(end)
    for pattern, options in ((f"{topic}.*", ALLOWED), (topic, {})):
        source = of_pattern(kafka_broker, pattern, **options)
        descriptors, after = step(DescriptorStream([source], tmp_path), end)
        assert (values(descriptors, source), after["in"][gone]) == ([b"goes on"], end["in"][gone])


def test_new_topic_that_is_gone_before_its_batch_is_read_ends_no_stream_that_allows_loss(
    kafka_broker: Broker, tmp_path: Path
) -> None:
    topic = kafka_broker.topic()
    source = of_pattern(kafka_broker, f"{topic}.*", **ALLOWED)
    reader = DescriptorStream([source], tmp_path)
    assert reader.advance({}) is None
    kafka_broker.create(new := f"{topic}-new")
    kafka_broker.send(new, [b"a", b"b"])
    end = reader.advance({})
    assert end is not None
    kafka_broker.delete(new)
    (planned,) = between(reader, {}, end)
    tally = Tally()
    assert (list(kafka.read_ranges([planned], source, tally)), tally.skipped) == ([], 2)
    kafka_broker.send(topic, [b"goes on"])
    assert values(step(reader, end)[0], source) == [b"goes on"]


def test_available_now_leaves_topics_that_come_later(kafka_broker: Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic()
    kafka_broker.send(topic, [b"there"])
    source = of_pattern(kafka_broker, f"{topic}.*")
    reader = DescriptorStream([source], tmp_path)
    reader.close_listing()
    kafka_broker.create(later := f"{topic}-later")
    kafka_broker.send(later, [b"later"])
    descriptors, end = step(reader, {})
    assert values(descriptors, source) == [b"there"]
    assert values(step(reader, end)[0], source) == []
    assert values(step(DescriptorStream([source], tmp_path), end)[0], source) == [b"later"]


def test_offsets_to_begin_at_are_those_of_all_topics_of_a_pattern(kafka_broker: Broker, tmp_path: Path) -> None:
    one = kafka_broker.topic()
    kafka_broker.create(two := f"{one}-2")
    for topic in (one, two):
        kafka_broker.send(topic, [b"0", topic.encode()])
    starting = {one: {"0": 1}, two: {"0": 1}}
    source = of_pattern(kafka_broker, f"{one}.*", startingOffsets=json.dumps(starting))
    assert sorted(values(step(DescriptorStream([source], tmp_path / "all"), {})[0], source)) == [one.encode(), two.encode()]
    source = of_pattern(kafka_broker, f"{one}.*", startingOffsets=json.dumps({one: {"0": 1}}))
    with pytest.raises(SourceError, match=f"lacks topic {two}, partition 0; it must name every partition"):
        DescriptorStream([source], tmp_path / "one").advance({})
    assert [finding.path for finding in check_topics(source)] == ["options.startingOffsets"]


# --- where to start


@pytest.mark.parametrize(
    ("offsets", "sentence"),
    [
        ({"0": 1}, "lacks topic {t}, partition 1; it must name every partition"),
        ({"0": 1, "1": 0, "2": 0}, "names topic {t}, partition 2, which is not there"),
        ({"0": 1, "7": -1}, "names topic {t}, partition 7, which is not there and lacks topic {t}, partition 1"),
        ({"0": 5, "1": 0}, "has offset 5 of topic {t}, partition 0, which holds offsets 0 to 4; name one of these"),
    ],
)
def test_starting_offsets_that_are_not_those_of_the_topic_are_refused(
    kafka_broker: Broker, tmp_path: Path, offsets: dict[str, int], sentence: str
) -> None:
    topic = kafka_broker.topic(partitions=2)
    kafka_broker.send(topic, [b"0", b"1", b"2", b"3"])
    source = spec(kafka_broker, topic, startingOffsets=json.dumps({topic: offsets}))
    with pytest.raises(SourceError) as refused:
        DescriptorStream([source], tmp_path).advance({})
    assert f"source 'in': option startingOffsets {sentence.format(t=topic)}" in str(refused.value)
    found = [text for text in map(str, check_topics(source)) if "startingOffsets" in text]
    assert len(found) == (0 if "5" in sentence else 1), "a warning: a checkpoint that has begun needs no offsets"


def test_starting_offsets_of_all_partitions_are_where_the_stream_begins(kafka_broker: Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic(partitions=3)
    for partition in range(3):
        kafka_broker.send(topic, [b"%d-%d" % (partition, n) for n in range(4)], partition)
    source = spec(kafka_broker, topic, startingOffsets=json.dumps({topic: {"0": 3, "1": -1, "2": -2}}))
    reader = DescriptorStream([source], tmp_path)
    descriptors, _ = step(reader, {})
    assert values(descriptors, source) == [b"0-3", b"2-0", b"2-1", b"2-2", b"2-3"]


HOUR = 3_600_000


def test_stream_begins_at_the_first_message_of_a_time(kafka_broker: Broker, tmp_path: Path) -> None:
    """One time for all partitions, before all else that says where a stream begins, as in Spark."""
    topic, begin = kafka_broker.topic(partitions=2), hours_ago(2)
    kafka_broker.send(topic, [b"a0", b"a1", b"a2"], 0, [begin, begin + 10, begin + 20])
    kafka_broker.send(topic, [b"b0", b"b1", b"b2"], 1, [begin + 9, begin + 10, begin + 11])
    of_all = {"startingTimestamp": str(begin + 10)}
    later = {topic: {"0": begin + 20, "1": begin + 11}}
    source = spec(kafka_broker, topic, **of_all, startingOffsetsByTimestamp=json.dumps(later))
    assert sorted(values(step(DescriptorStream([source], tmp_path / "all"), {})[0], source)) == [b"a1", b"a2", b"b1", b"b2"]
    source = spec(kafka_broker, topic, startingOffsetsByTimestamp=json.dumps(later))
    assert sorted(values(step(DescriptorStream([source], tmp_path / "each"), {})[0], source)) == [b"a2", b"b2"]


def test_partition_without_a_message_of_the_time_is_refused_or_begins_at_its_end(kafka_broker: Broker, tmp_path: Path) -> None:
    """The broker is asked once: after a crash of the first batch its end is the same."""
    topic, begin = kafka_broker.topic(partitions=2), hours_ago(2)
    kafka_broker.send(topic, [b"new"], 0, [begin + HOUR])
    kafka_broker.send(topic, [b"old"], 1, [begin])
    since = {"startingTimestamp": str(begin + 1)}
    with pytest.raises(SourceError, match=rf"partition 1 has no message of time {begin + 1} .*Strategy: latest"):
        DescriptorStream([spec(kafka_broker, topic, **since)], tmp_path).advance({})
    source = spec(kafka_broker, topic, **since, startingOffsetsByTimestampStrategy="latest")
    assert values(step(DescriptorStream([source], tmp_path), {})[0], source) == [b"new"]
    kafka_broker.send(topic, [b"late"], 1, [begin])
    restarted = DescriptorStream([source], tmp_path)
    assert values(step(restarted, {})[0], source) == [b"new", b"late"]


def test_times_must_be_those_of_all_partitions(kafka_broker: Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic(partitions=2)
    source = spec(kafka_broker, topic, startingOffsetsByTimestamp=json.dumps({topic: {"0": 5, "3": 5}}))
    sentence = f"names topic {topic}, partition 3, which is not there and lacks topic {topic}, partition 1; it must name every"
    with pytest.raises(SourceError, match=f"option startingOffsetsByTimestamp {sentence}"):
        DescriptorStream([source], tmp_path).advance({})
    (found,) = check_topics(source)
    assert (found.path, sentence in str(found)) == ("options.startingOffsetsByTimestamp", True)


def test_run_goes_on_from_its_commit_whatever_the_time_to_begin_at(kafka_broker: Broker, tmp_path: Path) -> None:
    topic, begin = kafka_broker.topic(), hours_ago(2)
    kafka_broker.send(topic, [b"before", b"first"], 0, [begin, begin + 1])
    run_query(flow := Flow(tmp_path, counted_values(kafka_broker.servers, topic, startingTimestamp=str(begin + 1))))
    kafka_broker.send(topic, [b"second"], 0, [begin])
    flow.start(counted_values(kafka_broker.servers, topic, startingTimestamp=str(begin)))
    run_query(flow)
    assert {row["v"]: row["count"] for row in flow.state("n")} == {"first": 1, "second": 1}


def test_an_unknown_client_setting_is_named(kafka_broker: Broker, tmp_path: Path) -> None:
    typo = {"kafka.security.protocoll": "SSL"}
    with pytest.raises(SourceError, match=r"source 'in': .*security\.protocoll.*correct its kafka\.\* options"):
        DescriptorStream([spec(kafka_broker, "t", **typo)], tmp_path)
    options = {"kafka.bootstrap.servers": kafka_broker.servers, "topic": "t"} | typo
    with pytest.raises(SinkError, match=r"sink 'out': .*security\.protocoll.*correct its kafka\.\* options"):
        open_sink(topology.Sink("out", "counts", "kafka", options), WRITER)


def test_settings_of_consumers_are_said_to_be_ignored_by_nobody(
    kafka_broker: Broker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = kafka_broker.topic()
    kafka_broker.send(topic, [b"there"])
    source = spec(kafka_broker, topic, **{"kafka.fetch.min.bytes": "2", "kafka.isolation.level": "read_uncommitted"})
    assert values(step(DescriptorStream([source], tmp_path), {})[0], source) == [b"there"]
    assert "ignored" not in capfd.readouterr().err


def test_messages_of_100_kb_come_in_tables_of_bounded_bytes(kafka_broker: Broker, tmp_path: Path) -> None:
    """50,000 of them, as one table once had, are more than an Arrow array can hold."""
    topic, count = kafka_broker.topic(), 2_000
    kafka_broker.send(topic, [b"%05d" % n + bytes(99_995) for n in range(count)])
    source = spec(kafka_broker, topic)
    ranges = kafka.read_ranges([Descriptor("in", "kafka", topic, 0, 0, count, count)], source, Tally())
    tables = [table for _, table in ranges]
    assert [offset for table in tables for offset in table["offset"].to_pylist()] == list(range(count))
    assert max(table.nbytes for table in tables) < 128 << 20


# --- messages that were deleted before they were read


def counted_values(servers: str, topic: str, **options: str) -> dict[str, Any]:
    operator = {"name": "n", "inputs": ["in"], "grouping": {"policy": "mixed", "key": "v"}, "run": "count"}
    given = manifest([operator], {"in": "unused INT"}, trigger={"availableNow": True})
    source: dict[str, Any] = {"name": "in", "format": "kafka", "select": ["CAST(value AS VARCHAR) AS v"]}
    source["options"] = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest", **options}
    given["spec"]["sources"] = [source]
    return given


def test_messages_deleted_before_they_were_read_are_counted_and_skipped(kafka_broker: Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic(partitions=2)
    kafka_broker.send(topic, [b"old-%d" % n for n in range(100)], partition=0)
    kafka_broker.send(topic, [b"old-%d" % n for n in range(60)], partition=1)
    flow = Flow(tmp_path, counted_values(kafka_broker.servers, topic, failOnDataLoss="false"))
    reader = DescriptorStream([SourceSpec.of(flow.topology.sources[0], "flow")], tmp_path / "files")
    start = {"in": {topic: at({"0": 0, "1": 0})}}
    kafka_broker.delete_before(topic, {0: 70, 1: 60})
    kafka_broker.send(topic, [b"new"], partition=0)
    end = reader.advance(start)
    assert end is not None
    flow.driver.batch(BatchInput(0, reader.part(start, end).descriptors))
    assert {row["v"]: row["count"] for row in flow.state("n")} == {"new": 1} | {f"old-{n}": 1 for n in range(70, 100)}
    skipped = [report.skipped_rows for report in flow.router.done[-1].results.sources if report.skipped_rows]
    assert sum(report["in"] for report in skipped) == 130
    assert flow.reported == [
        "source 'in': 130 rows were deleted before batch 0 read them; they are skipped (failOnDataLoss: false)"
    ]


def test_messages_deleted_before_they_were_read_end_the_run_by_default(kafka_broker: Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic()
    kafka_broker.send(topic, [b"old-%d" % n for n in range(10)])
    flow = Flow(tmp_path, counted_values(kafka_broker.servers, topic))
    kafka_broker.delete_before(topic, {0: 7})
    with pytest.raises(
        TopologyFailed, match=r"partition 0 holds offsets 7 to 10, but the stream is at 0.*failOnDataLoss: false continues"
    ):
        flow.driver.batch(BatchInput(0, [Descriptor("in", "kafka", topic, 0, 0, 10, 10).to_json()]))


def test_messages_of_100_kb_pass_in_batches_that_executors_hold(kafka_broker: Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic(partitions=2)
    for partition in range(2):
        kafka_broker.send(topic, [b"%d-" % n + b"x" * 100_000 for n in range(60)], partition=partition)
    flow = Flow(tmp_path, counted_values(kafka_broker.servers, topic))
    flow.driver.progress.sizes.share_of_memory = (1 << 20) / 2**30
    run_query(flow)
    assert sorted(row["count"] for row in flow.state("n")) == [2] * 60
    rows = [flow.checkpoint.read_commit(number).rows_in for number in flow.checkpoint.commits()]
    assert max(rows) <= (4 << 20) / 100_000, "of four tasks with a MiB each"
    assert [text.partition(";")[2] for text in flow.reported] == [" fewer are read at a time"]


def test_source_that_comes_back_needs_no_messages_that_were_read_before(kafka_broker: Broker, tmp_path: Path) -> None:
    """The messages at which the stream began are gone; the commit has the offsets at which the source was left."""
    topic = kafka_broker.topic()
    kafka_broker.send(topic, [b"old-%d" % n for n in range(10)])
    source = spec(kafka_broker, topic)
    _, left_at = step(DescriptorStream([source], tmp_path), {})
    kafka_broker.delete_before(topic, {0: 7})
    kafka_broker.send(topic, [b"new"])
    descriptors, end = step(DescriptorStream([source], tmp_path), left_at)
    assert values(descriptors, source) == [b"new"]
    assert end["in"][topic]["next"] == {"0": 11}


def test_run_goes_on_with_a_topic_that_was_created_again_only_where_that_is_allowed(
    kafka_broker: Broker, tmp_path: Path
) -> None:
    topic = kafka_broker.topic()
    kafka_broker.send(topic, [b"old-%d" % n for n in range(5)])
    given = counted_values(kafka_broker.servers, topic)
    run_query(flow := Flow(tmp_path, given))
    kafka_broker.create_again(topic)
    kafka_broker.send(topic, [f"Zürich \\ 東京 '{n}'".encode() for n in range(8)])
    flow.start(given)
    with pytest.raises(TopologyFailed, match=f"topic {topic} is not the one that was read"):
        run_query(flow)
    flow.start(counted_values(kafka_broker.servers, topic, failOnDataLoss="false"))
    run_query(flow)
    everything = [f"old-{n}" for n in range(5)] + [f"Zürich \\ 東京 '{n}'" for n in range(8)]
    assert {row["v"]: row["count"] for row in flow.state("n")} == dict.fromkeys(everything, 1)
    assert [text.partition(";")[0] for text in flow.reported] == [f"source 'in': topic {topic} was deleted and created again"]


# --- consumer group, for lag monitors


def end_of(source: SourceSpec, offsets: dict[str, int]) -> Positions:
    """The end of a batch, by partition."""
    return {source.name: {source.options["subscribe"]: at(offsets)}}


def test_a_group_is_where_the_newest_committed_batch_ended(kafka_broker: Broker) -> None:
    topic = kafka_broker.topic(partitions=2)
    reported: list[str] = []
    groups = GroupOffsets([source := spec(kafka_broker, topic)], reported.append)
    assert kafka_broker.group_offsets("streamtopology-flights-in", topic, 2) == [None, None]
    for number in range(49):
        groups.committed(end_of(source, {"0": number, "1": 2 * number}))
    groups.close()
    assert (kafka_broker.group_offsets("streamtopology-flights-in", topic, 2), reported) == ([48, 96], [])


def test_a_group_of_ones_own_is_used(kafka_broker: Broker) -> None:
    topic = kafka_broker.topic()
    groups = GroupOffsets([source := spec(kafka_broker, topic, **{"kafka.group.id": f"of-{topic}"})], print)
    groups.committed(end_of(source, {"0": 7}))
    groups.close()
    assert kafka_broker.group_offsets(f"of-{topic}", topic) == [7]
    assert kafka_broker.group_offsets("streamtopology-flights-in", topic) == [None]


def test_a_broker_that_is_away_is_waited_for_by_nobody_and_reported_once(kafka_broker: Broker) -> None:
    away = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.log_level": "0"}
    reported: list[str] = []
    groups = GroupOffsets([source := spec(kafka_broker, "t", **away)], reported.append, seconds=2.0)
    for number in range(3):
        groups.committed(end_of(source, {"0": number}))
    assert reported == [], "a batch was kept until Kafka answered"
    groups.close()
    assert len(reported) == 1
    assert reported[0].startswith("source 'in': consumer group 'streamtopology-flights-in' takes no offsets: ")


def test_the_group_is_informed_with_the_sources_own_settings(kafka_broker: Broker) -> None:
    """A client with TLS does not reach a broker without."""
    topic = kafka_broker.topic()
    secure = spec(kafka_broker, topic, **{"kafka.security.protocol": "SSL", "kafka.log_level": "0"})
    reported: list[str] = []
    groups = GroupOffsets([secure], reported.append)
    groups.committed(end_of(secure, {"0": 7}))
    groups.close()
    assert len(reported) == 1
    assert kafka_broker.group_offsets("streamtopology-flights-in", topic) == [None]


# --- sink


def sink_of(broker: Broker, topic: str) -> topology.Sink:
    return topology.Sink(f"out-{topic}", "counts", "kafka", {"kafka.bootstrap.servers": broker.servers, "topic": topic})


def staged(folder: Path, batch: int, rows: int = 3) -> list[Path]:
    """Two staged files; the rows say which batch they are of."""
    paths = [folder / f"staged-{batch}-{part}.arrow" for part in range(2)]
    for path in paths:
        table = pa.record_batch({"batch": [batch] * rows, "part": [path.name] * rows, "n": list(range(rows))})
        stage(path, table.schema, [table])
    return paths


def batches_seen(broker: Broker, topic: str) -> list[int]:
    return [int(dict(message.headers() or [])[BATCH_HEADER]) for message in broker.committed(topic)]


def test_lag_is_counted_after_the_newest_commit(kafka_broker: Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic(partitions=2)
    kafka_broker.send(topic, [b"a", b"b"], partition=0)
    kafka_broker.send(topic, [b"c"], partition=1)
    reported: list[str] = []
    positions: dict[str, Any] | None = None
    lag = SourceLag([spec(kafka_broker, topic)], tmp_path, lambda: positions, reported.append)
    lag.count()
    assert lag.rows == {"in": None}, "nothing is committed yet"
    positions = {"in": {topic: at({"0": 0, "1": 0})}}
    lag.count()
    assert lag.rows == {"in": 3}
    positions = {"in": {topic: at({"0": 2, "1": 0})}}
    lag.count()
    assert (lag.rows, reported) == ({"in": 1}, [])


def test_lag_of_a_topic_that_is_gone_is_unknown_and_reported_once(kafka_broker: Broker, tmp_path: Path) -> None:
    reported: list[str] = []
    lag = SourceLag([spec(kafka_broker, "nowhere")], tmp_path, lambda: {"in": {"nowhere": at({"0": 0})}}, reported.append)
    for _ in range(2):
        lag.count()
    assert lag.rows == {"in": None}
    assert len(reported) == 1
    assert "the autoscaler does not see the rows that wait" in reported[0]


def test_lag_that_cannot_be_counted_is_unknown_whatever_the_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else the autoscaler would go by the last figure for ever."""

    def fails(*_: object) -> None:
        raise RuntimeError("the consumer is closed")

    monkeypatch.setattr("streamtopology.jobs.connectors.sources.lag.open_stream", fails)
    reported: list[str] = []
    source = SourceSpec("in", "kafka", None, {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t"})
    lag = SourceLag([source], tmp_path, lambda: {"in": {"t": at({"0": 0})}}, reported.append)
    lag.rows = {"in": 5}
    lag.count()
    assert lag.rows == {"in": None}
    assert "the consumer is closed. Batches continue" in reported[0]


@pytest.mark.smoke
def test_each_batch_is_sent_once(kafka_broker: Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic()
    for last in (1, 2):  # the second sink is a restarted process: it begins with the last committed batch
        sink = open_sink(sink_of(kafka_broker, topic), WRITER)
        for batch in range(last + 1):
            sink.publish(batch, staged(tmp_path, batch))
            sink.publish(batch, staged(tmp_path, batch))
        sink.close()
    assert batches_seen(kafka_broker, topic) == [0] * 6 + [1] * 6 + [2] * 6
    first = kafka_broker.committed(topic)[0]
    assert first.value() == b'{"batch":0,"part":"staged-0-0.arrow","n":0}'
    assert first.key() is None


def test_batch_that_ends_elsewhere_is_refused(kafka_broker: Broker, tmp_path: Path) -> None:
    """The checkpoint went back: batch 1 has other rows, which the topic's marker took for those that it has."""
    topic = kafka_broker.topic()
    first = open_sink(sink_of(kafka_broker, topic), WRITER)
    for batch in range(KEPT_ENDS + 2):
        first.publish(batch, staged(tmp_path, batch), f"{batch:012x}")
    first.close()
    restored = open_sink(sink_of(kafka_broker, topic), WRITER)
    newest = KEPT_ENDS + 1
    for batch, end in ((0, "too old to be known"), (newest, None), (newest, f"{newest:012x}")):
        restored.publish(batch, staged(tmp_path, batch), end)
    for batch in (2, newest):
        with pytest.raises(SinkError, match=f"topic {topic} has another batch {batch}, .*before the checkpoint went back"):
            restored.publish(batch, staged(tmp_path, batch), "elsewhere")
    restored.publish(newest + 1, [], "without rows")
    restored.publish(newest + 2, staged(tmp_path, newest + 2), "new")
    restored.publish(newest + 1, [], "without rows, again")
    with pytest.raises(SinkError, match=f"has another batch {newest + 1}"):
        restored.publish(newest + 1, staged(tmp_path, newest + 1), "with rows")
    assert batches_seen(kafka_broker, topic) == [batch for batch in (*range(newest + 1), newest + 2) for _ in range(6)]


def test_columns_key_and_value_are_the_message(kafka_broker: Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic()
    rows = pa.record_batch({"value": ["a", None], "key": [1, 2]})
    stage(tmp_path / "rows.arrow", rows.schema, [rows])
    open_sink(sink_of(kafka_broker, topic), WRITER).publish(0, [tmp_path / "rows.arrow"])
    assert [(m.key(), m.value()) for m in kafka_broker.committed(topic)] == [(b"1", b"a"), (b"2", None)]


def test_another_checkpoint_counts_its_batches_again(kafka_broker: Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic()
    for run in ("run-1", "run-2"):
        open_sink(sink_of(kafka_broker, topic), Writer("flights", run)).publish(0, staged(tmp_path, 0))
    assert batches_seen(kafka_broker, topic) == [0] * 12


def test_a_second_process_fences_the_first(kafka_broker: Broker, tmp_path: Path) -> None:
    topic = kafka_broker.topic()
    first = open_sink(sink_of(kafka_broker, topic), WRITER)
    first.publish(0, staged(tmp_path, 0))
    open_sink(sink_of(kafka_broker, topic), WRITER).publish(1, staged(tmp_path, 1))
    with pytest.raises(SinkError) as refused:
        first.publish(2, staged(tmp_path, 2))
    assert str(refused.value) == (
        f"sink 'out-{topic}': batch 2 not sent to topic {topic}: a newer process publishes with its transactional.id, "
        f"streamtopology-flights-out-{topic}-run-1, and Kafka refuses this one. So two processes run from one checkpoint, or "
        "from copies of its folder. Stop one of them; a copy that has an id of its own is made with `streamtopology state "
        "clone MANIFEST URI`"
    )
    assert batches_seen(kafka_broker, topic) == [0] * 6 + [1] * 6


def test_checkpoints_of_one_topology_publish_side_by_side(kafka_broker: Broker, tmp_path: Path) -> None:
    """As dev and prod do on one broker, or a clone beside its original: they are other jobs, though of one name."""
    topics = [kafka_broker.topic(), kafka_broker.topic()]
    options = [{"kafka.bootstrap.servers": kafka_broker.servers, "topic": topic} for topic in topics]
    jobs = [
        open_sink(topology.Sink("out", "counts", "kafka", given), Writer("flights", run))
        for given, run in zip(options, ("of-dev", "of-prod"), strict=True)
    ]
    for batch in range(3):
        for sink in jobs:
            sink.publish(batch, staged(tmp_path, batch))
    for topic in topics:
        assert batches_seen(kafka_broker, topic) == [0] * 6 + [1] * 6 + [2] * 6


_PUBLISHES_TWO = """
import sys
from collections.abc import Iterator
from pathlib import Path
from streamtopology.jobs.connectors.sinks import Writer, open_sink
from streamtopology import topology

servers, topic, *files = sys.argv[1:]
sink = open_sink(topology.Sink("out-" + topic, "counts", "kafka", {"kafka.bootstrap.servers": servers, "topic": topic}),
                 Writer("flights", "run-1"))
for batch in range(2):
    sink.publish(batch, [Path(file) for file in files[2 * batch : 2 * batch + 2]])
"""


@pytest.mark.parametrize("point", [point for point in POINTS if point.startswith("kafka.")])
def test_a_death_around_the_commit_loses_and_doubles_nothing(kafka_broker: Broker, tmp_path: Path, point: str) -> None:
    """kill -9 in the second batch's transaction; the successor publishes that batch again."""
    topic = kafka_broker.topic()
    files = [*staged(tmp_path, 0), *staged(tmp_path, 1)]
    died = subprocess.run(
        [sys.executable, "-c", _PUBLISHES_TWO, kafka_broker.servers, topic, *map(str, files)],
        check=False,
        timeout=60,
        env={**os.environ, VARIABLE: f"{point}:2"},
    )
    assert died.returncode == -signal.SIGKILL
    restarted = open_sink(sink_of(kafka_broker, topic), WRITER)
    for batch in (1, 2):
        restarted.publish(batch, staged(tmp_path, batch))
    assert batches_seen(kafka_broker, topic) == [0] * 6 + [1] * 6 + [2] * 6


def secured(broker: Broker) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.secured, "kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": broker.user, "kafka.sasl.password": "${env:KAFKA_PASSWORD}",
    }  # fmt: skip


def test_password_of_the_environment_opens_source_and_sink(
    kafka_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", kafka_broker.password)
    topic = kafka_broker.topic()
    sink = open_sink(topology.Sink("out", "counts", "kafka", {"topic": topic, **secured(kafka_broker)}), WRITER)
    sink.publish(0, staged(tmp_path, 0))
    source = spec(kafka_broker, topic, **secured(kafka_broker))
    reader = DescriptorStream([source], tmp_path / "offsets")
    descriptors, _ = step(reader, {})
    assert len(values(descriptors, source)) == 6


def test_variable_that_is_not_set_is_named_and_no_password_is(kafka_broker: Broker, tmp_path: Path) -> None:
    missing = "option kafka.sasl.password needs the environment variable KAFKA_PASSWORD, which is not set here"
    with pytest.raises(SourceError, match=f"source 'in': {missing}"):
        DescriptorStream([spec(kafka_broker, "t", **secured(kafka_broker))], tmp_path).advance({})
    with pytest.raises(SinkError, match=f"sink 'out': {missing}"):
        open_sink(topology.Sink("out", "counts", "kafka", {"topic": "t", **secured(kafka_broker)}), WRITER)


def test_a_batch_that_failed_can_be_sent_again(kafka_broker: Broker, tmp_path: Path) -> None:
    """All rows are sent, then the commit fails: nothing of the attempt may be seen."""
    from confluent_kafka import KafkaError, KafkaException, Producer

    refused: list[object] = []

    class RefusedOnce(Producer):
        def send_offsets_to_transaction(self, *given: object) -> None:
            if not refused:
                refused.append(given)
                raise KafkaException(KafkaError(KafkaError._FAIL))
            super().send_offsets_to_transaction(*given)

    topic = kafka_broker.topic()
    sink = KafkaSink("out", topic, {"bootstrap.servers": kafka_broker.servers}, WRITER, RefusedOnce)
    with pytest.raises(SinkError, match="batch 0 not sent to topic"):
        sink.publish(0, staged(tmp_path, 0))
    sink.publish(0, staged(tmp_path, 0))
    assert batches_seen(kafka_broker, topic) == [0] * 6
