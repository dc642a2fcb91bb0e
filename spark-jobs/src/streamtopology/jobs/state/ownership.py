"""The keys that an instance owns under a routing table; all others were dropped.

After a re-routing the files of an old owner still have the keys that left. A delta that named each of them would be as
large as the move. So the delta carries the table instead, and a reader drops what the table gives to others.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from streamtopology.contract.wire_values import from_wire, to_wire
from streamtopology.jobs.lazy import LazyModule

if TYPE_CHECKING:
    from streamtopology.routing.table import table as tables
else:
    tables = LazyModule("streamtopology.routing.table.table")

_METADATA = b"streamtopology.owned"


@dataclass(frozen=True)
class Ownership:
    """`instance` keeps what `table` gives it."""

    table: tables.RoutingTable
    instance: int

    def strangers(self, hashes: np.ndarray) -> np.ndarray:
        """bool[n]: which keys (uint64[n] routing hashes) belong to other instances."""
        return self.table.lookup(hashes) != self.instance

    def owners(self, hashes: np.ndarray) -> np.ndarray:
        """int32[n]: whose the keys (uint64[n]) are now."""
        return self.table.lookup(hashes)

    def foreign_buckets(self) -> np.ndarray:
        """bool[B]: the buckets in which keys may belong to others."""
        foreign = self.table.buckets != self.instance
        elsewhere = self.table.entry_hashes[self.table.entry_instances != self.instance]
        foreign[tables.bucket_of(elsewhere, len(foreign))] = True
        return foreign

    def owned(self, hashes: np.ndarray) -> np.ndarray:
        """bool[n]: which keys belong here."""
        return self.table.lookup(hashes) == self.instance

    def marked(self, delta: pa.RecordBatch) -> pa.RecordBatch:
        """`delta`, which says that strangers are gone before its rows apply: some kilobytes instead of a row a key."""
        return delta.replace_schema_metadata({_METADATA: json.dumps(to_wire(self)).encode()})

    @staticmethod
    def of(delta: pa.RecordBatch) -> Ownership | None:
        """The ownership that `delta` was marked with, if any."""
        marked = (delta.schema.metadata or {}).get(_METADATA)
        return None if marked is None else from_wire(Ownership, json.loads(marked))
