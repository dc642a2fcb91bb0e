"""The loop of mixed-routing (section 4, figure 5) over its synthetic stream: measure an interval, plan, change, repeat.

State is one byte a tuple, kept for w intervals. Plan time is CPU seconds of the thread that plans.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopology.lab.reproduce.experiments.mixed.state_window import StateWindow
from streamtopology.lab.simulate.streams import swapped, zipf_counts
from streamtopology.routing.planners import Plan, PlanInput, Planner
from streamtopology.routing.planners.balance import balance_indicators
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.table import BUCKETS, RoutingTable

# Mean tuples of a key per interval; the paper does not say how many its intervals have.
TUPLES_PER_KEY = 100

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Setting:
    """Parameters of table 2: |K|, N_D, z, f, theta_max, N_max, beta and w, and how many intervals are run."""

    keys: int = 10_000
    instances: int = 15
    zipf: float = 0.85
    fluctuation: float = 1.0
    theta: float = 0.08
    max_entries: int = 3000
    beta: float = 1.5
    window: int = 1
    intervals: int = 20

    @staticmethod
    def of(parameters: Mapping[str, Any], **changes: Any) -> Setting:
        """The setting that an experiment's parameters name, with what this case changes."""
        known = {name: parameters[name] for name in Setting.__dataclass_fields__ if name in parameters}
        return Setting(**{**known, **changes})


@dataclass(frozen=True, eq=False)
class Interval:
    """One interval: what was measured, and the plan made of it with its CPU seconds; None where none was called for."""

    given: PlanInput
    plan: Plan | None
    plan_seconds: float

    @property
    def table(self) -> RoutingTable:
        return self.plan.table if self.plan else self.given.current

    @property
    def migration(self) -> float:
        """Share of all state that the plan moves, 0..1."""
        return self.plan.moved_bytes / float(self.given.key_state.sum()) if self.plan else 0.0


def adaptations(planner: Planner, setting: Setting, seed: int) -> Iterator[Interval]:
    """Runs the stream under a planner that starts from plain hashing; the same seed, the same stream for any planner.

    (But for whose keys are swapped: that depends on where the planner has put them.)
    """
    rng = np.random.default_rng(seed)
    hashes = np.sort(hash_int64(np.arange(setting.keys) + int(rng.integers(2**40))))
    counts = rng.permutation(zipf_counts(setting.keys, setting.zipf, setting.keys * TUPLES_PER_KEY))
    mean = float(counts.sum()) / setting.instances
    table = RoutingTable.uniform(range(setting.instances), BUCKETS, seed)
    window = StateWindow(setting.window)
    for _ in range(setting.intervals):
        window = window.followed_by(hashes, counts.astype(np.float64))
        interval = planned(planner, _plan_input(setting, table, hashes, counts, window.state_of(hashes)))
        yield interval
        table = interval.table
        growing = int(rng.integers(setting.instances))
        counts = swapped(counts, table.lookup(hashes), growing, setting.fluctuation * mean, rng)


def planned(planner: Planner, given: PlanInput) -> Interval:
    """Plans if an instance is further from the mean load than the tolerance allows."""
    owners = given.current.lookup(given.key_hashes)
    loads = np.bincount(owners, given.key_loads, max(max(given.instances) + 1, int(owners.max()) + 1))
    active = list(given.instances)
    astray = float(loads.sum() - loads[active].sum())
    indicators = balance_indicators(loads[active].astype(np.float64), given.capacities, given.fixed_seconds)
    if astray <= 0 and float(indicators.max()) <= given.tolerance:
        return Interval(given, None, 0.0)
    start = time.thread_time()
    plan = planner(given)
    return Interval(given, plan, time.thread_time() - start)


def compile_kernels(planner: Planner) -> None:
    """Plans something small, so that no measured plan includes a compilation."""
    for _ in adaptations(planner, Setting(keys=500, instances=3, intervals=2), seed=0):
        pass


def with_instances(given: PlanInput, instances: int) -> PlanInput:
    """The same operator with instances 0..`instances`-1 active, all alike."""
    return replace(given, instances=tuple(range(instances)), capacities=np.ones(instances), fixed_seconds=np.zeros(instances))


def _plan_input(
    setting: Setting, table: RoutingTable, hashes: npt.NDArray[np.uint64], counts: Counts, state: npt.NDArray[np.float64]
) -> PlanInput:
    return PlanInput(
        current=table,
        instances=tuple(range(setting.instances)),
        capacities=np.ones(setting.instances),
        fixed_seconds=np.zeros(setting.instances),
        key_hashes=hashes,
        key_loads=counts.astype(np.float64),
        key_state=state,
        tolerance=setting.theta,
        max_entries=setting.max_entries,
        beta=setting.beta,
    )
