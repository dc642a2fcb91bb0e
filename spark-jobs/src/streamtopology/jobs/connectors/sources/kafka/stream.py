"""Kafka topics as streams of offset ranges, read by the pinned tasks with librdkafka: no jar, no JVM consumer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
    Uuid,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import ListOffsetsResultInfo, OffsetSpec
from confluent_kafka.admin._topic import TopicDescription

from streamtopology.jobs.connectors.kafka_retry import retried
from streamtopology.jobs.connectors.kafka_settings import kafka_settings
from streamtopology.jobs.connectors.sources import durable_file
from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceError, SourceSpec, Tally, positive_option
from streamtopology.jobs.connectors.sources.kafka.fetcher import TIMEOUT_SECONDS, Fetcher, place_of, says_deleted, value_bytes
from streamtopology.jobs.connectors.sources.kafka.options import matching, pattern_of, starting_at, topics_of
from streamtopology.jobs.connectors.sources.kafka.positions import (
    NextOffsets,
    Offsets,
    Times,
    TopicNow,
    TopicPosition,
    another_topic,
    further,
    is_same,
    limited,
    lost_messages,
    next_in,
    refuse_loss,
    refuse_mismatch,
    resolved,
    resolved_times,
)
from streamtopology.jobs.connectors.sources.schema.declared import KAFKA_SCHEMA, kafka_schema

# Size of the messages that are put into one table; one fetch more may be in it.
_TABLE_ROWS = 50_000
_TABLE_BYTES = 16 << 20
# The size of a message as foreseen before any was read.
_MESSAGE_BYTES = 1024
_MOST_MILLISECONDS = np.iinfo(np.int64).max // 1000
_NO_ID = str(Uuid(0, 0))
_ERRORS_ALONE = {"log_level": "3"}  # it would warn of settings of consumers, which it does not use
_RECONNECTING = {"reconnect.backoff.ms": "1000"}  # librdkafka logs every try, 20 a second by default


class KafkaStream:
    """One Kafka source: offsets are `Offsets`.

    Where the stream begins is written to `folder` once, so that `latest` means the same after a crash of the first
    batch. Partitions that appear later are read from their beginning, and so are topics that come to match a pattern. A topic
    that is not subscribed to any more keeps its position, as one that was deleted does.
    """

    def __init__(self, spec: SourceSpec, folder: Path) -> None:
        self._spec = spec
        self._record = folder / "initial.json"
        self._pattern = pattern_of(spec)
        self._limit = positive_option(spec, "maxOffsetsPerTrigger")
        self._fails_on_loss = fails_on_loss(spec)
        try:
            self._consumer = Consumer(consumer_settings(spec))
        except KafkaException as error:  # a setting librdkafka does not know or take
            raise SourceError(f"source {spec.name!r}: {error.args[0].str()}; correct its kafka.* options") from error
        self._closed_at: dict[str, TopicPosition] | None = None
        durable_file.make_folder(folder)

    def initial_offset(self) -> Offsets:
        if not self._record.exists():
            durable_file.create(self._record, json.dumps(self._first_offsets()))
        return json.loads(self._record.read_text())

    def _first_offsets(self) -> Offsets:
        starting, there = starting_at(self._spec), self._look({})
        if not isinstance(starting, Times):
            return resolved(self._spec.name, starting, there)
        if not isinstance(starting.by_partition, int):
            refuse_mismatch(self._spec.name, "startingOffsetsByTimestamp", starting.by_partition, there)
        return resolved_times(self._spec.name, starting, self._at_times(starting, there), there)

    def _at_times(self, times: Times, there: Mapping[str, TopicNow]) -> NextOffsets:
        """By partition the offset of the first message of its time or later, -1 where there is none."""
        found: NextOffsets = {}
        for topic, now in there.items():
            asked = [TopicPartition(topic, int(p), times.of(topic, p)) for p in now.ranges]
            try:
                marks = self._consumer.offsets_for_times(asked, timeout=TIMEOUT_SECONDS)
                for mark in marks:
                    if mark.error is not None:
                        raise KafkaException(mark.error)
            except KafkaException as error:
                raise _unreachable(self._spec, topic, error) from error
            found[topic] = {str(mark.partition): max(mark.offset, -1) for mark in marks}
        return found

    def close_listing(self) -> None:
        there = self._look({topic: {"id": "", "next": {}} for topic in topics_of(self._spec)})
        self._closed_at = resolved(self._spec.name, "latest", there)

    def advance(self, start: Offsets) -> Offsets:
        there, begin, available = self._look(start), NextOffsets(), NextOffsets()
        for topic, now in there.items():
            if self._fails_on_loss and topic in start:
                refuse_loss(self._spec.name, topic, start[topic], now)
            read = next_in(now.id, start.get(topic))
            closed = None if self._closed_at is None else next_in(now.id, self._closed_at.get(topic))
            begin[topic] = {p: max(read.get(p, low), low) for p, (low, _) in now.ranges.items()}
            available[topic] = {
                p: max(at, now.ranges[p][1] if closed is None else closed.get(p, at)) for p, at in begin[topic].items()
            }
        reached = available if self._limit is None else limited(begin, available, self._limit)
        end: Offsets = {**start, **{topic: {"id": now.id, "next": reached[topic]} for topic, now in there.items()}}
        return start if end == start else end

    def between(self, start: Offsets, end: Offsets) -> Iterator[Descriptor]:
        for topic, position in end.items():
            begin = self._begin(start, topic, position)
            for partition, stop in position["next"].items():
                rows = stop - begin[partition]
                if rows > 0:
                    yield Descriptor(
                        self._spec.name, "kafka", topic, int(partition), begin[partition], stop, rows, rows * _MESSAGE_BYTES,
                        position["id"],
                    )  # fmt: skip

    def check(self, start: Offsets, end: Offsets) -> bool:
        """Messages never change."""
        return False

    def changed(self, start: Offsets) -> list[str]:
        """Nothing: what was read cannot change."""
        return []

    def cut(self, start: Offsets, end: Offsets, share: float) -> Offsets:
        begin = {topic: self._begin(start, topic, position) for topic, position in end.items()}
        planned = {topic: position["next"] for topic, position in end.items()}
        waiting = sum(stop - begin[topic][p] for topic, partitions in planned.items() for p, stop in partitions.items())
        reached = limited(begin, planned, max(1, int(share * waiting)))
        return {topic: {"id": position["id"], "next": reached[topic]} for topic, position in end.items()}

    def furthest(self, one: Offsets, other: Offsets) -> Offsets:
        """Of two topics of a name the one that is planned counts: it was created later."""
        furthest = {**one, **other}
        for topic in one.keys() & other.keys():
            if is_same(one[topic]["id"], other[topic]["id"]):
                furthest[topic] = further(one[topic], other[topic])
        return furthest

    def waiting(self, start: Offsets) -> int:
        """The messages from `start` on, those of transactions' control records included."""
        return sum(
            max(0, high - max(low, next_in(now.id, start.get(topic)).get(partition, low)))
            for topic, now in self._look(start).items()
            for partition, (low, high) in now.ranges.items()
        )

    def unread(self, start: Offsets) -> str | None:
        count = self.waiting(start)
        return None if not count else "1 message" if count == 1 else f"{count:,} messages"

    def _begin(self, start: Offsets, topic: str, end: TopicPosition) -> dict[str, int]:
        """The first offsets to read on the way to `end`: of a partition that is new, its first; 0 of one that is gone again."""
        known = next_in(end["id"], start.get(topic))
        if end["next"].keys() <= known.keys():
            return known
        there = _topics(self._spec, [topic])
        first = {p: low for now in there.values() if now is not None for p, (low, _) in now.ranges.items()}
        return {**dict.fromkeys(end["next"], 0), **first, **known}

    def _look(self, known: Offsets) -> dict[str, TopicNow]:
        """The topics as they are now. Raises SourceError for one that is gone, unless it is `known` and loss is allowed."""
        found: dict[str, TopicNow] = {}
        topics = topics_of(self._spec) if self._pattern is None else self._matching(self._pattern, known)
        for topic, now in _topics(self._spec, topics).items():
            if now is not None:
                found[topic] = now
            elif self._fails_on_loss if topic in known else self._pattern is None:
                raise _gone(self._spec, topic)
        return found

    def _matching(self, pattern: re.Pattern[str], known: Iterable[str]) -> list[str]:
        """The topics of a pattern: those that there are, and those that are `known`, though they may be gone."""
        try:
            there = self._consumer.list_topics(timeout=TIMEOUT_SECONDS).topics
        except KafkaException as error:
            raise _unreachable(self._spec, f"of pattern {pattern.pattern}", error) from error
        return matching(pattern, {*there, *known})


