"""`auto` on a chain of two keyed operators whose network counts, next to the policies that see stages or the network only.

Four servers, one with 30 % of a core. Rows of 5 us at either operator; one that comes to another server takes 0 to 20 us of
the sender's link and of the receiver's: with 10 us as much as its work at both operators.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamtopology.lab.bench.figures import met, row
from streamtopology.lab.simulate.streams import zipf_probabilities
from streamtopology.lab.simulate.throttled_chain import ALONE, ChainContender, ChainSite, CommunityStream
from streamtopology.routing.table.hashing import hash_int64

SECONDS_PER_ROW = 5e-6
FIXED_SECONDS = 0.020
CPU = (1.0, 1.0, 1.0, 0.3)
POLICIES = ("fields", "mixed", "locality", ALONE, "auto")

# Times the best other policy that `auto` should reach: where remote rows cost as much as their work or more, and else.
DEAR, CHEAP = 1.15, 1.0


@dataclass(frozen=True)
class ChainSize:
    """Distinct keys of each operator, communities of them, rows of a batch, and batches."""

    keys: int
    communities: int
    rows: int
    batches: int


FULL, QUICK = ChainSize(20_000, 400, 200_000, 12), ChainSize(1_000, 20, 20_000, 9)


@dataclass(frozen=True)
class ChainCase:
    """`correlation`: the share of the rows whose second key is of the first one's community."""

    correlation: float
    remote_seconds: float

    @property
    def name(self) -> str:
        return f"chain, {self.correlation:.0%} correlated, a remote row {self.remote_seconds * 1e6:.0f} us"

    @property
    def bar(self) -> float:
        is_dear = self.correlation > 0 and self.remote_seconds >= 2 * SECONDS_PER_ROW
        return DEAR if is_dear else CHEAP


CHAIN_CASES = (
    ChainCase(0.8, 20e-6),
    ChainCase(0.8, 10e-6),
    ChainCase(0.8, 5e-6),
    ChainCase(0.5, 20e-6),
    ChainCase(0.0, 20e-6),
    ChainCase(0.8, 0.0),
)


def chain_lines(seeds: range, quick: bool) -> list[dict[str, Any]]:
    """The share of the bound by chain and policy, one run a seed, and the bar of `auto`."""
    return [line for case in CHAIN_CASES for line in _lines(case, QUICK if quick else FULL, seeds)]


def _lines(case: ChainCase, size: ChainSize, seeds: range) -> list[dict[str, Any]]:
    runs = [_run(case, size, seed) for seed in seeds]
    shares = {policy: [share[policy] for share, _ in runs] for policy in POLICIES}
    local = {policy: [share[policy] for _, share in runs] for policy in POLICIES}
    lines: list[dict[str, Any]] = []
    for policy in POLICIES:
        lines.append(row(f"{case.name}, {policy}", "share of bound", "", shares[policy], {}))
        lines.append(row(f"{case.name}, {policy}", "rows that stay", "", local[policy], {}))
    medians = {policy: statistics.median(values) for policy, values in shares.items()}
    best = max(medians[policy] for policy in POLICIES if policy != "auto")
    bar, reached = max(case.bar * best, medians["locality"]), medians["auto"]
    unit = f"{met(reached >= bar)} by auto"
    return [*lines, row(case.name, "bar of auto", unit, [bar], {f"{case.name}, auto": bar / reached})]


def _run(case: ChainCase, size: ChainSize, seed: int) -> tuple[dict[str, float], dict[str, float]]:
    """The share of the bound, and of the rows that stay on their server, by policy: medians of the last third."""
    site = ChainSite(CPU, SECONDS_PER_ROW, FIXED_SECONDS, case.remote_seconds)
    contenders = [ChainContender(site, policy) for policy in POLICIES]
    stream = CommunityStream(size.keys, size.communities, case.correlation, zipf_probabilities(size.keys, 0.9), seed)
    hashes = tuple(hash_int64(np.arange(size.keys, dtype=np.int64) + start) for start in (0, size.keys))
    for _ in range(size.batches):
        batch = stream.batch(size.rows, (hashes[0], hashes[1]))
        for contender in contenders:
            contender.take(batch)
    settled, best = size.batches // 3, site.best_seconds(size.rows)
    shares = {one.policy: best / statistics.median(one.seconds[-settled:]) for one in contenders}
    return shares, {one.policy: statistics.median(one.local[-settled:]) for one in contenders}
