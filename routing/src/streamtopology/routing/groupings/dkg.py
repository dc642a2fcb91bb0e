"""`dkg`: heavy hitters have an entry, all other keys share a few buckets per instance (Rivetti et al., Efficient Key
Grouping for Near-Optimal Load Balancing, section 3). Its planner learns the table, and learns it again on drift."""

from __future__ import annotations

from collections.abc import Mapping

from streamtopology.routing.groupings.spec import GroupingSpec, Option, OptionError, read_number
from streamtopology.routing.planners.dkg import DkgSettings
from streamtopology.routing.planners.plan import PlanError


def _read_share(value: object) -> float:
    share = read_number(value)
    if not 0 < share <= 1:
        raise OptionError(f"found {value!r}, expected a share of the load: a number > 0 and <= 1")
    return share


def _read_precision(value: object) -> float | None:
    return None if value is None else _read_share(value)


def _read_whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise OptionError(f"found {value!r}, expected a whole number >= 1")
    return value


def _problems_together(options: Mapping[str, object]) -> Mapping[str, str]:
    """`eps` is below `theta`: SpaceSaving cannot tell heavy hitters from others otherwise (section 3.1)."""
    try:
        DkgSettings.of(options)
    except PlanError as error:
        return {"eps": str(error).removeprefix("eps: ")}
    return {}


DKG = GroupingSpec(
    name="dkg",
    kind="table",
    splits_keys=False,
    needs_key=True,
    summary="every tuple of a key goes to one instance; heavy hitters and buckets are placed once, and again on drift",
    options={
        "theta": Option(DkgSettings.theta, _read_share, "share of the load from which a key gets an entry of its own"),
        "eps": Option(DkgSettings.eps, _read_precision, "precision of theta, less than it; half of it if left out"),
        "mu": Option(DkgSettings.mu, _read_whole, "buckets per instance for all other keys; raise it on unequal machines"),
    },
    planner="dkg",
    problems_together=_problems_together,
)