class KafkaGroup:
    """The consumer group of a source: a name under which Kafka keeps how far it has been read. It has no members."""

    def __init__(self, spec: SourceSpec, seconds: float) -> None:
        self.name = group_of(spec)
        self._seconds = seconds
        self._client = admin(spec)  # unlike a consumer it waits for no broker when let go

    def commit(self, offsets: Offsets) -> None:
        """Have the group at `offsets`; waits for the answer, some seconds at most. Raises SourceError."""
        marks = [TopicPartition(topic, int(p), at) for topic, read in offsets.items() for p, at in read["next"].items()]
        try:
            retried(lambda: self._ask_for(marks), self._seconds)
        except KafkaException as error:
            raise SourceError(f"consumer group {self.name!r} takes no offsets: {error.args[0].str()}") from error

    def _ask_for(self, marks: list[TopicPartition]) -> None:
        asked = [ConsumerGroupTopicPartitions(self.name, marks)]
        answer = self._client.alter_consumer_group_offsets(asked, request_timeout=self._seconds)[self.name].result()
        for mark in answer.topic_partitions:
            if mark.error is not None:
                raise KafkaException(mark.error)


def fails_on_loss(spec: SourceSpec) -> bool:
    """Option failOnDataLoss: whether messages that were deleted before they were read end the run."""
    return spec.options.get("failOnDataLoss", "true").lower() == "true"


