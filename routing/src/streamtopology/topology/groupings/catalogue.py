"""The built-in groupings: one entry each. The entry's `chooser` and `planner` name the code behind it.

Order matters: the CRD, messages and the documentation list the groupings as they stand here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from streamtopology.topology.groupings.options import (
    Option,
    read_capacities,
    read_count,
    read_fraction,
    read_fraction_or_none,
    read_number,
)
from streamtopology.topology.groupings.spec import GroupingSpec

_CHOOSERS = "streamtopology.routing.groupings"
_CAPACITIES = {"capacities": Option(None, read_capacities, "relative capacity of each active instance; equal if left out")}
_BETA = {"beta": Option(1.5, read_number, "weight of a key's load against its state size when choosing what moves")}
_EPSILON = {"epsilon": Option(0.01, read_number, "an instance gets at most 1 + epsilon times its share of the tuples so far")}
_SKETCHES = {
    "eps": Option(0.05, read_fraction, "sketches have ceil(e / eps) columns"),
    "delta": Option(0.1, read_fraction, "sketches have ceil(log2(1 / delta)) rows"),
}


def _table(name: str, summary: str, planner: str | None, options: Mapping[str, Option] | None = None) -> GroupingSpec:
    """A grouping that sends all tuples of a key to one instance, by the operator's routing table."""
    return GroupingSpec(name, "table", False, True, summary, options or {}, planner)


def _joint_table(name: str, summary: str) -> GroupingSpec:
    """A table that the planner of the same name makes together with those of the operators before and after."""
    return replace(_table(name, summary, name), plans_jointly=True)


def _eps_below_theta(options: Mapping[str, object]) -> Mapping[str, str]:
    """SpaceSaving separates heavy hitters from other keys only if eps < theta (Rivetti et al., DKG, section 3.1)."""
    eps, theta = cast("float | None", options["eps"]), cast(float, options["theta"])
    return {} if eps is None or eps < theta else {"eps": f"found {eps}, expected 0 < eps < theta = {theta}"}


# `auto` is the project's own: entries may have several owners, and routers level their batches with these (decision 85).
_AUTO = replace(
    _table("auto", "as mixed, and keys too heavy for one instance are split where their parts can be combined", "auto", _BETA),
    joined_by="auto-together",
    pours=True,
)

# `auto`, and Storm's own.
_PLAIN = (
    _AUTO,
    GroupingSpec(
        name="shuffle",
        kind="chooser",
        splits_keys=True,
        needs_key=False,
        summary="tuples go round the instances in turn, whatever their key",
        options=_CAPACITIES,
        chooser=f"{_CHOOSERS}.shuffle:ShuffleChooser",
    ),
    _table("fields", "every tuple of a key goes to one instance, chosen by the key's hash", planner=None),
)

# Nasir et al., The Power of Both Choices, ICDE 2015.
_PARTIAL_KEY = GroupingSpec(
    name="partial-key",
    kind="chooser",
    splits_keys=True,
    needs_key=True,
    summary="each tuple goes to the less loaded of its key's two instances",
    options=_CAPACITIES,
    chooser=f"{_CHOOSERS}.partial_key:PartialKeyChooser",
)

# Fang et al., Parallel Stream Processing Against Workload Skewness and Variance (mixed-routing), section 3: explicit
# entries over hashing. The others are the paper's extremes: the same table from other planners.
_MIXED = (
    _table(
        "mixed",
        "every tuple of a key goes to one instance; heavy keys have a table entry, re-planned while running",
        "mixed",
        _BETA,
    ),
    _table("mintable", "as mixed, with the smallest table, whatever state has to move", "mintable"),
    _table("minmig", "as mixed, moving the least state, up to the largest table there may be", "minmig", _BETA),
)

# Rivetti et al., Efficient Key Grouping for Near-Optimal Load Balancing in Stream Processing Systems, DEBS 2015, section 3:
# heavy hitters have an entry, all other keys share a few buckets per instance.
_DKG = GroupingSpec(
    name="dkg",
    kind="table",
    splits_keys=False,
    needs_key=True,
    summary="every tuple of a key goes to one instance; heavy hitters and buckets are placed once, and again on drift",
    options={
        "theta": Option(0.1, read_fraction, "share of the load from which a key gets an entry of its own"),
        "eps": Option(None, read_fraction_or_none, "precision of theta, less than it; half of it if left out"),
        "mu": Option(2, read_count, "buckets per instance for all other keys; raise it on unequal machines"),
    },
    planner="dkg",
    conflicts=_eps_below_theta,
)

