"""POSG's scheduler on micro-batches: round robin until all costs are known, then the least loaded instance."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from streamtopology.routing.groupings.chooser import Floats, Hashes, Instances, checked_hashes
from streamtopology.routing.groupings.learning import Learning, LearningChooser, reading
from streamtopology.routing.groupings.posg.greedy import Cells, packed, priced_cells, submit
from streamtopology.routing.groupings.posg.knowledge import PosgKnowledge, PosgObserver, PosgReport
from streamtopology.routing.load.sketches.cost_sketch import CostSketch


class PosgChooser(LearningChooser):
    """Round robin until every instance's pair is known; then the least estimated cumulated execution time."""

    merged = False
    learning = Learning(
        make_observer=PosgObserver,
        nothing_known=lambda options: PosgKnowledge(),
        read_report=reading("posg report", PosgReport),
        read_knowledge=reading("posg knowledge", PosgKnowledge),
    )

    def __init__(self, instances: Instances, loads: Floats, seed: int, options: Mapping[str, object]) -> None:
        super().__init__(instances, loads, seed, options)
        self._loads = packed(np.zeros(len(self.instances)))
        self._turn = seed % len(self.instances)
        self._cells: Cells | None = None

    def learn(self, knowledge: PosgKnowledge, schedulers: int = 1) -> None:
        """Start from its part of the knowledge's C. Its pairs are used once there is one of each active instance."""
        active = self.instances.tolist()
        at_first = min(knowledge.busy_seconds.values(), default=0.0)
        busy = np.array([knowledge.busy_seconds.get(instance, at_first) for instance in active])
        self._loads = packed((busy - busy.min()) / schedulers)
        if all(instance in knowledge.pairs for instance in active):
            pairs = [knowledge.pairs[instance] for instance in active]
            if self.merged:
                pairs = [CostSketch.merged(pairs)]
            self._cells = np.stack([priced_cells(pair.frequencies.cells, pair.cell_costs()) for pair in pairs])

    def choose(self, hashes: Hashes | None, n: int) -> Instances:
        keys = checked_hashes(hashes, n, "posg")
        k = len(self.instances)
        if self._cells is None:
            positions = (self._turn + np.arange(n)) % k
            self._turn = (self._turn + n) % k
        else:
            positions = np.empty(n, np.int64)
            submit(keys, self._cells, self._loads, positions)
        return self.instances[positions]


class PosgMergedChooser(PosgChooser):
    """Costs are looked up in the sum of all instances' pairs."""

    merged = True
