"""Kafka topics as streams of offset ranges, read by the pinned tasks with librdkafka: no jar, no JVM consumer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal, cast

import numpy as np
import pyarrow as pa
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from streamtopology.jobs.connectors.kafka_retry import retried
from streamtopology.jobs.connectors.kafka_settings import kafka_settings
from streamtopology.jobs.connectors.sources import durable_file
from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceError, SourceSpec, Tally, positive_option
from streamtopology.jobs.connectors.sources.schema.declared import KAFKA_SCHEMA

# Topic -> partition (JSON keys are strings) -> next offset to read.
Offsets = dict[str, dict[str, int]]

_TIMEOUT_SECONDS = 30.0
# For how long a consumer group's offsets are tried to be committed.
GROUP_SECONDS = 5.0
# Size of the messages that are put into one table; one fetch more may be in it.
_TABLE_ROWS = 50_000
_TABLE_BYTES = 16 << 20
_WEIGHED = 256
# The size of a message as foreseen before any was read.
_MESSAGE_BYTES = 1024
_MOST_MILLISECONDS = np.iinfo(np.int64).max // 1000
_RECONNECTING = {"reconnect.backoff.ms": "1000"}  # librdkafka logs every try, 20 a second by default


def starting_offsets(spec: SourceSpec) -> Literal["earliest", "latest"] | Offsets:
    """Option startingOffsets: earliest, latest (default) or Spark's JSON `{"topic": {"0": 23, "1": -2}}`."""
    text = spec.options.get("startingOffsets", "latest")
    if text in ("earliest", "latest"):
        return cast(Literal["earliest", "latest"], text)
    try:
        parsed = json.loads(text)
        return {topic: {_partition(p): _offset(o) for p, o in parts.items()} for topic, parts in parsed.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise SourceError(
            f"source {spec.name!r}: option startingOffsets must be earliest, latest or JSON such as "
            f'{{"topic": {{"0": 23, "1": -2}}}}, not {text!r}'
        ) from error


def _partition(name: str) -> str:
    if not 0 <= int(name) < 2**31:
        raise ValueError(f"{name} is no partition")
    return str(int(name))


def _offset(value: object) -> int:
    """A whole number; -1 is the end of a partition, -2 its beginning."""
    if not isinstance(value, int) or isinstance(value, bool) or not -2 <= value < 2**63:
        raise ValueError(f"{value} is no offset")
    return value


class KafkaStream:
    """One Kafka source: offsets are `Offsets`.

    Where the stream begins is written to `folder` once, so that `latest` means the same after a crash of the first
    batch. Partitions that appear later are read from their beginning.
    """

    def __init__(self, spec: SourceSpec, folder: Path) -> None:
        self._spec = spec
        self._record = folder / "initial.json"
        self._topics = [topic.strip() for topic in spec.options["subscribe"].split(",")]
        self._limit = positive_option(spec, "maxOffsetsPerTrigger")
        self._fails_on_loss = fails_on_loss(spec)
        try:
            self._consumer = Consumer(_settings(spec))
        except KafkaException as error:  # a setting librdkafka does not know or take
            raise SourceError(f"source {spec.name!r}: {error.args[0].str()}; correct its kafka.* options") from error
        self._closed_at: Offsets | None = None
        durable_file.make_folder(folder)

    def initial_offset(self) -> Offsets:
        if not self._record.exists():
            durable_file.create(self._record, json.dumps(self._resolve(starting_offsets(self._spec))))
        return json.loads(self._record.read_text())

    def close_listing(self) -> None:
        self._closed_at = {topic: {p: high for p, (_, high) in self._range(topic).items()} for topic in self._topics}

    def advance(self, start: Offsets) -> Offsets:
        begin: Offsets = {}
        available: Offsets = {}
        for topic in self._topics:
            begin[topic], available[topic] = {}, {}
            for partition, (low, high) in self._range(topic).items():
                at = start.get(topic, {}).get(partition, low)
                self._refuse_loss(topic, partition, at, low, high)
                begin[topic][partition] = max(at, low)
                end = high if self._closed_at is None else self._closed_at.get(topic, {}).get(partition, at)
                available[topic][partition] = max(end, begin[topic][partition])
        end = available if self._limit is None else _limited(begin, available, self._limit)
        return start if end == start else end

    def between(self, start: Offsets, end: Offsets) -> Iterator[Descriptor]:
        for topic, partitions in end.items():
            for partition, stop in partitions.items():
                begin = self._begin(start, topic, partition)
                if begin < stop:
                    size = (stop - begin) * _MESSAGE_BYTES
                    yield Descriptor(self._spec.name, "kafka", topic, int(partition), begin, stop, stop - begin, size)

    def check(self, start: Offsets, end: Offsets) -> bool:
        """Messages never change."""
        return False

    def cut(self, start: Offsets, end: Offsets, share: float) -> Offsets:
        begin = {topic: {p: self._begin(start, topic, p) for p in partitions} for topic, partitions in end.items()}
        waiting = sum(stop - begin[topic][p] for topic, partitions in end.items() for p, stop in partitions.items())
        return _limited(begin, end, max(1, int(share * waiting)))

    def furthest(self, one: Offsets, other: Offsets) -> Offsets:
        furthest = {topic: dict(partitions) for topic, partitions in one.items()}
        for topic, partitions in other.items():
            reached = furthest.setdefault(topic, {})
            reached.update((partition, max(at, reached.get(partition, at))) for partition, at in partitions.items())
        return furthest

    def waiting(self, start: Offsets) -> int:
        """The messages from `start` on, those of transactions' control records included."""
        return sum(
            max(0, high - max(low, start.get(topic, {}).get(partition, low)))
            for topic in self._topics
            for partition, (low, high) in self._range(topic).items()
        )

    def unread(self, start: Offsets) -> str | None:
        count = self.waiting(start)
        return None if not count else "1 message" if count == 1 else f"{count:,} messages"

    def _begin(self, start: Offsets, topic: str, partition: str) -> int:
        """The first offset to read: of a partition that is new, its first."""
        known = start.get(topic, {}).get(partition)
        return self._range(topic)[partition][0] if known is None else known

    def _refuse_loss(self, topic: str, partition: str, at: int, low: int, high: int) -> None:
        if low <= at <= high or not self._fails_on_loss:
            return
        raise _lost(self._spec, topic, partition, at, low, high)

    def _resolve(self, starting: Literal["earliest", "latest"] | Offsets) -> Offsets:
        resolved: Offsets = {}
        for topic in self._topics:
            resolved[topic] = {}
            for partition, (low, high) in self._range(topic).items():
                offset = starting if isinstance(starting, str) else starting.get(topic, {}).get(partition, "latest")
                known = {"earliest": low, -2: low, "latest": high, -1: high}
                resolved[topic][partition] = known.get(offset, offset)  # type: ignore[arg-type]
        return resolved

    def _range(self, topic: str) -> dict[str, tuple[int, int]]:
        """Partition -> (first offset, last stable offset + 1), in partition order."""
        try:
            metadata = self._consumer.list_topics(topic, timeout=_TIMEOUT_SECONDS).topics[topic]
            if metadata.error is not None:
                raise KafkaException(metadata.error)
            return {
                str(p): self._consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=_TIMEOUT_SECONDS)
                for p in sorted(metadata.partitions)
            }
        except KafkaException as error:
            raise _unreachable(self._spec, topic, error) from error


