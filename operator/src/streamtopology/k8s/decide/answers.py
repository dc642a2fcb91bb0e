"""The driver to ask and its answer: its stats and the planner's judgement of them, or the reason for its silence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from streamtopology.contract.reasons import EpochReason, Hold, Sizing
from streamtopology.contract.stats import Stats
from streamtopology.contract.stats_question import Question
from streamtopology.topology import Autoscale, ExecutorClass, OperatorSpec, Rebalance, Topology

# A topology, or a sentence for each problem of its manifest.
Reading = Topology | tuple[str, ...]


# To a driver of which nothing is known yet.
FIRST_QUESTION = Question(since=-1, as_observed=True)


@dataclass(frozen=True)
class PlanningRequest:
    """The planner's knowledge of a topology. `by_share`: source rows can be placed; `may_judge`: nothing is pending.

    `autoscale`: the manifest's, if it has one; `executors`: the classes, with the replicas decided on last. `operators`: the
    manifest's, whose traits decide which keys may be split.
    """

    topology: str
    rebalance: Rebalance
    by_share: bool
    may_judge: bool
    autoscale: Autoscale | None = None
    executors: tuple[ExecutorClass, ...] = ()
    operators: tuple[OperatorSpec, ...] = ()


@dataclass(frozen=True)
class Target:
    """The driver to ask, how often, and the request for the planner. `uid`: of the topology; `pod`: the driver's."""

    uid: str
    pod: str
    url: str
    interval_seconds: float
    request: PlanningRequest


@dataclass(frozen=True)
class Judgement:
    """The controller's decision. Of a proposal: the epoch as gzip of its JSON, and its figures; gain in s/batch, cost in s.

    `verdict`, `imbalance`: of the last full judgement, while `reason` may only be a wait; None before the first.
    """

    kind: Literal["hold", "recommend", "reroute"]
    reason: Hold | EpochReason
    generation: int
    number: int = 0
    packed: bytes = b""
    stages: tuple[str, ...] = ()
    predicted_gain_seconds: float = 0.0
    cost_seconds: float = 0.0
    moved_keys: int = 0
    moved_bytes: int = 0
    plan_seconds: float = 0.0
    verdict: Hold | EpochReason | None = None
    imbalance: float | None = None


@dataclass(frozen=True)
class Gain:
    """The gain of an operator's re-routing, as shares of a batch's time before it."""

    epoch: int
    predicted: float
    measured: float


@dataclass(frozen=True)
class Scaling:
    """The replicas that each scaled class should have, and why."""

    replicas: Mapping[str, int]
    reason: Sizing


@dataclass(frozen=True)
class Judged:
    """A driver's answer and the planner's judgement of it. None: there was nothing to judge. `known`: what to ask next."""

    stats: Stats
    judgement: Judgement | None = None
    scaling: Scaling | None = None
    gains: tuple[Gain, ...] = ()
    known: Question = FIRST_QUESTION


@dataclass(frozen=True)
class Silence:
    """The reason for a missing answer, since when (seconds since 1970), and the number in a row."""

    why: str
    since: float
    count: int = 1


@dataclass(frozen=True)
class Answer:
    """The last answer of the present pod, if any, and its silence since."""

    pod: str
    stats: Stats | None = None
    judgement: Judgement | None = None
    scaling: Scaling | None = None
    silence: Silence | None = None
    gains: tuple[Gain, ...] = ()
