"""A Kafka broker as a transactional producer and its markers see it: fencing, open transactions, answers that are lost.

What a transaction holds is visible once it is committed. A new producer of the same id fences the one before and aborts what
that left open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

_NO_OFFSET = -1001
_FENCED = 90  # INVALID_PRODUCER_EPOCH's successor, PRODUCER_FENCED

# Topic, value, headers.
Message = tuple[str, bytes, Mapping[str, bytes]]


@dataclass(eq=False)
class Broker:
    """`step` is called before each request. `losing`: the number of commits whose answer is lost next."""

    step: Callable[[str, str], None]
    visible: list[Message] = field(default_factory=list[Message])
    # By group and topic, with the words that were left at them.
    offsets: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict[tuple[str, str], tuple[int, str]])
    losing: int = 0
    _epochs: dict[str, int] = field(default_factory=dict[str, int])

    def producer(self, settings: Mapping[str, str]) -> Producer:
        return Producer(self, settings["transactional.id"])

    def consumer(self, settings: Mapping[str, str]) -> Consumer:
        return Consumer(self, settings["group.id"])

    def begin(self, transactional_id: str) -> int:
        """Fence the producers of this id; return the epoch of a new one."""
        self._epochs[transactional_id] = self._epochs.get(transactional_id, -1) + 1
        return self._epochs[transactional_id]

    def check(self, transactional_id: str, epoch: int) -> None:
        """Raises KafkaException in a producer that another one has fenced."""
        if self._epochs[transactional_id] != epoch:
            raise KafkaException(KafkaError(_FENCED, "fenced by a newer producer", fatal=True))


class Producer:
    """As much of `confluent_kafka.Producer` as a sink uses."""

    def __init__(self, broker: Broker, transactional_id: str) -> None:
        self._broker = broker
        self._id = transactional_id
        self._epoch = -1
        self._messages: list[Message] = []
        self._offsets: dict[tuple[str, str], tuple[int, str]] = {}
        self._is_committed = False

    def init_transactions(self, timeout: float) -> None:
        self._broker.step("kafka init", self._id)
        self._epoch = self._broker.begin(self._id)

    def begin_transaction(self) -> None:
        self._messages, self._offsets, self._is_committed = [], {}, False

    def produce(
        self, topic: str, value: bytes, key: bytes | None, headers: Mapping[str, bytes], on_delivery: Callable[[Any, Any], None]
    ) -> None:
        self._messages.append((topic, value, dict(headers)))

    def poll(self, timeout: float) -> int:
        return 0

    def flush(self, timeout: float) -> int:
        self._ask("kafka flush")
        return 0

    def send_offsets_to_transaction(self, offsets: Sequence[TopicPartition], group: str, timeout: float) -> None:
        self._ask("kafka send offsets")
        for offset in offsets:
            self._offsets[group, offset.topic] = offset.offset, offset.metadata or ""

    def commit_transaction(self, timeout: float) -> None:
        """Commit; a commit that is repeated because its answer was lost changes nothing."""
        self._ask("kafka commit")
        if not self._is_committed:
            self._is_committed = True
            self._broker.visible += self._messages
            self._broker.offsets |= self._offsets
        if self._broker.losing:
            self._broker.losing -= 1
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True))

    def _ask(self, verb: str) -> None:
        self._broker.step(verb, self._id)
        self._broker.check(self._id, self._epoch)


class Consumer:
    """As much of `confluent_kafka.Consumer` as a sink's markers need."""

    def __init__(self, broker: Broker, group: str) -> None:
        self._broker = broker
        self._group = group

    def consumer_group_metadata(self) -> str:
        return self._group

    def committed(self, partitions: Sequence[TopicPartition], timeout: float) -> list[TopicPartition]:
        self._broker.step("kafka committed", self._group)
        return [
            TopicPartition(one.topic, one.partition, *self._broker.offsets.get((self._group, one.topic), (_NO_OFFSET, "")))
            for one in partitions
        ]

    def close(self) -> None:
        pass
