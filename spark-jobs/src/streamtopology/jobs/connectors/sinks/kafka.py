"""Exactly-once output to Kafka: one transaction per batch, with the batch's number committed inside it.

The number is a consumer-group offset sent with the transaction (the batch to publish next): Kafka commits it together
with the rows or not at all, and reading it back after a restart is one request, whatever else is in the topic.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from streamtopology.contract.format_number import FORMAT, check_format
from streamtopology.jobs.connectors.kafka_retry import retried
from streamtopology.jobs.connectors.sinks.base import SinkError, Writer, another_batch, staged_table
from streamtopology.jobs.connectors.sinks.json_rows import slices
from streamtopology.jobs.connectors.sinks.messages import messages
from streamtopology.jobs.failpoints import passing

MARKER_FORMAT = 1
BATCH_HEADER = "streamtopology-batch"
_ENDS = "ends"
# The newest batches whose ends are known: some 1.5 kB, of the 4 that a broker takes with an offset.
KEPT_ENDS = 64

_TIMEOUT_SECONDS = 30.0
_RETRY_SECONDS = 120.0
# The answers to a producer whose transactional id a newer one has.
_FENCED = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)


class KafkaSink:
    """Publishes each batch once to `topic`; a read_committed consumer sees whole batches.

    Messages have the columns `key` and `value` when the rows have a `value`, else the row as JSON; header
    `streamtopology-batch` is the batch number. The transactional id, and the marker group of that name, is the topology's,
    the sink's and the checkpoint's: a second process of a checkpoint fences the first, and those of other checkpoints (dev
    and prod, a clone) do not meet. Brokers forget the marker after offsets.retention.minutes (7 days) without a batch.
    """

    def __init__(
        self,
        name: str,
        topic: str,
        settings: Mapping[str, str],
        writer: Writer,
        producer: Callable[[dict[str, str]], Producer] = Producer,
        consumer: Callable[[dict[str, str]], Consumer] = Consumer,
    ) -> None:
        self._new_producer = producer
        self._new_consumer = consumer
        self._name = name
        self._topic = topic
        self._settings = dict(settings)
        self._transactional_id = f"streamtopology-{writer.topology}-{name}-{writer.run}"
        self._markers = self._marker_reader(self._transactional_id)
        self._producer: Producer | None = None
        self._next_batch = 0
        self._ends: dict[str, str] = {}

    def publish(self, batch: int, files: Sequence[Path], end: str | None = None) -> None:
        table = staged_table(files)
        try:
            producer = self._connected()
            if batch < self._next_batch and self._is_another(batch, end, has_rows=table is not None and table.num_rows > 0):
                raise another_batch(f"topic {self._topic}", batch)
            if table is None or not table.num_rows or batch < self._next_batch:
                return
            ends = self._ends if end is None else {**self._ends, str(batch): end}
            ends = dict(list(ends.items())[-KEPT_ENDS:])
            producer.begin_transaction()
            self._produce(producer, batch, table)
            passing("kafka.sent")
            self._commit(producer, batch, ends)
        except (KafkaException, BufferError) as error:
            self._producer = None  # the next attempt's init_transactions ends whatever this transaction was
            why = self._fenced() if _is_fenced(error) else str(error)
            raise SinkError(f"sink {self._name!r}: batch {batch} not sent to topic {self._topic}: {why}") from error
        self._next_batch, self._ends = batch + 1, ends

    def _is_another(self, batch: int, end: str | None, has_rows: bool) -> bool:
        """True if the topic has another batch of this number. Of those between known ones it had no rows, and knows no end."""
        known = self._ends.get(str(batch))
        if known is None:
            return has_rows and end is not None and any(int(number) < batch for number in self._ends)
        return end is not None and known != end

    def close(self) -> None:
        self._producer = None
        self._markers.close()

    def _fenced(self) -> str:
        return (
            f"a newer process publishes with its transactional.id, {self._transactional_id}, and Kafka refuses this one. So "
            "two processes run from one checkpoint, or from copies of its folder. Stop one of them; a copy that has an id of "
            "its own is made with `streamtopology state clone MANIFEST URI`"
        )

    def _marker_reader(self, group: str) -> Consumer:
        own = {"group.id": group, "enable.auto.commit": "false", "isolation.level": "read_committed"}
        try:
            return self._new_consumer(self._settings | own)
        except KafkaException as error:  # a setting librdkafka does not know or take
            raise SinkError(f"sink {self._name!r}: {error.args[0].str()}; correct its kafka.* options") from error

    def _connected(self) -> Producer:
        """The producer, after it has fenced older ones and their open transactions are aborted or complete."""
        if self._producer is None:
            # The order matters: the marker is only final once no older transaction is open.
            producer = self._new_producer(
                {"linger.ms": "5", "queue.buffering.max.messages": "1000000"}
                | self._settings
                | {"transactional.id": self._transactional_id}
            )
            retried(lambda: producer.init_transactions(_TIMEOUT_SECONDS), _RETRY_SECONDS)
            self._next_batch, self._ends = self._read_marker()
            self._producer = producer
        return self._producer

    def _produce(self, producer: Producer, batch: int, table: pa.Table) -> None:
        headers: dict[str, str | bytes | None] = {BATCH_HEADER: str(batch).encode("ascii")}
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: object) -> None:
            if error is not None:
                failures.append(error)

        for rows in (part for batch in table.to_batches() for part in slices(batch)):
            for key, value in zip(*messages(rows), strict=True):
                while True:
                    try:
                        producer.produce(self._topic, value, key, headers=headers, on_delivery=delivered)
                        break
                    except BufferError:
                        producer.poll(1.0)  # the local queue is full: let the broker take some
            producer.poll(0)
        if producer.flush(_RETRY_SECONDS) or failures:
            raise KafkaException(failures[0] if failures else KafkaError(KafkaError._TIMED_OUT))

    def _commit(self, producer: Producer, batch: int, ends: Mapping[str, str]) -> None:
        marker = [
            TopicPartition(self._topic, 0, batch + 1, json.dumps({FORMAT: MARKER_FORMAT, _ENDS: ends}, separators=(",", ":")))
        ]
        group = self._markers.consumer_group_metadata()
        retried(lambda: producer.send_offsets_to_transaction(marker, group, _TIMEOUT_SECONDS), _RETRY_SECONDS)
        passing("kafka.marked")
        retried(lambda: producer.commit_transaction(_TIMEOUT_SECONDS), _RETRY_SECONDS)
        passing("kafka.committed")

    def _read_marker(self) -> tuple[int, dict[str, str]]:
        """The batch to publish next, and the ends of those before; an offset that somebody has set comes without any."""

        def read() -> tuple[int, dict[str, str]]:
            (marker,) = self._markers.committed([TopicPartition(self._topic, 0)], timeout=_TIMEOUT_SECONDS)
            if marker.error is not None:
                raise KafkaException(marker.error)
            if not marker.metadata:
                return max(marker.offset, 0), {}
            wire = json.loads(marker.metadata)
            check_format(wire, MARKER_FORMAT, f"the mark in topic {self._topic}", "start with an empty checkpoint", SinkError)
            return max(marker.offset, 0), wire[_ENDS]

        return retried(read, _RETRY_SECONDS)


def _is_fenced(error: Exception) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _FENCED
