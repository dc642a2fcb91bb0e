"""Brokers find a coordinator or a leader when a group or a topic is new, or a broker goes: requests are tried again then."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException

_PAUSE_SECONDS = 0.1
_PASSING = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
)

T = TypeVar("T")


def retried(call: Callable[[], T], seconds: float) -> T:
    """The result of `call`, tried again for `seconds` while its error says that brokers are only busy finding themselves."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except KafkaException as error:
            kafka_error = error.args[0]
            passing = kafka_error.retriable() or kafka_error.code() in _PASSING
            if not passing or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