def read_ranges(descriptors: Sequence[Descriptor], spec: SourceSpec, tally: Tally) -> Iterator[tuple[Descriptor, pa.Table]]:
    """The committed messages of offset ranges, columns of `kafka_schema`; aborted ones and gaps are left out.

    Offsets that were deleted are counted in `tally` and skipped, or refused with SourceError, as failOnDataLoss says; with a
    topic that was created again since, all are. One thread at a time may read: all share the process's consumer.
    """
    fetcher = _fetcher(tuple(sorted(consumer_settings(spec).items())))
    fetcher.let_go_unread()
    others = _of_other_topics([each for each in descriptors if not fetcher.goes_on_with(each)], spec)
    if others and fails_on_loss(spec):
        raise SourceError(another_topic(spec.name, others[0].path))
    for descriptor in descriptors:
        if descriptor in others:
            tally.skipped += descriptor.end - descriptor.start
        else:
            yield from ((descriptor, table) for table in _read_there(fetcher, descriptor, spec, tally))
    if deleted := _of_other_topics([each for each in descriptors if each not in others], spec):
        raise _deleted(spec, deleted[0].path)


def _of_other_topics(descriptors: Sequence[Descriptor], spec: SourceSpec) -> list[Descriptor]:
    """Those whose topic is not the one any more of which they have offsets."""
    now = _described(spec, list(dict.fromkeys(each.path for each in descriptors)))

    def is_there(descriptor: Descriptor) -> bool:
        topic = now[descriptor.path]
        return topic is not None and is_same(_id_of(topic), descriptor.topic_id)

    return [descriptor for descriptor in descriptors if not is_there(descriptor)]


def _read_there(fetcher: Fetcher, descriptor: Descriptor, spec: SourceSpec, tally: Tally) -> Iterator[pa.Table]:
    reached, rows, size, schema, fetched = descriptor.start, list[Message](), 0, kafka_schema(spec), list[Message]()
    try:
        if not fetcher.goes_on_with(descriptor):
            fetcher.begin(descriptor, descriptor.start)
        while reached < descriptor.end:
            fetched = fetcher.next(descriptor, descriptor.end - reached)
            rows += [m for m in fetched if m.error() is None and cast(int, m.offset()) >= descriptor.start]
            reached = _after_last(rows, reached)
            marks = [message for message in fetched if message.error() is not None]
            if reached < descriptor.end and any(says_deleted(mark) for mark in marks):
                reached = _after_deleted(fetcher, descriptor, spec, reached, tally)
            elif reached < descriptor.end and marks:
                reached = max(reached, *(_end_of_partition(mark, descriptor, spec) for mark in marks))
            size += value_bytes(fetched)
            if len(rows) >= _TABLE_ROWS or size >= _TABLE_BYTES:
                yield _table(rows, descriptor, schema)
                rows, size = [], 0
    except (KafkaException, TimeoutError) as error:
        if isinstance(error, TimeoutError) and _of_other_topics([descriptor], spec):
            raise _deleted(spec, descriptor.path) from error
        raise _unreachable(spec, f"{descriptor.path}, partition {descriptor.part}, offset {reached},", error) from error
    finally:
        if reached >= descriptor.end:
            fetcher.keep(descriptor, fetched)
        else:
            fetcher.let_go([place_of(descriptor)])
    if rows:
        yield _table(rows, descriptor, schema)


