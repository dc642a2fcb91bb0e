"""What drivers and workers send each other. Each message is a few frames; the first is its kind.

| from, to | kind | frames |
| --- | --- | --- |
| worker, driver | HELLO | address at which other workers reach it |
| driver, worker | RUN | `Order`, pickled (as Spark ships its tasks), the partition of this worker, its descriptors, pickled |
| driver, worker | END | |
| worker, worker | ENVELOPE | `Address`, when it was sent, blobs |
| worker, driver | DONE | number of the order, seconds of waiting for links (NaN: not known), blobs with the reports |
| worker, driver | LOST | number of the order, text: an envelope may not have arrived |
| worker, driver | FAILED | number of the order, pickled exception (empty: it cannot be pickled), its traceback |

Orders are numbered by their driver, one after the other. What bears the number of an order that is over is dropped: an
answer of a lost attempt, an envelope that came late.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from streamtopology.jobs.plan.attempt import Attempt

Bytes = bytes | memoryview | pa.Buffer

HELLO, RUN, END, ENVELOPE, DONE, LOST, FAILED = b"hello", b"run", b"end", b"envelope", b"done", b"lost", b"failed"

_NUMBER = struct.Struct("!q")
_SECONDS = struct.Struct("!d")
_ADDRESS = struct.Struct("!qqq")


@dataclass(frozen=True)
class Address:
    """Which task an envelope is for, and whose it is: the order, the level that receives, the partition that sends."""

    order: int
    level: int
    sender: int

    def packed(self) -> bytes:
        return _ADDRESS.pack(self.order, self.level, self.sender)

    @staticmethod
    def unpacked(frame: Bytes) -> Address:
        return Address(*_ADDRESS.unpack(frame))


@dataclass(frozen=True)
class Order:
    """What executors are to do of an attempt: each its part of the same order, which is pickled once.

    workers: by partition the address of its worker. depth: levels to run; 0: only the first stage, ahead of its attempt.
    ahead: the number of the order that has the first stage of this attempt, if one ran ahead. first: the envelopes that the
    first level waits for. attempt: with an empty text in the place of descriptors, of which each worker gets its own.
    """

    number: int
    attempt: Attempt
    workers: Sequence[str]
    depth: int
    ahead: int | None
    first: Sequence[Address]


@dataclass(frozen=True)
class OrderPart:
    """What one worker does of an order: all at `partition`. attempt: that of the order, with the descriptors of this part."""

    order: Order
    partition: int
    attempt: Attempt

    @staticmethod
    def of(order: Bytes, partition: Bytes, descriptors: Bytes) -> OrderPart:
        """From its frames."""
        whole, place, dealt = pickle.loads(order), number_of(partition), pickle.loads(descriptors)
        texts = [*whole.attempt.descriptors]
        if texts:
            texts[place] = dealt
        return OrderPart(whole, place, replace(whole.attempt, descriptors=tuple(texts)))


def without_descriptors(attempt: Attempt) -> Attempt:
    """The attempt that says who reads, and not what."""
    return replace(attempt, descriptors=tuple(("",) if dealt else () for dealt in attempt.descriptors))


def numbered(number: int) -> bytes:
    return _NUMBER.pack(number)


def number_of(frame: Bytes) -> int:
    (number,) = _NUMBER.unpack(frame)
    return number


def timed(seconds: float) -> bytes:
    return _SECONDS.pack(seconds)


def seconds_of(frame: Bytes) -> float:
    (seconds,) = _SECONDS.unpack(frame)
    return seconds
