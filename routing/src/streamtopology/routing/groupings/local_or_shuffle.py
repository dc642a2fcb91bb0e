"""`local-or-shuffle`: shuffle among the instances beside the router; among all where there is none beside it.

Storm's grouping before operators without state (locality-aware routing, section 2.2): no network where none is needed,
and as balanced as the router's input is.
"""

from __future__ import annotations

from streamtopology.routing.groupings.shuffle import ShuffleChooser
from streamtopology.routing.groupings.spec import CAPACITIES, GroupingSpec

LOCAL_OR_SHUFFLE = GroupingSpec(
    name="local-or-shuffle",
    kind="chooser",
    splits_keys=True,
    needs_key=False,
    summary="tuples stay on their executor where it has an instance, else they go round all in turn",
    options={"capacities": CAPACITIES},
    make_chooser=ShuffleChooser,
    prefers_local=True,
)