def _after_last(rows: list[Message], before: int) -> int:
    return cast(int, rows[-1].offset()) + 1 if rows else before


def _after_deleted(fetcher: Fetcher, descriptor: Descriptor, spec: SourceSpec, at: int, tally: Tally) -> int:
    """Go on from `at` at the first offset that exists, at most at the range's end; return it."""
    topic, partition = descriptor.path, descriptor.part
    low, high = fetcher.consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=TIMEOUT_SECONDS)
    exists = low <= at <= high  # then the mark is an old one, of a place that was left
    if not exists and fails_on_loss(spec):
        raise SourceError(lost_messages(spec.name, topic, partition, at, low, high))
    reached = at if exists else min(low, descriptor.end) if at < low else descriptor.end
    tally.skipped += reached - at
    fetcher.begin(descriptor, reached)
    return reached


def _end_of_partition(mark: Message, descriptor: Descriptor, spec: SourceSpec) -> int:
    """The offset of an end of the partition, which is behind transaction marks, that are no rows."""
    error = mark.error()
    if error is not None and error.code() == KafkaError._PARTITION_EOF:
        return cast(int, mark.offset())
    raise _unreachable(spec, descriptor.path, KafkaException(error))


def _table(messages: list[Message], descriptor: Descriptor, schema: pa.Schema) -> pa.Table:
    """The messages below the descriptor's end as rows."""
    offsets = np.array([message.offset() for message in messages], dtype=np.int64)
    inside = messages[: int(np.searchsorted(offsets, descriptor.end))]
    columns: dict[str, Any] = {
        "key": [message.key() for message in inside],
        "value": [message.value() for message in inside],
        "topic": pa.repeat(descriptor.path, len(inside)),
        "partition": pa.repeat(pa.scalar(descriptor.part, pa.int32()), len(inside)),
        "offset": offsets[: len(inside)],
        "timestamp": kafka_timestamps(np.array([message.timestamp()[1] for message in inside], np.int64)),
    }
    if "timestampType" in schema.names:  # Spark's numbers are those of Kafka's own client: -1, 0, 1
        columns["timestampType"] = [message.timestamp()[0] - TIMESTAMP_CREATE_TIME for message in inside]
    if "headers" in schema.names:
        columns["headers"] = [_headers(message) for message in inside]
    return pa.table(columns, schema=schema)


def _headers(message: Message) -> list[dict[str, object]] | None:
    """NULL of a message without, as in Spark."""
    return [{"key": key, "value": value} for key, value in message.headers() or ()] or None


def kafka_timestamps(milliseconds: np.ndarray) -> pa.Array:
    """The timestamps of messages (int64[n] milliseconds since 1970); NULL for one that microseconds of 64 bits cannot hold,
    as a producer that writes another unit than milliseconds gives."""
    lost = (milliseconds > _MOST_MILLISECONDS) | (milliseconds < -_MOST_MILLISECONDS)
    micros = pa.array(np.where(lost, 0, milliseconds) * 1000, mask=lost)
    return micros.cast(KAFKA_SCHEMA.field("timestamp").type)


def consumer_settings(spec: SourceSpec) -> dict[str, str]:
    """All settings of the consumers of a source. Raises SourceError."""
    defaults = {
        "group.id": group_of(spec),
        "isolation.level": "read_committed",
        # For how long a partition that is assigned may wait; librdkafka's own are a second and half a second.
        "fetch.queue.backoff.ms": "10",
        "fetch.wait.max.ms": "100",
        "queued.max.messages.kbytes": "16384",  # fetched ahead; librdkafka's own 64 MiB would be twice a task's rows
        **_RECONNECTING,
    }
    ours = {"auto.offset.reset": "error", "enable.auto.commit": "false", "enable.partition.eof": "true"}
    return defaults | client_settings(spec) | ours


