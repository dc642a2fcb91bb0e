"""The application of the paper on locality: S -> A (first key) -> B (second key), A_i and B_i on server i (section 4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopology.routing.load.load_report import KeyPairs
from streamtopology.routing.load.sketches.key_pairs import KeyPairSummary
from streamtopology.routing.planners import JointPlan, JointPlanInput, PlanInput, get_joint
from streamtopology.routing.table.table import BUCKETS, RoutingTable

Floats = npt.NDArray[np.float64]
Hashes = npt.NDArray[np.uint64]

# The paper bounds the pairs counted, not the table.
ANY_SIZE = 1 << 40


@dataclass(frozen=True)
class Chain:
    """The tables of A and B, on `servers` servers."""

    servers: int
    first: RoutingTable
    second: RoutingTable

    @staticmethod
    def hashed(servers: int, seed: int, n_buckets: int = BUCKETS) -> Chain:
        """Fields grouping: A and B hash independently of each other."""
        first, second = (RoutingTable.uniform(range(servers), n_buckets, 2 * seed + one) for one in range(2))
        return Chain(servers, first, second)

    def traffic(self, first: Hashes, second: Hashes, rows: Floats | None = None) -> Floats:
        """float64[servers, servers]: tuples that A on one server sends to B on the other, by server of A and server of B.

        `rows` float64[n]: how many tuples have these two keys; one if left out.
        """
        at = self.first.lookup(first).astype(np.int64) * self.servers + self.second.lookup(second)
        return np.bincount(at, rows, self.servers**2).astype(np.float64).reshape(self.servers, self.servers)

    def planned(self, pairs: KeyPairSummary, planner: str = "locality") -> tuple[Chain, JointPlan]:
        """The chain under the tables that a planner makes of the pairs counted, and the plan."""
        plan = get_joint(planner)(self.asked(pairs))
        return Chain(self.servers, plan.plans["A"].table, plan.plans["B"].table), plan

    def asked(self, pairs: KeyPairSummary) -> JointPlanInput:
        """The input of a planner."""
        upstream, downstream, estimates, _ = pairs.top(len(pairs))
        counted = KeyPairs.summed(upstream, downstream, np.rint(estimates).astype(np.int64), int(pairs.counts.total), None)
        operators = {"A": self._operator(self.first), "B": self._operator(self.second)}
        return JointPlanInput(operators, {("A", "B"): counted})

    def _operator(self, table: RoutingTable) -> PlanInput:
        """No key is given: the paper's manager knows those of the pairs, and their loads, from the pairs alone."""
        return PlanInput(
            current=table,
            instances=tuple(range(self.servers)),
            capacities=np.ones(self.servers),
            fixed_seconds=np.zeros(self.servers),
            key_hashes=np.empty(0, np.uint64),
            key_loads=np.empty(0),
            key_state=np.empty(0),
            max_entries=ANY_SIZE,
        )


def counted(first: Hashes, second: Hashes, capacity: int) -> KeyPairSummary:
    """The reports of A's instances together: their key pairs, at most `capacity` of them."""
    pairs = KeyPairSummary(capacity)
    pairs.update(first, second)
    return pairs


def locality(traffic: Floats) -> float:
    """The share of tuples that stay on their server between A and B."""
    return float(np.trace(traffic) / traffic.sum())


def loads(traffic: Floats) -> Mapping[str, float]:
    """Largest load over the mean: of a server (A and B together), and of an instance of A or of B among its own."""
    of_a, of_b = traffic.sum(axis=1), traffic.sum(axis=0)
    both = of_a + of_b
    return {
        "server_load": float(both.max() / both.mean()),
        "instance_load": float(max(of_a.max() / of_a.mean(), of_b.max() / of_b.mean())),
    }
