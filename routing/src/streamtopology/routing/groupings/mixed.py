"""`mixed`: a few explicit entries over hashing (Fang et al., Parallel Stream Processing Against Workload Skewness and
Variance, section 3). Its planner decides which keys have an entry and where buckets lie. Beside it the paper's own
extremes and the planner that it compares itself with: the same table, planned otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

from streamtopology.routing.groupings.spec import GroupingSpec, Option, read_number

_BETA = {"beta": Option(1.5, read_number, "weight of a key's load against its state size when choosing what moves")}


def _planned_by(planner: str, summary: str, options: Mapping[str, Option] | None = None) -> GroupingSpec:
    return GroupingSpec(
        name=planner, kind="table", splits_keys=False, needs_key=True, summary=summary, options=options or {}, planner=planner
    )


MIXED = _planned_by(
    "mixed", "every tuple of a key goes to one instance; heavy keys have a table entry, re-planned while running", _BETA
)

MINTABLE = _planned_by("mintable", "as mixed, with the smallest table, whatever state has to move")

MINMIG = _planned_by("minmig", "as mixed, moving the least state, up to the largest table there may be", _BETA)

SIMPLE = _planned_by(
    "simple", "as mixed, for balance alone: every key is placed anew each time, so most state moves: a comparison"
)

READJ = _planned_by("readj", "as mixed, planned by moves and swaps of single keys: a comparison")
