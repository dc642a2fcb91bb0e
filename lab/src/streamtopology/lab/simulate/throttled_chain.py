"""A chain of two keyed operators over a network that counts: S -> A (first key) -> B (second key), A_j and B_j on server j.

The tables are those that the planners of the routing package make of what was counted in the last batches: rows of heavy
keys and of buckets, and of each instance of A the pairs of keys, in the bounded memory that it has for them on Spark.
Capacities, fixed seconds and the cost of a remote row are the true ones; the controller's patience is left out.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopology.jobs.exchange.downstream_counts import PAIRS
from streamtopology.routing import planners
from streamtopology.routing.load.load_report import HEAVY_KEYS, KeyPairs
from streamtopology.routing.load.sketches.key_pairs import KeyPairSummary
from streamtopology.routing.planners import JointPlanInput, Plan, PlanInput
from streamtopology.routing.planners.balance import finish_seconds
from streamtopology.routing.planners.switch_costs import FEWEST_BATCHES, SwitchCosts
from streamtopology.routing.planners.together import auto_together
from streamtopology.routing.table.table import BUCKETS, RoutingTable, bucket_of

Floats = npt.NDArray[np.float64]
Hashes = npt.NDArray[np.uint64]
Instances = npt.NDArray[np.int32]
# The first and the second key of each row of a batch.
Keys = tuple[Hashes, Hashes]

# Batches that a plan is made of.
WINDOW = 4

# Batches from plan to plan.
PLANNED_EVERY = 2

# In which a plan must earn its cost, as by default.
HORIZON_SECONDS = 60.0

STATE_BYTES = 64.0

ALONE = "auto, each alone"

# Policies by which the two operators are planned together, so that pairs are counted.
TOGETHER = ("locality", "auto")


@dataclass(frozen=True)
class ChainSite:
    """`cpu`: cores of each server. Seconds are on one core, but for `remote_seconds`: how long a row from server to server
    keeps the sender's link busy, and the receiver's."""

    cpu: tuple[float, ...]
    seconds_per_row: float
    fixed_seconds: float
    remote_seconds: float

    @property
    def servers(self) -> int:
        return len(self.cpu)

    @property
    def capacities(self) -> Floats:
        """float64[servers] in rows/s, of either operator."""
        return np.array(self.cpu) / self.seconds_per_row

    @property
    def fixed(self) -> Floats:
        """float64[servers]: seconds of an instance's part in a stage without its rows."""
        return self.fixed_seconds / np.array(self.cpu)

    def seconds(self, first: Instances, second: Instances) -> float:
        """Of a batch whose rows are at these servers, at A and at B: both stages and the busiest link between them."""
        stages = [finish_seconds(self._rows(at), self.capacities, self.fixed).max() for at in (first, second)]
        away = first != second
        busiest = max(float(self._rows(at[away]).max()) for at in (first, second))
        return float(sum(stages)) + self.remote_seconds * busiest

    def best_seconds(self, rows: int) -> float:
        """All cores busy with rows, and no row remote."""
        return 2 * rows / float(self.capacities.sum())

    def _rows(self, at: Instances) -> Floats:
        return np.bincount(at, minlength=self.servers).astype(np.float64)


