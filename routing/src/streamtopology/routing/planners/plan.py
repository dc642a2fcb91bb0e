"""The input and output of planners; a planner is a pure function from one to the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from streamtopology.contract.errors import InvalidInput
from streamtopology.routing.planners.switch_costs import AT_ONCE, SwitchCosts
from streamtopology.routing.table.table import RoutingTable

Floats = npt.NDArray[np.float64]
Hashes = npt.NDArray[np.uint64]

# The paper's choice for the exponent of load in the migration priority (appendix C).
DEFAULT_BETA = 1.5


class PlanError(InvalidInput):
    """A planner's input is invalid; the message says which field and why."""


def _no_floats() -> Floats:
    return np.empty(0)


@dataclass(frozen=True)
class Splitting:
    """The price of splitting a key whose state can be combined: the parts of a batch are merged at the key's home.

    part_rows: merging one takes as long as this number of rows; where parts wait for several batches, its share of one.
    apart: they are merged in a stage of their own, which has the fixed seconds of one.
    """

    part_rows: float
    apart: bool = True


@dataclass(frozen=True, eq=False)
class PlanInput:
    """One operator as its planner sees it. Loads are rows (or rows' worth of work) per batch, state is bytes.

    Two modes. With `bucket_loads` (one per bucket of `current`) every bucket is a pseudo-key that stands for all its
    keys that are not in `key_hashes`, and moving it changes the bucket array. Without, `key_hashes` are all the keys
    there are, the bucket array is a hash function that stays, and only entries change: the paper's own setting.

    `instances` are the active ones; `capacities` (rows/s) and `fixed_seconds` are theirs, in the same order: instance j
    finishes after fixed_seconds[j] + load_j / capacities[j]. `key_hashes` are distinct. `tolerance` is the paper's
    theta_max, `max_entries` its N_max, `beta` its exponent; its window w is in the state sizes given.
    """

    current: RoutingTable
    instances: tuple[int, ...]
    capacities: Floats
    fixed_seconds: Floats
    key_hashes: Hashes
    key_loads: Floats
    key_state: Floats
    bucket_loads: Floats = field(default_factory=_no_floats)
    bucket_state: Floats = field(default_factory=_no_floats)
    tolerance: float = 0.08
    max_entries: int = 3000
    beta: float = DEFAULT_BETA
    # Estimated keys per bucket, only to say how many keys a plan moves; empty: a bucket counts as one key.
    bucket_keys: Floats = field(default_factory=_no_floats)
    # The grouping's options, as its `check_options` returns them; a planner has defaults for those it reads.
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    # Of keys whose state can be combined; None: every key has one owner.
    splitting: Splitting | None = None
    switch: SwitchCosts = AT_ONCE

    def __post_init__(self) -> None:
        if not self.instances:
            raise PlanError("instances: there is no active instance to plan for")
        if len(set(self.instances)) < len(self.instances) or min(self.instances) < 0:
            raise PlanError(f"instances: {self.instances} must be distinct and not negative")
        k, m, n_buckets = len(self.instances), len(self.key_hashes), len(self.current.buckets)
        for name, values, length in (
            ("capacities", self.capacities, k),
            ("fixed_seconds", self.fixed_seconds, k),
            ("key_loads", self.key_loads, m),
            ("key_state", self.key_state, m),
            ("bucket_loads", self.bucket_loads, n_buckets if len(self.bucket_loads) else 0),
            ("bucket_state", self.bucket_state, len(self.bucket_loads)),
            ("bucket_keys", self.bucket_keys, n_buckets if len(self.bucket_keys) else 0),
        ):
            if len(values) != length:
                raise PlanError(f"{name}: {len(values)} values where {length} are needed")
            if length and not (np.isfinite(values).all() and values.min() >= 0):
                raise PlanError(f"{name}: every value must be a finite number >= 0")
        if self.capacities.min() <= 0:
            raise PlanError("capacities: every active instance needs a capacity > 0 rows/s")
        if self.tolerance < 0 or self.max_entries < 0:
            raise PlanError("tolerance and max_entries must not be negative")

    def with_buckets(self) -> PlanInput:
        """The input in the mode of buckets, for planners that move them: without load and state if nothing is known of them."""
        if len(self.bucket_loads):
            return self
        none = np.zeros(len(self.current.buckets))
        return replace(self, bucket_loads=none, bucket_state=none, bucket_keys=none)


@dataclass(frozen=True, eq=False)
class Plan:
    """A new table and what it is worth. Seconds are the predicted finish time of the slowest instance per batch.

    `imbalance_*` is the latest finish time over that of a perfect division, minus 1. `theta_reached` says that no
    instance finishes later than (1 + tolerance) times the perfect division: the paper's algorithms lighten overloaded
    instances only, so the lower side of its balance indicator is not promised.
    """

    table: RoutingTable
    moved_keys_estimate: float
    moved_bytes: float
    predicted_seconds_before: float
    predicted_seconds_after: float
    imbalance_before: float
    imbalance_after: float
    theta_reached: bool
    algorithm: str


Planner = Callable[[PlanInput], Plan]
