"""Counts of the rows that one instance sends downstream: those that stay on its executor and, for locality, key pairs.

A pair is the key a row arrived by and the key it leaves by (locality-aware routing, section 3.2). Pairs are counted
where the operator passes its own key columns on, in bounded memory, for each batch separately.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.plan.dag import Dag, Edge, Node
from streamtopology.routing.load.load_report import KeyPairs, Onward
from streamtopology.routing.load.sketches.key_pairs import KeyPairSummary

# Pairs per consumer that an instance counts in a batch: 200 kB before they are compressed into its report.
PAIRS = 8192


@dataclass
class DownstreamCounts:
    """The counts of one run of an instance of `node`. `counts_pairs`: see `Attempt`."""

    dag: Dag
    node: Node
    counts_pairs: bool = False
    onward: dict[str, Onward] = field(default_factory=dict)
    _pairs: dict[str, KeyPairSummary] = field(default_factory=dict)

    def add(self, edge: Edge, batch: pa.RecordBatch, hashes: np.ndarray | None, stayed: int) -> None:
        """Count `batch`, sent along `edge` by keys with these hashes (uint64[n]); `stayed` rows are for the same executor."""
        self.onward[edge.consumer] = self.onward.get(edge.consumer, Onward()) + Onward(batch.num_rows, stayed)
        if hashes is not None and self._is_counted(edge):
            arrived_by = KeyColumns.from_arrow(batch, self.node.key).hashes
            self._pairs.setdefault(edge.consumer, KeyPairSummary(PAIRS)).update(arrived_by, hashes)

    def _is_counted(self, edge: Edge) -> bool:
        return self.dag.are_planned_together(edge) or (self.counts_pairs and self.dag.may_be_joined(edge))

    @property
    def key_pairs(self) -> dict[str, KeyPairs]:
        """The most frequent pairs by consumer; those beyond `PAIRS` count only in the total."""
        return {consumer: _as_pairs(summary) for consumer, summary in self._pairs.items()}


def _as_pairs(summary: KeyPairSummary) -> KeyPairs:
    """The pairs with lower bounds of their row counts."""
    upstream, downstream, estimates, errors = summary.top(PAIRS)
    return KeyPairs.summed(upstream, downstream, (estimates - errors).astype(np.int64), round(summary.counts.total))
