"""switch-waits: what tuples wait while state moves: all at once, in portions in any order, or with hot keys first.

Tuples come evenly, and a batch takes those that came during the one before. It lasts as long as its slowest instance: for its
tuples, then for the state that it gives or takes. Portions, mixed tables and the pace are those that a driver has; the
overloaded instance is relieved the sooner the more of its load a portion takes along, which is what hot keys first is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from streamtopology.jobs.rerouting.gradual import MOST_PORTIONS, SwitchPace
from streamtopology.lab.reproduce.experiment import Claim, Experiment, Measured, Parameters, Plot, Progress, Row
from streamtopology.lab.simulate.streams import zipf_probabilities
from streamtopology.routing import planners
from streamtopology.routing.control.stages import AIM
from streamtopology.routing.epochs.gradual_switch import portions_of
from streamtopology.routing.load.load_report import HEAVY_KEYS
from streamtopology.routing.planners import PlanInput
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.table import BUCKETS, RoutingTable, bucket_of

Floats = npt.NDArray[np.float64]
Owners = npt.NDArray[np.int32]

AT_ONCE, PORTIONS, HOT_FIRST, NEVER = "at once", "in portions", "hot keys first", "not at all"
WAYS = (AT_ONCE, PORTIONS, HOT_FIRST, NEVER)
# Tuples that stand for those of one batch, by when they came.
POINTS = 20


@dataclass(frozen=True, eq=False)
class Operator:
    """Keys with their share of the tuples and their bytes of state, and the tables before and after a plan of Mixed."""

    hashes: npt.NDArray[np.uint64]
    shares: Floats
    state: Floats
    before: Owners
    after: Owners
    instances: int

    @staticmethod
    def drawn(parameters: Parameters, by_load: float, seed: int) -> Operator:
        """A Zipf operator under hashing; the part `by_load` of its state is where its tuples are, the rest the same a key."""
        rng = np.random.default_rng(seed)
        n, k = int(parameters["keys"]), int(parameters["instances"])
        hashes = hash_int64(np.arange(n) + int(rng.integers(1 << 40)))
        shares = zipf_probabilities(n, float(parameters["zipf"]))
        state = float(parameters["state_bytes"]) * (by_load * shares + (1 - by_load) / n)
        before = RoutingTable.uniform(range(k))
        light = bucket_of(hashes[HEAVY_KEYS:], BUCKETS)
        given = PlanInput(
            current=before,
            instances=tuple(range(k)),
            capacities=np.ones(k),
            fixed_seconds=np.zeros(k),
            key_hashes=hashes[:HEAVY_KEYS],
            key_loads=shares[:HEAVY_KEYS],
            key_state=state[:HEAVY_KEYS],
            bucket_loads=np.bincount(light, shares[HEAVY_KEYS:], BUCKETS).astype(np.float64),
            bucket_state=np.bincount(light, state[HEAVY_KEYS:], BUCKETS).astype(np.float64),
            tolerance=AIM * float(parameters["theta"]),
        )
        after = planners.get("mixed")(given).table
        return Operator(hashes, shares, state, before.lookup(hashes), after.lookup(hashes), k)

    def fullest(self, owners: Owners) -> float:
        """The share of the tuples that the fullest instance has."""
        return float(np.bincount(owners, self.shares, self.instances).max())

    def moved(self, former: Owners, owners: Owners) -> float:
        """The most bytes that an instance gives or takes."""
        moving = former != owners
        both = [np.bincount(at[moving], self.state[moving], self.instances) for at in (former, owners)]
        return float(max(both[0].max(), both[1].max()))

    def portions_of(self, way: str, portions: int) -> npt.NDArray[np.int32]:
        """The portion in which each key moves, int32[n]: by its bucket as a driver has it, or the hottest keys that move first.

        Hot keys first are cut so that every portion has about as many bytes.
        """
        if way != HOT_FIRST:
            return portions_of(self.hashes, BUCKETS, portions)
        return self.cut(self.hottest_first(), portions)

    def hottest_first(self) -> npt.NDArray[np.int64]:
        """The keys that move."""
        moving = np.flatnonzero(self.before != self.after)
        return moving[np.argsort(-self.shares[moving], kind="stable")]

    def cut(self, keys: npt.NDArray[np.int64], portions: int) -> npt.NDArray[np.int32]:
        """The portion of each key, int32[n], if `keys`, in their order, move in portions of about as many bytes."""
        bytes_before = np.cumsum(self.state[keys]) - self.state[keys]
        dealt = np.zeros(len(self.hashes), np.int32)
        dealt[keys] = np.minimum(bytes_before / self.state[keys].sum() * portions, portions - 1).astype(np.int32)
        return dealt


@dataclass(frozen=True)
class Waited:
    """Seconds until their batch was done that tuples waited which came from the plan on; and until the last portion."""

    mean: float
    p99: float
    most: float
    switch_seconds: float


def waited(operator: Operator, parameters: Parameters, way: str) -> Waited:
    """Batches before and after a plan that is published at time 0."""
    cost = float(parameters["utilisation"]) / operator.fullest(operator.before)
    portions = 1 if way == AT_ONCE else _portions(operator, parameters)
    portion, pace, owners = operator.portions_of(way, portions), SwitchPace(), operator.before
    done, until = portions if way == NEVER else 0, 0.0
    now, last = -float(parameters["before"]), -float(parameters["before"]) - float(parameters["fixed"])
    waits: list[Floats] = []
    weights: list[float] = []
    while now < float(parameters["after"]):
        taken, former = min(pace.portions, portions - done) if now >= 0 else 0, owners
        done += taken
        owners = np.where(portion < done, operator.after, operator.before) if taken else owners
        seconds = float(parameters["fixed"]) + cost * (now - last) * operator.fullest(owners)
        moving = operator.moved(former, owners) / float(parameters["bytes_per_second"]) if taken else 0.0
        seconds += moving
        if now >= 0:
            waits.append(now + seconds - (last + (now - last) * (np.arange(POINTS) + 0.5) / POINTS))
            weights.append(now - last)
        last, now = now, now + seconds
        if taken:
            pace.batch_with_portions(moving, taken)
            until = now
        else:
            pace.usual_batch(seconds)
    return _waited(np.concatenate(waits), np.repeat(np.array(weights) / POINTS, POINTS), until)


def _waited(waits: Floats, weights: Floats, until: float) -> Waited:
    order = np.argsort(waits)
    below = np.cumsum(weights[order]) / weights.sum()
    p99 = float(waits[order][np.searchsorted(below, 0.99)])
    return Waited(float(waits @ weights / weights.sum()), p99, float(waits.max()), until)


def _portions(operator: Operator, parameters: Parameters) -> int:
    moving = float(operator.state[operator.before != operator.after].sum())
    return int(np.clip(np.ceil(moving / operator.instances / float(parameters["portion_bytes"])), 1, MOST_PORTIONS))


def switch(parameters: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    """A row for each utilisation, kind of state and way: means over runs."""
    cases = list(product(parameters["over_utilisation"], parameters["over_state_by_load"]))
    rows: list[Row] = []
    for number, (utilisation, by_load) in enumerate(cases):
        found: dict[str, list[Waited]] = {way: [] for way in WAYS}
        for run in range(runs):
            operator = Operator.drawn(parameters, by_load, seed + run)
            for way in WAYS:
                found[way].append(waited(operator, {**parameters, "utilisation": utilisation}, way))
        for way, many in found.items():
            means = {name: float(np.mean([getattr(one, name) for one in many])) for name in Waited.__dataclass_fields__}
            rows.append({"utilisation": utilisation, "state_by_load": by_load, "way": way, **means})
        progress((number + 1) / len(cases))
    return Measured(rows, _summary(rows))


def _summary(rows: Sequence[Row]) -> dict[str, float]:
    def cuts(name: str, way: str, than: str) -> list[float]:
        """By how many percent the one's figure is below the other's, in every case."""
        pairs = zip(*([float(row[name]) for row in rows if row["way"] == one] for one in (way, than)), strict=True)
        return [100 * (1 - a / b) for a, b in pairs]

    return {
        "most_cut_of_longest_by_portions": max(cuts("most", PORTIONS, AT_ONCE)),
        "least_cut_of_p99_by_portions": min(cuts("p99", PORTIONS, AT_ONCE)),
        "least_cut_of_mean_by_portions": min(cuts("mean", PORTIONS, AT_ONCE)),
        "most_cut_of_longest_by_hot_first": max(cuts("most", HOT_FIRST, AT_ONCE)),
        "least_cut_of_p99_by_hot_first": min(cuts("p99", HOT_FIRST, AT_ONCE)),
        "most_cut_of_mean_by_hot_first": max(cuts("mean", HOT_FIRST, AT_ONCE)),
        "least_cut_of_p99_to_portions": min(cuts("p99", HOT_FIRST, PORTIONS)),
        "least_cut_of_mean_to_portions": min(cuts("mean", HOT_FIRST, PORTIONS)),
        "most_cut_of_mean_to_portions": max(cuts("mean", HOT_FIRST, PORTIONS)),
    }


_A_BATCH_WAITS = (
    "In micro-batches every tuple of a batch waits for the state that moves with it, whichever key it has; and until its hot"
    " keys have moved the overloaded instance makes every batch as long as before."
)

SWITCH_WAITS = Experiment(
    id="switch-waits",
    title="What tuples wait while a skewed operator's state moves: at once, in portions, hot keys first",
    source="Megaphone (PVLDB 12(9), 2019), Meces (USENIX ATC 2022) and DRRS (arXiv 2503.11320), abstracts; claims marked ours",
    parameters={
        "keys": 100_000,
        "zipf": 0.9,
        "instances": 8,
        "theta": 0.08,
        "state_bytes": 1e9,
        "portion_bytes": 524_288,
        "bytes_per_second": 50e6,
        "fixed": 0.05,
        "before": 10,
        "after": 30,
        "over_utilisation": [0.5, 0.7, 0.9],
        "over_state_by_load": [0.5, 1.0],
    },
    quick={"keys": 20_000, "over_utilisation": [0.5, 0.9], "over_state_by_load": [1.0]},
    runs=5,
    quick_runs=1,
    measure=switch,
    claims=(
        Claim(
            "Megaphone: portions lower the longest wait by orders of magnitude (by half at least in one case)",
            lambda s: s["most_cut_of_longest_by_portions"] >= 50,
            why_not=_A_BATCH_WAITS,
        ),
        Claim(
            "Meces: hot keys first lower it by orders of magnitude (by half at least in one case)",
            lambda s: s["most_cut_of_longest_by_hot_first"] >= 50,
            why_not=_A_BATCH_WAITS,
        ),
        Claim(
            "DRRS: peak latency is up to 81 % lower (at least 41 %, half of it, in one case)",
            lambda s: s["most_cut_of_longest_by_hot_first"] >= 81.1 / 2,
            {"most_cut_of_longest_by_hot_first": 81.1},
            _A_BATCH_WAITS,
        ),
        Claim(
            "DRRS: the average latency is up to 95 % lower (at least 48 %, half of it, in one case)",
            lambda s: s["most_cut_of_mean_by_hot_first"] >= 95.5 / 2,
            {"most_cut_of_mean_by_hot_first": 95.5},
            "All at once relieves the overloaded instance with the first batch; over the whole time nothing is sooner.",
        ),
        Claim(
            "Ours: in portions, as a driver has them, the 99th percentile is lower than at once, in every case",
            lambda s: s["least_cut_of_p99_by_portions"] > 0,
            why_not=_A_BATCH_WAITS,
        ),
        Claim(
            "Ours: with hot keys first the 99th percentile is lower than at once, in every case",
            lambda s: s["least_cut_of_p99_by_hot_first"] > 0,
            why_not="Where the fullest instance is used to nine tenths, batches stay long until its hot keys have moved, and"
            " these have most of the state that moves.",
        ),
        Claim(
            "Ours: hot keys first make the mean wait shorter than portions in any order, in every case",
            lambda s: s["least_cut_of_mean_to_portions"] > 0,
            why_not="The hottest keys that move may be others than those of the fullest instance, which is then relieved late;"
            " and where the fullest is used to less than nine tenths, an order has little to gain, nor to lose.",
        ),
    ),
    plots=tuple(
        Plot(f"{title}, seconds; state where the tuples are", "utilisation", name, "way", only={"state_by_load": 1.0})
        for title, name in (("99th percentile of waits", "p99"), ("Mean wait", "mean"), ("Longest wait", "most"))
    ),
    stand_in="A model of a driver's batches, with its portions and its pace",
)
