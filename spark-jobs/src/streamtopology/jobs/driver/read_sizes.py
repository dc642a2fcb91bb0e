"""The size of a batch: sizes that sources foresee, corrected by those that tasks measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from streamtopology.jobs.connectors.sources.descriptors import Descriptor
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.jobs.plan.results import ReadBytes

SHARE_OF_MEMORY = 1 / 64
# A task may send that many times its part before it stops: estimates are rough, and another attempt is dear.
TOLERANCE = 2

# Size of the blobs that are planned for: a JVM holds each as a whole, several times.
BLOB_BYTES = 16 << 20

_FINER = 8
_WORTH_LEARNING = 1 << 20  # bytes: of fewer the headers of files are the larger part


@dataclass
class ReadSizes:
    """`share_of_memory`: what the rows that one task sends may take of its executor's memory.

    Sizes are bytes in memory. The ratios of measured to foreseen sizes, by source, are in no checkpoint: without them the
    first attempt may be too large, no more.
    """

    share_of_memory: float = SHARE_OF_MEMORY
    _ratios: dict[str, float] = field(default_factory=dict[str, float])
    _fewest_blobs: int = 1

    def most_of_task(self, plan: ExecutionPlan) -> int:
        """Return the bytes that one task should send at most."""
        return int(self.share_of_memory * min(executor.memory_bytes for executor in plan.topology.executors))

    def foreseen(self, descriptors: Iterable[Descriptor]) -> float:
        """Return the bytes that the rows of `descriptors` are expected to take."""
        return sum(descriptor.bytes * self._ratios.get(descriptor.source, 1.0) for descriptor in descriptors)

    def share_to_read(self, descriptors: Iterable[Descriptor], plan: ExecutionPlan) -> float:
        """Return the share of `descriptors` that one batch under `plan` may read; 1 or more: all of them."""
        foreseen = self.foreseen(descriptors)
        return self.most_of_task(plan) / _largest_share(plan) / foreseen if foreseen else math.inf

    def blobs(self, descriptors: Iterable[Descriptor], plan: ExecutionPlan) -> int:
        """Return the number of blobs in which a task should send what it has for a partition: a power of two."""
        of_task = min(self.foreseen(descriptors) * _largest_share(plan), TOLERANCE * self.most_of_task(plan))
        return max(self._fewest_blobs, 1 << max(math.ceil(of_task / BLOB_BYTES) - 1, 0).bit_length())

    def envelope_was_too_large(self) -> None:
        """Divide envelopes more finely from now on."""
        self._fewest_blobs *= _FINER

    def measured(self, sizes: Mapping[str, ReadBytes]) -> None:
        """Learn from an attempt's `sizes` by source. Growth counts at once, and shrinkage by half."""
        for source, (sent, foreseen) in sizes.items():
            if foreseen and max(sent, foreseen) >= _WORTH_LEARNING:
                ratio, known = sent / foreseen, self._ratios.get(source, 0.0)
                self._ratios[source] = ratio if ratio >= known else (ratio + known) / 2

    def were_too_large(self, sizes: Mapping[str, ReadBytes]) -> None:
        """Learn from the `sizes` of an attempt in which a task had to stop: expect at least twice of what was foreseen."""
        for source, (sent, foreseen) in sizes.items():
            self._ratios[source] = max(sent / max(foreseen, 1), 2 * self._ratios.get(source, 1.0))


def _largest_share(plan: ExecutionPlan) -> float:
    """The largest part of a batch that one task reads, by the plan's source shares."""
    present = plan.placement.present
    shares = [plan.epoch.source_shares[slot] for slot in present] if plan.epoch.source_shares else []
    return max(shares) / sum(shares) if sum(shares) > 0 else 1 / max(len(present), 1)
