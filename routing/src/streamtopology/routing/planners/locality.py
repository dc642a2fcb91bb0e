"""Locality-aware routing (Caneill et al., Middleware 2016, section 3): keys that follow each other live on one server.

METIS divides the key graph among the servers such that little traffic is cut and no server has more than alpha times
its share of the load; parts are then given to servers such that little state moves. Every key of the graph is routed by
an entry, every other one by its hash, also one that had an entry so far: the paper makes its tables from scratch each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamtopology.routing.planners.balance import balanced_loads
from streamtopology.routing.planners.joint import JointPlan, JointPlanInput
from streamtopology.routing.planners.key_graph import KeyGraph
from streamtopology.routing.planners.llfd import CANDIDATE, Floats, Ints, Owners
from streamtopology.routing.planners.pair_keys import with_keys_of_pairs
from streamtopology.routing.planners.plan import Plan
from streamtopology.routing.planners.problem import PlanningProblem
from streamtopology.routing.table.kernel import njit

# Largest load of a server over its share: METIS's default, and the paper's (section 4.3).
ALPHA = 1.03

# METIS breaks ties at random; with one seed equal input gives equal plans.
SEED = 1

# METIS wants target weights > 0: what a server gets at least, of an equal share, if hashed keys fill it already.
LEAST_SHARE = 1e-3


def locality(given: JointPlanInput) -> JointPlan:
    """Online: tables for the pairs counted since the last re-routing."""
    layout = _Layout.of(given)
    return layout.plan(layout.placed(), "locality") if len(layout.graph) else layout.unchanged("locality")


def locality_offline(given: JointPlanInput) -> JointPlan:
    """Offline (section 3.2): planned once, from the first pairs there are; tables with entries are left as they are."""
    layout = _Layout.of(given)
    planned = any(len(operator.current.entry_hashes) for operator in given.operators.values())
    if planned or not len(layout.graph):
        return layout.unchanged("locality-offline")
    return layout.plan(layout.placed(), "locality-offline")


def locality_worst(given: JointPlanInput) -> JointPlan:
    """Worst case (section 4.2), a bound for comparisons: the same parts, never on one server with the successor's.

    Parts are shifted by a server between consecutive operators, so unequal capacities are not respected; with one
    server, or where a DAG needs more shifts than there are servers, some stay on one server.
    """
    layout = _Layout.of(given)
    if not len(layout.graph):
        return layout.unchanged("locality-worst")
    owner, k = layout.placed(), len(given.instances)
    for position, shift in enumerate(_shifts(tuple(given.operators), tuple(given.pairs), k)):
        part = layout.graph.of_operator(position)
        owner[part] = (owner[part] + shift) % k
    return layout.plan(owner, "locality-worst")


@dataclass(frozen=True, eq=False)
class _Layout:
    """The key graph, along with the items (keys, then buckets) of each operator's own problem.

    items: per operator int64[keys of the graph], the item of each. load, state: float64[v] of the graph's keys; load in
    seconds of an average instance of its operator, so that operators can be added up. owner: int32[v], position of the
    server that has the key now, CANDIDATE if that is not active.
    """

    given: JointPlanInput
    graph: KeyGraph
    problems: Mapping[str, PlanningProblem]
    items: Mapping[str, Ints]
    load: Floats
    state: Floats
    owner: Owners

    @staticmethod
    def of(given: JointPlanInput) -> _Layout:
        graph = KeyGraph.of(tuple(given.operators), given.pairs)
        problems: dict[str, PlanningProblem] = {}
        items: dict[str, Ints] = {}
        load, state, owner = np.zeros(len(graph)), np.zeros(len(graph)), np.zeros(len(graph), np.int32)
        for position, (name, operator) in enumerate(given.operators.items()):
            part, numbers = graph.of_operator(position), graph.numbers[position]
            rows = graph.busiest[part] / given.batches
            complete, items[name] = with_keys_of_pairs(operator, numbers, rows)
            problem = problems[name] = PlanningProblem.of(complete)
            load[part] = problem.loads[items[name]] / float(operator.capacities.mean())
            state[part] = problem.state[items[name]]
            owner[part] = problem.owner[items[name]]
        return _Layout(given, graph, problems, items, load, state, owner)

    def placed(self) -> Owners:
        """int32[v]: the server of every key of the graph: METIS's parts, each given to the server with most of its state."""
        shares = self.shares()
        parts = self.graph.divided(self.load, shares, ALPHA, SEED)
        return least_moved(parts, self.load, shares, self.state, self.owner)

    def shares(self) -> Floats:
        """float64[k]: what is left to each server of a division by capacity, when keys outside the graph stay hashed."""
        shares = np.zeros(len(self.given.instances))
        for name, problem in self.problems.items():
            operator = problem.given
            outside = self._hashed(name)
            outside[self.items[name]] = CANDIDATE
            total = float(problem.loads.sum())
            wanted = balanced_loads(total, operator.capacities, operator.fixed_seconds)
            shares += (wanted - problem.totals(outside)) / float(operator.capacities.mean())
        return np.maximum(shares, LEAST_SHARE * max(float(self.load.sum()), 1e-300) / len(shares))

    def plan(self, placed: Owners, algorithm: str) -> JointPlan:
        """The plans that put every key of the graph there, as far as the tables may grow, and every other key to its hash."""
        owners: dict[str, Owners] = {}
        for position, name in enumerate(self.problems):
            owners[name] = self._hashed(name)
            owners[name][self.items[name]] = placed[self.graph.of_operator(position)]
        return self._realised(owners, algorithm)

    def unchanged(self, algorithm: str) -> JointPlan:
        """The present tables; what an instance that is not active owns goes to its hash destination."""
        present = {
            name: np.where(problem.owner == CANDIDATE, self._hashed(name), problem.owner)
            for name, problem in self.problems.items()
        }
        return self._realised(present, algorithm)

    def _realised(self, owners: dict[str, Owners], algorithm: str) -> JointPlan:
        plans: dict[str, Plan] = {}
        after = np.empty(len(self.graph), np.int32)
        for position, (name, problem) in enumerate(self.problems.items()):
            owner = problem.cut_to_bound(owners[name])
            after[self.graph.of_operator(position)] = owner[self.items[name]]
            plans[name] = problem.plan(owner, algorithm)
        return JointPlan(plans, self.graph.within(self.owner), self.graph.within(after))

    def _hashed(self, name: str) -> Owners:
        """Every item of an operator at its hash destination, buckets where they are (orphaned ones are dealt out)."""
        problem = self.problems[name]
        buckets = problem.buckets if len(problem.given.bucket_loads) else problem.buckets[:0]
        return np.concatenate([problem.fixed_home, buckets])


