"""What one instance sends on in a turn, counted: rows that stay on its executor and, for locality, pairs of keys.

A pair is the key that a row came in by and the one that it goes on by (locality-aware routing, section 3.2). It is
counted where the operator passes its own key columns on, in bounded memory, anew for every batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from streamtopology.jobs.dag import Dag, Edge, Node
from streamtopology.jobs.keys import KeyColumns
from streamtopology.routing.report import KeyPairs, Onward
from streamtopology.routing.sketches.key_pairs import KeyPairSummary

PAIRS = 8192
"""Pairs towards one operator that an instance counts in a batch: 200 kB before they are compressed into its report."""


@dataclass
class Departures:
    """Of one turn of an instance of `node`."""

    dag: Dag
    node: Node
    onward: dict[str, Onward] = field(default_factory=dict)
    _pairs: dict[str, KeyPairSummary] = field(default_factory=dict)

    def note(self, edge: Edge, batch: pa.RecordBatch, hashes: np.ndarray | None, stayed: int) -> None:
        """`batch` went along `edge` by keys with these hashes (uint64[n]); `stayed` of its rows are for the same executor."""
        self.onward[edge.consumer] = self.onward.get(edge.consumer, Onward()) + Onward(batch.num_rows, stayed)
        if hashes is not None and self.dag.are_planned_together(edge):
            came_by = KeyColumns.from_arrow(batch, self.node.key).hashes
            self._pairs.setdefault(edge.consumer, KeyPairSummary(PAIRS)).update(came_by, hashes)

    @property
    def key_pairs(self) -> dict[str, KeyPairs]:
        """The most frequent pairs by consumer; of those beyond `PAIRS`, only that they were seen."""
        return {consumer: _as_pairs(summary) for consumer, summary in self._pairs.items()}


def _as_pairs(summary: KeyPairSummary) -> KeyPairs:
    """Rows that each pair kept is sure to have had."""
    upstream, downstream, estimates, errors = summary.top(PAIRS)
    return KeyPairs.summed(upstream, downstream, (estimates - errors).astype(np.int64), round(summary.counts.total))