# Consistent Grouping, section IV: PoRC spreads tuples evenly over virtual workers; the planner moves virtual workers from
# busy to idle instances, which moves load and no state. 10 to 100 virtual workers are good (figure 10): fewer are too
# coarse for a slow instance, more take long to move.
_CONSISTENT = GroupingSpec(
    name="consistent",
    kind="virtual",
    splits_keys=True,
    needs_key=True,
    summary="tuples spread evenly over virtual workers, which move from busy instances to idle ones while running",
    options={
        **_EPSILON,
        "virtualWorkers": Option(20, read_count, "virtual workers per instance at first: small, equal parts of the stream"),
    },
    planner="consistent",
    chooser=f"{_CHOOSERS}.bounded:PorcChooser",
)

# Nasir et al., When Two Choices Are Not Enough, ICDE 2016.
_MANY_CHOICES = (
    GroupingSpec(
        name="d-choices",
        kind="chooser",
        splits_keys=True,
        needs_key=True,
        summary="as partial-key, but the most frequent keys have as many choices as balancing them takes",
        options=_CAPACITIES,
        chooser=f"{_CHOOSERS}.many_choices:DChoicesChooser",
    ),
    GroupingSpec(
        name="w-choices",
        kind="chooser",
        splits_keys=True,
        needs_key=True,
        summary="as partial-key, but the most frequent keys go to the least loaded of all instances",
        options=_CAPACITIES,
        chooser=f"{_CHOOSERS}.many_choices:WChoicesChooser",
    ),
)

# Rivetti et al., Proactive Online Scheduling for Shuffle Grouping (POSG), section III. `earliest-finish` is the project's own
# estimator for the same problem (decision 20).
_POSG_OPTIONS = {
    **_SKETCHES,
    "window": Option(1024, read_count, "N: an instance checks every N tuples whether its sketches are stable"),
    "tolerance": Option(0.05, read_number, "mu: relative error of the sketches up to which they are stable"),
    **_CAPACITIES,
}
_LEARNT = (
    GroupingSpec(
        name="posg",
        kind="chooser",
        splits_keys=True,
        needs_key=True,
        summary="each tuple goes to the instance with the least work so far, by sketches of the cost of tuples there",
        options=_POSG_OPTIONS,
        chooser=f"{_CHOOSERS}.posg:PosgChooser",
    ),
    GroupingSpec(
        name="posg-merged",
        kind="chooser",
        splits_keys=True,
        needs_key=True,
        summary="as posg, with the sketches of all instances added up; for instances of like speed",
        options=_POSG_OPTIONS,
        chooser=f"{_CHOOSERS}.posg:PosgMergedChooser",
    ),
    GroupingSpec(
        name="earliest-finish",
        kind="chooser",
        splits_keys=True,
        needs_key=True,
        summary="each tuple goes to the instance that finishes it first, by learnt costs of keys and speeds of instances",
        options={
            **_SKETCHES,
            "keys": Option(4096, read_count, "keys whose cost is kept exactly; the others share a sketch"),
            **_CAPACITIES,
        },
        chooser=f"{_CHOOSERS}.earliest_finish:EarliestFinishChooser",
    ),
)

# Caneill et al., Locality-Aware Routing in Stateful Streaming Applications, Middleware 2016: Storm's local-or-shuffle
# (section 2.2), the paper's own and its two comparisons.
_LOCALITY = (
    GroupingSpec(
        name="local-or-shuffle",
        kind="chooser",
        splits_keys=True,
        needs_key=False,
        summary="tuples stay on their executor where it has an instance, else they go round all in turn",
        options=_CAPACITIES,
        chooser=f"{_CHOOSERS}.shuffle:ShuffleChooser",
        prefers_local=True,
    ),
    _joint_table("locality", "keys that often follow each other live on one server, re-planned while running"),
    _joint_table("locality-offline", "as locality, planned once from the first statistics"),
    _joint_table("locality-worst", "keys that often follow each other never live on one server: a bound"),
)

BUILT_IN: Mapping[str, GroupingSpec] = {
    spec.name: spec
    for spec in (
        *_PLAIN,
        _PARTIAL_KEY,
        *_MIXED,
        _DKG,
        _CONSISTENT,
        *_MANY_CHOICES,
        *_LEARNT,
        *_LOCALITY,
    )
}

# The policy of a grouping that names none.
DEFAULT_POLICY = "auto"

# The policy of an operator without a grouping.
KEYLESS_POLICY = "shuffle"
