"""`locality`: keys that follow each other at consecutive operators live on one server (Caneill et al., Locality-Aware
Routing in Stateful Streaming Applications). A table like any other; `locality` planners plan those of all operators with
the policy together. Beside it the paper's comparisons: planned once, and never local.
"""

from __future__ import annotations

from streamtopology.routing.groupings.spec import GroupingSpec


def _planned_by(planner: str, summary: str) -> GroupingSpec:
    return GroupingSpec(name=planner, kind="table", splits_keys=False, needs_key=True, summary=summary, planner=planner)


LOCALITY = _planned_by("locality", "keys that often follow each other live on one server, re-planned while running")

LOCALITY_OFFLINE = _planned_by("locality-offline", "as locality, planned once from the first statistics")

LOCALITY_WORST = _planned_by("locality-worst", "keys that often follow each other never live on one server: a bound")