class ChainContender:
    """One policy on the chain: `fields`, `mixed`, `locality`, `ALONE`, or `auto`, by which operators are planned together."""

    def __init__(self, site: ChainSite, policy: str) -> None:
        self.policy = policy
        self.seconds: list[float] = []
        """Of each batch so far."""
        self.local: list[float] = []
        """The share of the rows of each batch that stay on their server."""
        self._site = site
        self._tables = tuple(RoutingTable.uniform(range(site.servers)) for _ in range(2))
        self._window: deque[tuple[Keys, KeyPairs]] = deque(maxlen=WINDOW)

    def take(self, batch: Keys) -> None:
        """Route one batch by tables planned of those before."""
        number = len(self.seconds)
        if self.policy != "fields" and number and number % PLANNED_EVERY == 0:
            self._tables = tuple(plan.table for plan in self._planned())
        first, second = (table.lookup(keys) for table, keys in zip(self._tables, batch, strict=True))
        self.seconds.append(self._site.seconds(first, second))
        self.local.append(float((first == second).mean()))
        pairs = _pairs(batch, first, self._site.servers) if self.policy in TOGETHER else KeyPairs()
        self._window.append((batch, pairs))

    def _planned(self) -> list[Plan]:
        inputs = [self._input(position) for position in range(2)]
        if self.policy not in TOGETHER:
            planner = planners.get("auto" if self.policy == ALONE else self.policy)
            return [planner(one) for one in inputs]
        counted = [pairs for _, pairs in self._window]
        pairs = KeyPairs.summed(*_joined(counted), sum(one.seen for one in counted))
        operators = dict(zip("AB", inputs, strict=True))
        given = JointPlanInput(operators, {("A", "B"): pairs}, len(counted), self._site.remote_seconds)
        planner = auto_together if self.policy == "auto" else planners.get_joint(self.policy)
        return list(planner(given).plans.values())

    def _input(self, position: int) -> PlanInput:
        """The operator as its planner sees it: the heaviest keys of the window one by one, the others by their bucket."""
        keys, rows = np.unique(np.concatenate([batch[position] for batch, _ in self._window]), return_counts=True)
        heaviest = np.argsort(-rows, kind="stable")
        heavy, light = heaviest[:HEAVY_KEYS], heaviest[HEAVY_KEYS:]
        bucket, each = bucket_of(keys[light], BUCKETS), 1 / len(self._window)
        count = np.bincount(bucket, minlength=BUCKETS).astype(np.float64)
        return PlanInput(
            current=self._tables[position],
            instances=tuple(range(self._site.servers)),
            capacities=self._site.capacities,
            fixed_seconds=self._site.fixed,
            key_hashes=keys[heavy],
            key_loads=(rows[heavy] * each).astype(np.float64),
            key_state=np.full(len(heavy), STATE_BYTES),
            bucket_loads=np.bincount(bucket, rows[light] * each, BUCKETS).astype(np.float64),
            bucket_state=count * STATE_BYTES,
            bucket_keys=count,
            tolerance=0.02,
            switch=SwitchCosts(max(HORIZON_SECONDS / statistics.median(self.seconds), FEWEST_BATCHES)),
        )


def _pairs(batch: Keys, first: Instances, servers: int) -> KeyPairs:
    """The pairs that the instances of A count in a batch, each in its own memory."""
    parts: list[KeyPairs] = []
    for server in range(servers):
        summary, here = KeyPairSummary(PAIRS), first == server
        summary.update(batch[0][here], batch[1][here])
        upstream, downstream, estimates, errors = summary.top(PAIRS)
        rows = (estimates - errors).astype(np.int64)
        parts.append(KeyPairs.summed(upstream, downstream, rows, int(here.sum())))
    return KeyPairs.summed(*_joined(parts), len(first))


def _joined(parts: Sequence[KeyPairs]) -> tuple[Hashes, Hashes, npt.NDArray[np.int64]]:
    return (
        np.concatenate([part.upstream for part in parts]),
        np.concatenate([part.downstream for part in parts]),
        np.concatenate([part.rows for part in parts]),
    )


class CommunityStream:
    """Rows of two keys: the first by Zipf 0.9, the second from the first one's community with probability `correlation`,
    else as frequent as the first ones and independent of them."""

    def __init__(self, keys: int, communities: int, correlation: float, shares: Floats, seed: int) -> None:
        """`shares` float64[keys]: of the keys, the most frequent first."""
        rng = np.random.default_rng(seed)
        self._rng, self._correlation, self._shares = rng, correlation, shares
        self._order = rng.permutation(keys), rng.permutation(keys)
        community = rng.integers(0, communities, (2, keys))
        self._of_first = community[0]
        self._members = np.argsort(community[1], kind="stable")
        self._starts = np.searchsorted(community[1][self._members], np.arange(communities + 1))

    def batch(self, rows: int, hashes: Keys) -> Keys:
        """The next batch; `hashes` uint64[keys] twice: of the keys of A, and of B."""
        rng = self._rng
        first, other = (order[rng.choice(len(order), rows, p=self._shares)] for order in self._order)
        community = self._of_first[first]
        start, size = self._starts[community], np.diff(self._starts)[community]
        member = np.minimum(start + (size * rng.random(rows) ** 2).astype(np.int64), len(self._members) - 1)
        together = (rng.random(rows) < self._correlation) & (size > 0)
        second = np.where(together, self._members[member], other)
        return hashes[0][first], hashes[1][second]
