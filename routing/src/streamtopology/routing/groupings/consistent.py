"""`consistent`: consistent grouping. PoRC spreads tuples evenly over virtual workers, workers take as many as they can.

Consistent Grouping, section IV. The step from key to virtual worker is a chooser's (`porc`), the step from virtual
worker to instance is a table's: its planner moves virtual workers from busy instances to idle ones, which moves rates
and no state, as what a key's instances gathered is aggregated periodically (on Spark: the partial and the merging half
of a split edge).
"""

from __future__ import annotations

from streamtopology.routing.groupings.bounded import EPSILON, PorcChooser
from streamtopology.routing.groupings.spec import GroupingSpec, Option, read_count

VIRTUAL_WORKERS = Option(20, read_count, "virtual workers per instance to begin with: small, equal parts of the stream")
"""The paper finds 10 to 100 good (figure 10): fewer are too coarse for a slow worker, more take long to move."""

CONSISTENT = GroupingSpec(
    name="consistent",
    kind="virtual",
    splits_keys=True,
    needs_key=True,
    summary="tuples spread evenly over virtual workers, which move from busy instances to idle ones while running",
    options={"epsilon": EPSILON, "virtualWorkers": VIRTUAL_WORKERS},
    planner="consistent",
    make_chooser=PorcChooser,
)
