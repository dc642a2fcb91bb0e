"""`posg-schedulers` (ours): on micro-batches every router task is a scheduler. What do several cost against one?

A batch is divided among schedulers, each a chooser of its own, all with what the instances reported after the batch before
(docs/decisions/0048). A batch is done when its last instance is; that over a perfect division of its work is what counts.
`consistent` learns nothing: each scheduler counts what it gave to each virtual worker, from zero in each batch
(docs/decisions/0021). That may cost key locality, so the partial results that a batch leaves are counted, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamtopology.lab.reproduce.experiment import Claim, Experiment, Measured, Parameters, Plot, Progress, Row, Summary
from streamtopology.lab.reproduce.experiments.posg import reasons
from streamtopology.lab.reproduce.experiments.posg.queues import Stream
from streamtopology.lab.reproduce.experiments.posg.row_over import SYNTHETIC
from streamtopology.lab.reproduce.experiments.posg.workloads import synthetic
from streamtopology.lab.simulate.learning import SimulatedLearning
from streamtopology.routing.groupings import first_table, make_chooser
from streamtopology.topology import groupings

Floats = npt.NDArray[np.float64]

WHOLE_C = "posg, each from all of C"
POLICIES = ("shuffle", "partial-key", "consistent", "posg", "posg-merged", "earliest-finish")
MANY = 16


@dataclass(frozen=True)
class _Cost:
    """Means over batches: `lateness`, seconds until the last instance is done over those of a perfect division;
    `partials`, pairs of a key and an instance that it went to, over tuples: what a merge would be given."""

    lateness: float
    partials: float


@dataclass
class _Instances:
    """`k` instances that take `slowness` (float64[k]) times as long, what they report and what is known from that."""

    policy: str
    options: dict[str, object]
    slowness: Floats

    def __post_init__(self) -> None:
        self.spec = groupings.get(self.policy)
        self.rows = np.zeros(len(self.slowness))
        self.learning = SimulatedLearning(self.spec, self.options, len(self.slowness))

    def divided(self, hashes: npt.NDArray[np.uint64], batch: int, schedulers: int, parts: int) -> npt.NDArray[np.int32]:
        """int32[n]: the instance of each tuple of a batch. Each scheduler makes up one of `parts` of what is uneven."""
        chosen = np.empty(len(hashes), np.int32)
        instances = np.arange(len(self.slowness), dtype=np.int32)
        table = first_table(self.policy, range(len(instances)), self.options)
        for scheduler in range(schedulers):
            mine = slice(scheduler, None, schedulers)
            seed = batch * 1_000_003 + scheduler
            chooser = make_chooser(self.policy, instances, self.rows / parts, seed, self.options, table)
            self.learning.teach(chooser, parts)
            chosen[mine] = chooser.choose(hashes[mine], len(hashes[mine]))
        return chosen

    def execute(self, hashes: npt.NDArray[np.uint64], seconds: Floats, chosen: npt.NDArray[np.int32]) -> float:
        """The time at which the last instance is done, over a perfect division; the reports are known afterwards."""
        took = seconds * self.slowness[chosen]
        work = np.bincount(chosen, took, len(self.slowness))
        self.rows += np.bincount(chosen, minlength=len(self.slowness))
        self.learning.take_in(hashes, took, chosen)
        return float(work.max() / (seconds.sum() / np.sum(1 / self.slowness)))


def _cost(stream: Stream, policy: str, schedulers: int, parts: int, given: Parameters) -> _Cost:
    """Over the second half of the batches, when costs are known."""
    options: dict[str, object] = {"window": int(given["window"])} if policy.startswith("posg") else {}
    checked = groupings.get(policy).check_options(options)
    instances = _Instances(policy, checked, np.array(given["slowness"], np.float64))
    hashes, seconds, size = stream.hashes[stream.items], stream.costs[stream.items], int(given["batch"])
    late: list[float] = []
    partials: list[float] = []
    for batch, first in enumerate(range(0, len(hashes), size)):
        part = slice(first, first + size)
        chosen = instances.divided(hashes[part], batch, schedulers, parts)
        late.append(instances.execute(hashes[part], seconds[part], chosen))
        pairs = np.unique(stream.items[part].astype(np.int64) * len(instances.slowness) + chosen)
        partials.append(len(pairs) / len(chosen))
    second_half = slice(len(late) // 2, None)
    return _Cost(float(np.mean(late[second_half])), float(np.mean(partials[second_half])))


def _measure(given: Parameters, runs: int, seed: int, progress: Progress) -> Measured:
    found: defaultdict[tuple[int, str], list[_Cost]] = defaultdict(list)
    counts: Sequence[int] = given["values"]
    for run in range(runs):
        stream = synthetic({**given, "slowness": None, "k": len(given["slowness"])}, np.random.default_rng([seed, run]))
        for done, schedulers in enumerate(counts):
            for policy in POLICIES:
                found[schedulers, policy].append(_cost(stream, policy, schedulers, schedulers, given))
            found[schedulers, WHOLE_C].append(_cost(stream, "posg", schedulers, 1, given))
            progress((run + (done + 1) / len(counts)) / runs)
    means = {
        case: _Cost(float(np.mean([cost.lateness for cost in costs])), float(np.mean([cost.partials for cost in costs])))
        for case, costs in found.items()
    }
    series: list[Row] = [
        {"schedulers": schedulers, "algorithm": name, "lateness": cost.lateness, "partials": cost.partials}
        for (schedulers, name), cost in means.items()
    ]
    return Measured(series, _summary(means))


def _summary(means: Mapping[tuple[int, str], _Cost]) -> Summary:
    """Per algorithm the largest lateness with several schedulers over that with one; of `consistent`, partials as well."""
    summary: dict[str, float] = {}
    for name in (*POLICIES, WHOLE_C):
        several = [cost for (schedulers, other), cost in means.items() if other == name and schedulers > 1]
        summary[_figure(name)] = max(cost.lateness for cost in several) / means[1, name].lateness
        if name == "consistent":
            summary["consistent_partials_over_one"] = max(cost.partials for cost in several) / means[1, name].partials
    return summary


def _figure(name: str) -> str:
    return "whole_c_over_one" if name == WHOLE_C else f"{name}_over_one".replace("-", "_")


def _within(name: str, share: float) -> Claim:
    return Claim(
        f"Ours: 2 to {MANY} schedulers with `{name}` finish a batch at most {share:.0%} later than one",
        lambda summary: summary[_figure(name)] <= 1 + share,
        why_not=reasons.COUNTS_TUPLES if name in ("partial-key", "consistent") else "",
    )


SCHEDULERS = Experiment(
    id="posg-schedulers",
    title="Several schedulers on micro-batches, against one",
    source="not in the paper, which has one scheduler: docs/decisions/0048",
    parameters={
        **{name: SYNTHETIC[name] for name in ("n", "wn", "wmin", "wmax", "alpha", "provisioning")},
        "m": 65_536,
        "batch": 4096,
        "window": 256,
        "slowness": [1.0, 1.0, 1.0, 1.0, 1.0],
        "values": [1, 2, 4, 8, MANY],
    },
    quick={"values": [1, 4, MANY]},
    runs=10,
    quick_runs=3,
    measure=_measure,
    claims=[
        *(_within(name, 0.02) for name in ("partial-key", "consistent", "posg", "posg-merged", "earliest-finish")),
        Claim(
            f"Ours: 2 to {MANY} schedulers with `consistent` leave at most 5% more partial results than one",
            lambda summary: summary["consistent_partials_over_one"] <= 1.05,
        ),
        Claim(
            "Ours: where each of them starts from all of C, posg's batches take more than twice as long",
            lambda summary: summary["whole_c_over_one"] > 2,
        ),
    ],
    plots=[
        Plot(
            "When a batch is done, over a perfect division",
            x="schedulers",
            y="lateness",
            line="algorithm",
            log_x=True,
            log_y=True,
            y_label="seconds over those of a perfect division",
        ),
        Plot(
            "What a batch leaves to be merged",
            x="schedulers",
            y="partials",
            line="algorithm",
            log_x=True,
            y_label="partial results over tuples",
        ),
    ],
)