def least_moved(parts: Owners, load: Floats, shares: Floats, state: Floats, owner: Owners) -> Owners:
    """int32[v]: the servers of METIS's parts, such that most state stays and no server is loaded worse than METIS had it.

    METIS's own numbering is one that satisfies that; another is as good where servers have the same capacity.
    """
    k = len(shares)
    weight = np.bincount(parts, load, k)
    fill = weight[:, None] / shares[None, :] * (shares.sum() / max(float(load.sum()), 1e-300))
    fits = fill <= max(ALPHA, float(np.diagonal(fill).max())) * (1 + 1e-9)
    here = owner != CANDIDATE
    worth = state if state.any() else np.ones(len(state))
    stays = np.bincount(parts[here].astype(np.int64) * k + owner[here], worth[here], k * k).reshape(k, k)
    forbidden = 2.0 * (float(worth.sum()) + 1.0)
    servers = assigned(np.where(fits, float(stays.max()) - stays, forbidden * k))
    return servers.astype(np.int32)[parts]


def _shifts(operators: tuple[str, ...], edges: tuple[tuple[str, str], ...], k: int) -> list[int]:
    """A shift below k for each operator, different from those of its neighbours as far as there are enough."""
    shifts: dict[str, int] = {}
    for name in operators:
        taken = {shifts[other] for edge in edges if name in edge for other in edge if other in shifts}
        shifts[name] = next((shift for shift in range(k) if shift not in taken), 0)
    return [shifts[name] for name in operators]


@njit(cache=True, nogil=True)
def assigned(costs: Any) -> Any:
    """int64[k]: the column of every row of the square `costs` (float64[k, k], finite) such that their sum is least. O(k^3).

    Jonker and Volgenant's form: rows are added one by one, each along the cheapest path of reassignments.
    """
    k = len(costs)
    row_price, column_price = np.zeros(k + 1), np.zeros(k + 1)
    row_of = np.full(k + 1, -1)  # column k stands for the row that is being added
    for row in range(k):
        row_of[k] = row
        column = k
        distance, came_from = np.full(k, np.inf), np.full(k, k)
        done = np.zeros(k + 1, np.bool_)
        while row_of[column] >= 0:
            done[column] = True
            here, step, following = row_of[column], np.inf, -1
            for other in range(k):
                if done[other]:
                    continue
                reduced = costs[here, other] - row_price[here] - column_price[other]
                if reduced < distance[other]:
                    distance[other], came_from[other] = reduced, column
                if distance[other] < step:
                    step, following = distance[other], other
            for other in range(k + 1):
                if done[other]:
                    row_price[row_of[other]] += step
                    column_price[other] -= step
                elif other < k:
                    distance[other] -= step
            column = following
        while column != k:
            row_of[column] = row_of[came_from[column]]
            column = came_from[column]
    columns = np.empty(k, np.int64)
    for column in range(k):
        columns[row_of[column]] = column
    return columns
