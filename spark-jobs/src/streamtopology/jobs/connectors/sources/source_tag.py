"""The tag by which rows of several sources travel in one Spark query: column `__source` names the row's source."""

# pyarrow.compute makes its functions when it is imported, unseen by the type checker.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

TAG = "__source"


def untag(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The inverse of `tagged_union` for one Arrow batch: (source, its rows in order), sources without rows left out."""
    tags = batch.column(TAG)
    for name in pc.unique(tags).to_pylist():
        rows = batch.column(name).filter(pc.equal(tags, name))
        yield name, pa.RecordBatch.from_struct_array(rows)
