"""The receiving side of a stage: sections of arrived envelopes, by node and instance.

Blobs arrive in whatever order Spark fetches them. The inbox sorts the sections by the task that sent them, so that a
retried batch processes its rows in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.exchange.envelope import EnvelopeKind, Section
from streamtopology.jobs.operators.base import Rows
from streamtopology.jobs.plan.dag import Dag, Node

# Of rows that are put together: an Arrow array of texts has less than 2 GiB.
MOST_BYTES = 1 << 30


class Inbox:
    """Sections for the nodes of one level."""

    def __init__(self, dag: Dag, level: int) -> None:
        self._nodes = {node.name for node in dag.at(level)}
        self._rows: dict[tuple[str, int], list[Section]] = {}
        self._moved: dict[tuple[str, int], list[Section]] = {}

    def take(self, section: Section) -> bool:
        """Keep `section` if it is for this level; returns whether it is."""
        node = section.target.partition("/")[0]
        if section.kind is EnvelopeKind.REPORT or node not in self._nodes:
            return False
        kept = self._rows if section.kind is EnvelopeKind.ROWS else self._moved
        kept.setdefault((node, section.instance), []).append(section)
        return True

    def arrivals(self, node: Node, instance: int) -> list[Rows]:
        """One Rows per input, in the order of the sending tasks and, within a task, as it sent them.

        An input of more bytes than one Arrow array holds comes as several.
        """
        arrived = self._rows.get((node.name, instance), [])
        result: list[Rows] = []
        for edge in node.edges:
            mine = [s for s in arrived if s.target == f"{edge.consumer}/{edge.alias}"]
            if not mine:
                continue
            for some in _together(sorted(mine, key=_place)):
                batches = [section.batch() for section in some]
                batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
                keys = KeyColumns.from_arrow(batch, edge.key) if edge.key else None
                result.append(Rows(batch, edge.alias, keys))
        return result

    def moved_state(self, node: Node, instance: int) -> list[pa.RecordBatch]:
        """State that old owners handed over to the instance."""
        return [section.batch() for section in sorted(self._moved.get((node.name, instance), []), key=_place)]


def _place(section: Section) -> tuple[int, int]:
    return section.place


def _together(arrived: Sequence[Section]) -> Iterator[list[Section]]:
    """`arrived` in groups that one Arrow array holds."""
    group: list[Section] = []
    size = 0
    for section in arrived:
        if group and size + section.payload.size > MOST_BYTES:
            yield group
            group, size = [], 0
        group.append(section)
        size += section.payload.size
    yield group
