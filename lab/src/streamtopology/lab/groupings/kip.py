"""KIP, the key isolator partitioner of Dynamic Repartitioning on Spark and Flink (Zvara, Szabo, Lorant, Benczur: System-aware
dynamic partitioning for batch and streaming workloads, arXiv 2105.15023, 2021).

A few heavy keys are placed one by one, isolated if need be. All other keys are hashed to hosts, equal parts of the light
load, of which each instance has as many as fill it up. Only the paper's abstract could be found; the algorithm is that of
the authors' own library (github.com/zzvara/dynamic-repartitioning), written again. Here a host is a bucket of the table, and
the level up to which instances are filled is a finish time: with equal instances and no fixed seconds it is theirs.

Two differences. Their first update deals every host again; here the hosts of the present table are kept where they may.
Their level takes instances in the order of a hash map; here it takes them by load, without which it is no level.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from streamtopology.routing.planners.balance import balanced_loads, balanced_seconds
from streamtopology.routing.planners.llfd import CANDIDATE, Floats, Ints, Owners
from streamtopology.routing.planners.order import descending
from streamtopology.routing.planners.plan import Plan, PlanInput
from streamtopology.routing.planners.problem import PlanningProblem

# Heavy keys that are placed one by one, over the number of instances: lambda, 2 in the authors' library.
KEYS_PER_INSTANCE = 2.0

# Share of the whole load by which heavy keys may exceed the ideal load of an instance.
ALLOWED_ERROR = 0.001


def kip(given: PlanInput) -> Plan:
    """Heavy keys stay where they fit, else go to their bucket's instance or to the least loaded; buckets fill up the rest.

    Buckets count as equal parts of the light load, as in the paper, whatever they have. Without bucket loads the keys given
    are all there are, and buckets are moved all the same. Costs a sort of the keys, and heavy keys x instances.
    """
    problem = PlanningProblem.of(given.with_buckets())
    heavy = _heavy_keys(problem)
    totals = np.zeros(len(given.instances))
    placed = _isolated(
        problem.loads[heavy],
        problem.owner[heavy],
        problem.fixed_home[heavy],
        totals,
        _limits(problem),
        given.capacities,
        given.fixed_seconds,
    )
    hosts = _filled_up(problem, totals)
    keys = hosts[problem.key_buckets]
    keys[heavy] = placed
    return problem.plan(np.concatenate([keys, hosts]), "kip")


def _heavy_keys(problem: PlanningProblem) -> Ints:
    """The heaviest keys, by load."""
    most = min(round(KEYS_PER_INSTANCE * len(problem.given.instances)), problem.given.max_entries)
    heaviest_first = descending(problem.loads[: problem.n_keys])[:most]
    return heaviest_first[problem.loads[heaviest_first] > 0]


def _limits(problem: PlanningProblem) -> Floats:
    """Load that heavy keys may make up on each instance, float64[k]: the ideal one or the heaviest key's, and a little more."""
    given, total = problem.given, float(problem.loads.sum())
    heaviest = float(problem.loads[: problem.n_keys].max(initial=0.0))
    alone = float((given.fixed_seconds + heaviest / given.capacities).min())
    seconds = max(alone, balanced_seconds(total, given.capacities, given.fixed_seconds))
    return np.maximum(given.capacities * (seconds - given.fixed_seconds), 0.0) + ALLOWED_ERROR * total


@njit(cache=True, nogil=True)
def _isolated(
    loads: Floats, owner: Owners, homes: Owners, totals: Floats, limits: Floats, capacities: Floats, fixed_seconds: Floats
) -> Owners:
    """int32[h]: the instance of each heavy key, given the heaviest first; `totals` float64[k] is filled with their loads."""
    placed = np.full(len(loads), CANDIDATE, np.int32)
    for key in range(len(loads)):
        at = owner[key]
        if at != CANDIDATE and (totals[at] + loads[key] <= limits[at] or totals[at] == 0):
            placed[key] = at
            totals[at] += loads[key]
    for key in range(len(loads)):
        if placed[key] == CANDIDATE:
            at = homes[key]
            if at == owner[key] or (totals[at] + loads[key] >= limits[at] and totals[at] > 0):
                at = np.argmin(fixed_seconds + (totals + loads[key]) / capacities)
            placed[key] = at
            totals[at] += loads[key]
    return placed


def _filled_up(problem: PlanningProblem, totals: Floats) -> Owners:
    """The instance of each bucket, int32[B]: as many as fill every instance up, and no bucket moves that need not."""
    given, hosts = problem.given, problem.buckets
    light = max(float(problem.loads.sum() - totals.sum()), 0.0)
    if light <= 0:
        return hosts
    wanted = balanced_loads(light, given.capacities, given.fixed_seconds + totals / given.capacities)
    shares = np.cumsum(wanted) * (len(hosts) / float(wanted.sum()))
    ends = [round(round(share, 6)) for share in shares.tolist()]  # a half is one on every machine
    quotas: Ints = np.diff(np.array(ends, np.int64), prepend=0)
    held: Ints = np.bincount(hosts, minlength=len(totals))
    order = np.argsort(hosts, kind="stable")
    rank = np.empty(len(hosts), np.int64)
    rank[order] = np.arange(len(hosts)) - np.repeat(np.cumsum(held) - held, held)
    filled = hosts.copy()
    filled[rank < (held - quotas)[hosts]] = np.repeat(np.arange(len(totals)), np.maximum(quotas - held, 0))
    return filled