class KafkaGroup:
    """The consumer group of a source: a name under which Kafka keeps how far it has been read. It has no members."""

    def __init__(self, spec: SourceSpec, seconds: float = GROUP_SECONDS) -> None:
        self.name = group_of(spec)
        self._seconds = seconds
        given = {name: value for name, value in client_settings(spec).items() if name != "group.id"}
        self._client = AdminClient({**_RECONNECTING, **given})  # unlike a consumer it waits for no broker when let go

    def commit(self, offsets: Offsets) -> None:
        """Have the group at `offsets`; waits for the answer, some seconds at most. Raises SourceError."""
        marks = [TopicPartition(topic, int(p), at) for topic, partitions in offsets.items() for p, at in partitions.items()]
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


def _limited(begin: Offsets, available: Offsets, limit: int) -> Offsets:
    """At most `limit` offsets, dealt to partitions in proportion to what they hold, at least one where there is any."""
    waiting = sum(end - begin[t][p] for t, partitions in available.items() for p, end in partitions.items())
    if waiting <= limit:
        return available
    return {
        topic: {
            p: begin[topic][p] + min(end - begin[topic][p], max(1, (end - begin[topic][p]) * limit // waiting))
            for p, end in partitions.items()
        }
        for topic, partitions in available.items()
    }


def fails_on_loss(spec: SourceSpec) -> bool:
    """Option failOnDataLoss: whether messages that were deleted before they were read end the run."""
    return spec.options.get("failOnDataLoss", "true").lower() == "true"


def read_range(descriptor: Descriptor, spec: SourceSpec, tally: Tally) -> Iterator[pa.Table]:
    """The committed messages of an offset range, columns of `KAFKA_SCHEMA`; aborted ones and gaps are left out.

    Offsets that were deleted are counted in `tally` and skipped, or refused with SourceError, as failOnDataLoss says. One range
    of a source at a time: ranges share the process's consumer.
    """
    consumer = _consumer(tuple(sorted(_settings(spec).items())))
    reached, rows, size = descriptor.start, list[Message](), 0
    try:
        consumer.assign([TopicPartition(descriptor.path, descriptor.part, descriptor.start)])
        while reached < descriptor.end:
            fetched = _fetched(consumer, descriptor.end - reached)
            marks = [message for message in fetched if message.error() is not None]
            rows += fetched if not marks else [message for message in fetched if message.error() is None]
            if any(_says_deleted(mark) for mark in marks):
                reached = _after_deleted(consumer, descriptor, spec, _after_last(rows, reached), tally)
            else:
                reached = max(_position_after(message, descriptor, spec) for message in [*marks, fetched[-1]])
            size += _value_bytes(fetched)
            if len(rows) >= _TABLE_ROWS or size >= _TABLE_BYTES:
                yield _table(rows, descriptor)
                rows, size = [], 0
    except (KafkaException, TimeoutError) as error:
        raise _unreachable(spec, f"{descriptor.path}, partition {descriptor.part}, offset {reached},", error) from error
    finally:
        consumer.unassign()
    if rows:
        yield _table(rows, descriptor)


def _fetched(consumer: Consumer, wanted: int) -> list[Message]:
    """The next message, waited for, and those that came with it: `consume` alone would wait until it has them all."""
    first = consumer.poll(_TIMEOUT_SECONDS)
    if first is None:
        raise TimeoutError(f"no message in {_TIMEOUT_SECONDS:.0f} s")
    return [first, *consumer.consume(min(wanted, _TABLE_ROWS), timeout=0)]


def _value_bytes(messages: list[Message]) -> int:
    """Estimate the size of the messages' values; of many some are weighed, evenly spread."""
    step = max(1, len(messages) // _WEIGHED)
    return step * sum(map(len, messages[::step]))


def _says_deleted(mark: Message) -> bool:
    """True if the broker no longer has the offset that the consumer is at: auto.offset.reset is `error`."""
    error = mark.error()
    return error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET


def _after_last(rows: list[Message], before: int) -> int:
    return cast(int, rows[-1].offset()) + 1 if rows else before


def _after_deleted(consumer: Consumer, descriptor: Descriptor, spec: SourceSpec, at: int, tally: Tally) -> int:
    """Move `consumer` from `at` to the first offset that exists, at most to the range's end; return it."""
    topic, partition = descriptor.path, descriptor.part
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_SECONDS)
    exists = low <= at <= high  # then the mark is an old one, of a place that was left
    if not exists and fails_on_loss(spec):
        raise _lost(spec, topic, partition, at, low, high)
    reached = at if exists else min(low, descriptor.end) if at < low else descriptor.end
    tally.skipped += reached - at
    consumer.assign([TopicPartition(topic, partition, reached)])
    return reached


def _lost(spec: SourceSpec, topic: str, partition: int | str, at: int, low: int, high: int) -> SourceError:
    return SourceError(
        f"source {spec.name!r}: topic {topic}, partition {partition} holds offsets {low} to {high}, but the stream is at {at}: "
        "rows were deleted before they were read (retention, or the topic was created again). Option failOnDataLoss: false "
        "continues with the remaining rows"
    )


def _position_after(message: Message, descriptor: Descriptor, spec: SourceSpec) -> int:
    """The offset reached with `message`; the end-of-partition event is behind transaction marks, which are no rows."""
    offset = cast(int, message.offset())  # a fetched message has one
    error = message.error()
    if error is None:
        return offset + 1
    if error.code() == KafkaError._PARTITION_EOF:
        return offset
    raise _unreachable(spec, descriptor.path, KafkaException(error))


def _table(messages: list[Message], descriptor: Descriptor) -> pa.Table:
    """The messages below the descriptor's end as rows."""
    offsets = np.array([message.offset() for message in messages], dtype=np.int64)
    inside = messages[: int(np.searchsorted(offsets, descriptor.end))]
    timestamps = kafka_timestamps(np.array([message.timestamp()[1] for message in inside], np.int64))
    return pa.table(
        [
            pa.array([message.key() for message in inside], pa.binary()),
            pa.array([message.value() for message in inside], pa.binary()),
            pa.repeat(descriptor.path, len(inside)),
            pa.repeat(pa.scalar(descriptor.part, pa.int32()), len(inside)),
            pa.array(offsets[: len(inside)]),
            timestamps,
        ],
        schema=KAFKA_SCHEMA,
    )


def kafka_timestamps(milliseconds: np.ndarray) -> pa.Array:
    """The timestamps of messages (int64[n] milliseconds since 1970); NULL for one that microseconds of 64 bits cannot hold,
    as a producer that writes another unit than milliseconds gives."""
    lost = (milliseconds > _MOST_MILLISECONDS) | (milliseconds < -_MOST_MILLISECONDS)
    micros = pa.array(np.where(lost, 0, milliseconds) * 1000, mask=lost)
    return micros.cast(KAFKA_SCHEMA.field("timestamp").type)


def _settings(spec: SourceSpec) -> dict[str, str]:
    defaults = {
        "group.id": group_of(spec),
        "isolation.level": "read_committed",
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


@cache
def _consumer(settings: tuple[tuple[str, str], ...]) -> Consumer:
    """One consumer per process and setting: connecting costs more than reading a small range."""
    return Consumer(dict(settings))


def _unreachable(spec: SourceSpec, topic: str, error: Exception) -> SourceError:
    servers = spec.options.get("kafka.bootstrap.servers")
    return SourceError(f"source {spec.name!r}: topic {topic} at {servers} cannot be read: {error}")
