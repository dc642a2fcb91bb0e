"""Kafka topics as streams of offset ranges, read by the pinned tasks with librdkafka: no jar, no JVM consumer."""

from __future__ import annotations

import json
import os
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

from streamtopology.jobs.kafka_retry import retried
from streamtopology.jobs.sources.descriptors import Descriptor, SourceError, SourceSpec, positive_option
from streamtopology.jobs.sources.reading import KAFKA_SCHEMA

Offsets = dict[str, dict[str, int]]
"""Topic -> partition (JSON keys are strings) -> next offset to read."""

_TIMEOUT_SECONDS = 30.0
_GROUP_SECONDS = 5.0
_TABLE_ROWS = 50_000
_RECONNECTING = {"reconnect.backoff.ms": "1000"}  # librdkafka logs every try, 20 a second by default


def starting_offsets(spec: SourceSpec) -> Literal["earliest", "latest"] | Offsets:
    """Option startingOffsets: earliest, latest (default) or Spark's JSON `{"topic": {"0": 23, "1": -2}}`."""
    text = spec.options.get("startingOffsets", "latest")
    if text in ("earliest", "latest"):
        return cast(Literal["earliest", "latest"], text)
    try:
        parsed = json.loads(text)
        return {topic: {str(int(p)): int(o) for p, o in parts.items()} for topic, parts in parsed.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise SourceError(
            f"source {spec.name!r}: option startingOffsets must be earliest, latest or JSON such as "
            f'{{"topic": {{"0": 23, "1": -2}}}}, not {text!r}'
        ) from error


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
        self._fails_on_loss = spec.options.get("failOnDataLoss", "true").lower() == "true"
        try:
            self._consumer = Consumer(_settings(spec))
        except KafkaException as error:  # a setting librdkafka does not know or take
            raise SourceError(f"source {spec.name!r}: {error.args[0].str()}; correct its kafka.* options") from error
        self._closed_at: Offsets | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def initial_offset(self) -> Offsets:
        if not self._record.exists():
            draft = self._record.with_name(f".{self._record.name}.{os.getpid()}")
            draft.write_text(json.dumps(self._resolve(starting_offsets(self._spec))))
            try:
                os.link(draft, self._record)
            except FileExistsError:
                pass  # another reader of this checkpoint decided first: its answer is read below
            finally:
                draft.unlink()
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
                begin = start.get(topic, {}).get(partition)
                if begin is None:
                    begin = self._range(topic)[partition][0]
                if begin < stop:
                    name = self._spec.name
                    yield Descriptor(name, "kafka", topic, int(partition), begin, stop, stop - begin)

    def _refuse_loss(self, topic: str, partition: str, at: int, low: int, high: int) -> None:
        if low <= at <= high or not self._fails_on_loss:
            return
        raise SourceError(
            f"source {self._spec.name!r}: topic {topic}, partition {partition} holds offsets {low} to {high}, but the "
            f"stream is at {at}: rows were deleted before they were read (retention, or the topic was made anew). "
            "Option failOnDataLoss: false goes on with what is there"
        )

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

    def __init__(self, spec: SourceSpec) -> None:
        self.name = group_of(spec)
        given = {name: value for name, value in _given(spec).items() if name != "group.id"}
        self._client = AdminClient({**_RECONNECTING, **given})  # unlike a consumer it waits for no broker when let go

    def commit(self, offsets: Offsets) -> None:
        """Have the group at `offsets`; waits for the answer, some seconds at most. Raises SourceError."""
        marks = [TopicPartition(topic, int(p), at) for topic, partitions in offsets.items() for p, at in partitions.items()]
        try:
            retried(lambda: self._ask_for(marks), _GROUP_SECONDS)
        except KafkaException as error:
            raise SourceError(f"consumer group {self.name!r} takes no offsets: {error.args[0].str()}") from error

    def _ask_for(self, marks: list[TopicPartition]) -> None:
        asked = [ConsumerGroupTopicPartitions(self.name, marks)]
        answer = self._client.alter_consumer_group_offsets(asked, request_timeout=_GROUP_SECONDS)[self.name].result()
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


def read_range(descriptor: Descriptor, spec: SourceSpec) -> Iterator[pa.Table]:
    """The committed messages of an offset range, columns of `KAFKA_SCHEMA`; aborted ones and gaps are left out.

    One range of a source at a time: ranges share the process's consumer.
    """
    consumer = _consumer(tuple(sorted(_settings(spec).items())))
    reached, rows = descriptor.start, list[Message]()
    try:
        consumer.assign([TopicPartition(descriptor.path, descriptor.part, descriptor.start)])
        while reached < descriptor.end:
            fetched = _fetched(consumer, descriptor.end - reached)
            marks = [message for message in fetched if message.error() is not None]
            reached = max(_position_after(message, descriptor, spec) for message in [*marks, fetched[-1]])
            rows += fetched if not marks else [message for message in fetched if message.error() is None]
            if len(rows) >= _TABLE_ROWS:
                yield _table(rows, descriptor)
                rows = []
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
    milliseconds = pa.array([message.timestamp()[1] for message in inside], pa.timestamp("ms", tz="UTC"))
    return pa.table(
        [
            pa.array([message.key() for message in inside], pa.binary()),
            pa.array([message.value() for message in inside], pa.binary()),
            pa.repeat(descriptor.path, len(inside)),
            pa.repeat(pa.scalar(descriptor.part, pa.int32()), len(inside)),
            pa.array(offsets[: len(inside)]),
            milliseconds.cast(KAFKA_SCHEMA.field("timestamp").type),
        ],
        schema=KAFKA_SCHEMA,
    )


def _settings(spec: SourceSpec) -> dict[str, str]:
    defaults = {
        "group.id": group_of(spec),
        "auto.offset.reset": "error",
        "isolation.level": "read_committed",
        **_RECONNECTING,
    }
    return defaults | _given(spec) | {"enable.auto.commit": "false", "enable.partition.eof": "true"}


def _given(spec: SourceSpec) -> dict[str, str]:
    """The manifest's settings for clients: servers, security and whatever else."""
    return {name.removeprefix("kafka."): str(v) for name, v in spec.options.items() if name.startswith("kafka.")}


def group_of(spec: SourceSpec) -> str:
    """Of this source of this topology alone, unless the manifest says otherwise: others may read the same topic."""
    return str(spec.options.get("kafka.group.id", f"streamtopology-{spec.topology}-{spec.name}"))


@cache
def _consumer(settings: tuple[tuple[str, str], ...]) -> Consumer:
    """One consumer per process and setting: connecting costs more than reading a small range."""
    return Consumer(dict(settings))


def _unreachable(spec: SourceSpec, topic: str, error: Exception) -> SourceError:
    servers = spec.options.get("kafka.bootstrap.servers")
    return SourceError(f"source {spec.name!r}: topic {topic} at {servers} cannot be read: {error}")
