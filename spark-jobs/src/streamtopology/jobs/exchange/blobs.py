"""The unit of exchange between two stages: a blob, addressed to a partition of the next stage."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

Blob = bytes | pa.Buffer
# A task's work: takes the number of its partition and the blobs that arrived there, returns the blobs that it sends.
StageTask = Callable[[int, Iterator[bytes]], Iterator[Blob]]

_PARTITION = struct.Struct("!q")  # as the JVM's PairwiseRDD reads a key


def addressed(blobs: Iterable[Blob], each: int = 1) -> Iterator[Blob]:
    """The output of a stage before an exchange: the first `each` blobs go to partition 0, the next to partition 1, and so on.

    Each is preceded by its address.
    """
    for number, blob in enumerate(blobs):
        yield _PARTITION.pack(number // each)
        yield blob
