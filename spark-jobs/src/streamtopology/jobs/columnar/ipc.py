"""Record batches as Arrow streams, written into memory that is as long as they will be.

A sink that grows as it is written to is copied each time that it grows.
"""

from __future__ import annotations

import pyarrow as pa


def stream_size(batch: pa.RecordBatch) -> int:
    """Bytes of `batch` as a stream of its own."""
    measure = pa.MockOutputStream()
    write_stream(batch, measure)
    return measure.size()


def write_stream(batch: pa.RecordBatch, into: pa.NativeFile) -> None:
    """`batch` as a stream of its own, from where `into` stands, which is a multiple of 8 bytes."""
    with pa.ipc.new_stream(into, batch.schema) as writer:
        writer.write_batch(batch)
