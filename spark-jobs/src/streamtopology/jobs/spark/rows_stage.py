"""Stage 0 of sources that Spark reads: `mapInArrow` over their rows, wherever Spark placed them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from streamtopology.jobs.exchange.blobs import Blob, addressed
from streamtopology.jobs.plan.attempt import Attempt
from streamtopology.jobs.worker.stage_tasks import route_rows

BLOB_DDL = "blob binary"
_BLOB = pa.schema([("blob", pa.binary())])


def rows_stage(attempt: Attempt) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: routes rows of the sources that Spark reads, and returns addressed blobs, one per row."""
    return partial(_route_rows, attempt)


def _route_rows(attempt: Attempt, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    for blob in addressed(route_rows(attempt, context.partitionId(), batches), attempt.blobs):
        yield pa.RecordBatch.from_arrays([_as_one_row(blob)], schema=_BLOB)


def _as_one_row(blob: Blob) -> pa.Array:
    """A binary column around `blob`, without a copy."""
    data = pa.py_buffer(blob)
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(np.array([0, data.size], np.int32)), data])
