"""The policies that exist to be compared with: entry points of the lab (lab/pyproject.toml), declared here without kernels."""

from __future__ import annotations

from streamtopology.topology.groupings import BUILT_IN, GroupingSpec

_CODE = "streamtopology.lab.groupings"
_PORC = "streamtopology.routing.groupings.bounded:PorcChooser"
_CAPACITIES = {"capacities": BUILT_IN["shuffle"].options["capacities"]}
_EPSILON = {"epsilon": BUILT_IN["consistent"].options["epsilon"]}


def _table(name: str, summary: str) -> GroupingSpec:
    """The table of `mixed` from another planner."""
    return GroupingSpec(name, "table", splits_keys=False, needs_key=True, summary=summary, planner=f"{_CODE}.{name}:{name}")


# Fang et al., Parallel Stream Processing Against Workload Skewness and Variance: algorithm 5, and the paper's baseline.
SIMPLE = _table("simple", "as mixed, for balance alone: every plan places all keys and moves most state")
READJ = _table("readj", "as mixed, planned by moves and swaps of single keys")

# Zvara et al., System-aware dynamic partitioning for batch and streaming workloads (arXiv 2105.15023): Dynamic Repartitioning
# on Spark and Flink. A policy so that the nearest rival on the same engine can be run beside ours.
KIP = _table("kip", "as mixed, with few heavy keys isolated and buckets filling up the rest")

# The schemes that Consistent Grouping compares itself with (sections II-B, IV-A and V-A.1).
POTC = GroupingSpec(
    name="potc",
    kind="chooser",
    splits_keys=True,
    needs_key=False,
    summary="each tuple goes to the less loaded of two random instances, whatever its key",
    options=_CAPACITIES,
    chooser=f"{_CODE}.potc:PotcChooser",
)
PORC = GroupingSpec(
    name="porc",
    kind="chooser",
    splits_keys=True,
    needs_key=True,
    summary="each tuple goes to the first instance of its key's random sequence that has not had its share",
    options={**_EPSILON, **_CAPACITIES},
    chooser=_PORC,
)
BOUNDED_HASH = GroupingSpec(
    name="bounded-hash",
    kind="chooser",
    splits_keys=True,
    needs_key=True,
    summary="consistent hashing with bounded loads: clockwise to the first instance that has not had its share",
    options={**_EPSILON, **_CAPACITIES},
    chooser=f"{_CODE}.bounded_hash:BoundedHashChooser",
)