def client_settings(spec: SourceSpec) -> dict[str, str]:
    """The manifest's settings for clients: servers, security and whatever else. Raises SourceError."""
    return kafka_settings(spec.options, lambda why: SourceError(f"source {spec.name!r}: {why}"))


def group_of(spec: SourceSpec) -> str:
    """Of this source of this topology alone, unless the manifest says otherwise: others may read the same topic."""
    return client_settings(spec).get("group.id", f"streamtopology-{spec.topology}-{spec.name}")


def admin(spec: SourceSpec) -> AdminClient:
    """One client per process and setting for what is asked about topics and groups."""
    given = {name: value for name, value in client_settings(spec).items() if name != "group.id"}
    return _admin(tuple(sorted(({**_RECONNECTING, **_ERRORS_ALONE, **given}).items())))


@cache
def _admin(settings: tuple[tuple[str, str], ...]) -> AdminClient:
    return AdminClient(dict(settings))


def _topics(spec: SourceSpec, topics: list[str]) -> dict[str, TopicNow | None]:
    """Topics as they are now, partitions in their order; None for one that does not exist. Raises SourceError."""
    try:
        return retried(lambda: _look_at(spec, topics), TIMEOUT_SECONDS)
    except KafkaException as error:
        raise _unreachable(spec, ", ".join(topics), error) from error


def _look_at(spec: SourceSpec, topics: list[str]) -> dict[str, TopicNow | None]:
    described = _described(spec, topics)  # before the offsets: those of a newer topic are refused
    partitions = [TopicPartition(t, p.id) for t, now in described.items() if now is not None for p in now.partitions]
    asked = [_asked_offsets(spec, partitions, of()) for of in (OffsetSpec.earliest, OffsetSpec.latest)]
    ranges: dict[str, dict[str, tuple[int, int]]] = {topic: {} for topic in topics}
    for partition in sorted(partitions):
        low, high = (answers[partition].result().offset for answers in asked)
        ranges[partition.topic][str(partition.partition)] = low, high
    return {t: None if now is None else TopicNow(_id_of(now), ranges[t]) for t, now in described.items()}


def _asked_offsets(
    spec: SourceSpec, partitions: list[TopicPartition], which: OffsetSpec | None
) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
    """The first offsets of all partitions, or those after their last stable messages: one request for each broker."""
    if not partitions:
        return {}
    isolation = IsolationLevel[consumer_settings(spec)["isolation.level"].upper()]
    wanted = dict.fromkeys(partitions, cast(OffsetSpec, which))
    return admin(spec).list_offsets(wanted, isolation_level=isolation, request_timeout=TIMEOUT_SECONDS)


def _described(spec: SourceSpec, topics: list[str]) -> dict[str, TopicDescription | None]:
    """What the broker says of topics; None of one that does not exist. Raises SourceError."""
    described: dict[str, TopicDescription | None] = {}
    if not topics:
        return described
    asked = admin(spec).describe_topics(TopicCollection(topics), request_timeout=TIMEOUT_SECONDS)
    for topic, answer in asked.items():
        try:
            described[topic] = answer.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise _unreachable(spec, topic, error) from error
            described[topic] = None
    return described


def _id_of(topic: TopicDescription) -> str:
    """Kafka's id of a topic, "" where the broker has none."""
    found = str(topic.topic_id)
    return "" if found == _NO_ID else found


@cache
def _fetcher(settings: tuple[tuple[str, str], ...]) -> Fetcher:
    """One consumer per process and setting: connecting costs more than reading a small range."""
    return Fetcher(Consumer(dict(settings)))


def _unreachable(spec: SourceSpec, topic: str, error: Exception) -> SourceError:
    servers = spec.options.get("kafka.bootstrap.servers")
    return SourceError(f"source {spec.name!r}: topic {topic} at {servers} cannot be read: {error}")


def _deleted(spec: SourceSpec, topic: str) -> SourceError:
    return SourceError(f"source {spec.name!r}: topic {topic} was deleted while it was read; start again")


def _gone(spec: SourceSpec, topic: str) -> SourceError:
    servers = spec.options.get("kafka.bootstrap.servers")
    return SourceError(
        f"source {spec.name!r}: topic {topic} at {servers} cannot be read: there is none. Create it, or correct option "
        "subscribe; if it was read and is gone for good, option failOnDataLoss: false continues without it"
    )
