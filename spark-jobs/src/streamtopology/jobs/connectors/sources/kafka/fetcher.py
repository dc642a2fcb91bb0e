"""The consumer of a process stays with the partitions that it reads: what follows a range is there when that is asked for.

An assignment for each range would throw away what was fetched behind it, and wait for the fetch that is under way.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from streamtopology.jobs.connectors.sources.descriptors import Descriptor

TIMEOUT_SECONDS = 30.0
# How far a range may be behind the one before that was read here: what others have read of the partition is dropped.
_NEAR = 1_000
# A range of more messages is read alone: what came of other partitions meanwhile would fill the memory.
_FEW = 5_000
# A partition that others read by now is let go.
_UNREAD_SECONDS = 10.0
# What partitions hold that are not being read, with what Python takes for a message.
_AHEAD_BYTES = 4 << 20
_OBJECT_BYTES = 256
_MOST_AT_ONCE = 50_000
_WEIGHED = 256

Place = tuple[str, int]


def place_of(descriptor: Descriptor) -> Place:
    """The topic and the partition."""
    return descriptor.path, descriptor.part


def value_bytes(messages: Sequence[Message]) -> int:
    """Estimate the size of the messages' values; of many some are weighed, evenly spread."""
    step = max(1, len(messages) // _WEIGHED)
    return step * sum(map(len, messages[::step]))


def says_deleted(mark: Message) -> bool:
    """True if the broker no longer has the offset that the consumer is at: auto.offset.reset is `error`."""
    error = mark.error()
    return error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET


@dataclass
class _Kept:
    """A partition that is assigned. `reached`: the end of what was read of it; `ahead`: what has come and was not read."""

    topic_id: str
    reached: int
    read_at: float
    ahead: list[Message] = field(default_factory=list[Message])

    @property
    def bytes(self) -> int:
        return value_bytes(self.ahead) + _OBJECT_BYTES * len(self.ahead)


class Fetcher:
    """Not for two threads at a time."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self._kept: dict[Place, _Kept] = {}

    def goes_on_with(self, descriptor: Descriptor) -> bool:
        """True if the messages of a range are the next ones to come of its partition, or soon are."""
        kept = self._kept.get(place_of(descriptor))
        return kept is not None and kept.topic_id == descriptor.topic_id and 0 <= descriptor.start - kept.reached <= _NEAR

    def begin(self, descriptor: Descriptor, at: int) -> None:
        """Fetch the partition of a range from the offset `at` on."""
        place = place_of(descriptor)
        self.let_go([place])
        self.consumer.incremental_assign([TopicPartition(*place, at)])
        self._kept[place] = _Kept(descriptor.topic_id, at, time.monotonic())

    def next(self, descriptor: Descriptor, wanted: int) -> list[Message]:
        """The next messages and marks of the partition of a range, `wanted` or as many as there are. Waits for the first.

        Raises TimeoutError and KafkaException.
        """
        place, until = place_of(descriptor), time.monotonic() + TIMEOUT_SECONDS
        kept = self._kept[place]
        if wanted > _FEW:
            self.let_go([other for other in self._kept if other != place])
        while not kept.ahead:
            first = self.consumer.poll(max(0.0, until - time.monotonic()))
            if first is None:
                raise TimeoutError(f"no message in {TIMEOUT_SECONDS:.0f} s")
            messages = [first, *self.consumer.consume(min(wanted, _MOST_AT_ONCE), timeout=0)]
            if len(self._kept) == 1:
                return messages
            self._sort(messages)
            self._limit(but_for=kept)
        taken, kept.ahead = kept.ahead, []
        return taken

    def keep(self, descriptor: Descriptor, fetched: Iterable[Message]) -> None:
        """The range was read; what was `fetched` last, behind its end, is for the one that follows."""
        place = place_of(descriptor)
        kept = self._kept[place]
        kept.reached, kept.read_at = descriptor.end, time.monotonic()
        if descriptor.rows > _FEW or any(map(says_deleted, fetched)):  # after that nothing more would come
            self.let_go([place])
        else:
            kept.ahead = [message for message in fetched if cast(int, message.offset()) >= descriptor.end]
            self._limit()

    def let_go(self, places: Sequence[Place]) -> None:
        """Fetch nothing more of these partitions."""
        if known := [place for place in places if self._kept.pop(place, None) is not None]:
            self.consumer.incremental_unassign([TopicPartition(*place) for place in known])

    def let_go_unread(self) -> None:
        """Let go of the partitions that have not been read here for a while."""
        before = time.monotonic() - _UNREAD_SECONDS
        self.let_go([place for place, kept in self._kept.items() if kept.read_at < before])

    def _sort(self, messages: Iterable[Message]) -> None:
        for message in messages:
            topic, partition, error = message.topic(), message.partition(), message.error()
            if topic is None or partition is None:  # of the client itself
                raise KafkaException(error)
            if (kept := self._kept.get((topic, partition))) is not None:
                kept.ahead.append(message)

    def _limit(self, but_for: _Kept | None = None) -> None:
        """Let go of all that hold something if they hold too much together."""
        holding = {place: kept.bytes for place, kept in self._kept.items() if kept.ahead and kept is not but_for}
        if sum(holding.values()) > _AHEAD_BYTES:
            self.let_go(list(holding))
