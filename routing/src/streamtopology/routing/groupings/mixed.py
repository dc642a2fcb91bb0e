"""`mixed`: a few explicit entries over hashing (Fang et al., Parallel Stream Processing Against Workload Skewness and
Variance, section 3). Its planner decides which keys have an entry and where buckets lie."""

from __future__ import annotations

from streamtopology.routing.groupings.spec import GroupingSpec, Option, read_number

MIXED = GroupingSpec(
    name="mixed",
    kind="table",
    splits_keys=False,
    needs_key=True,
    summary="every tuple of a key goes to one instance; heavy keys have a table entry, re-planned while running",
    options={"beta": Option(1.5, read_number, "weight of a key's load against its state size when choosing what moves")},
    planner="mixed",
)
