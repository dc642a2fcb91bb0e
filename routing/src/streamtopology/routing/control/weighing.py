"""The decision whether remedies of stages are worthwhile: tolerance, hysteresis, and gain against cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from streamtopology.contract.reasons import Hold, HoldReason
from streamtopology.routing.control.stages import Remedy

CLEAR = 1.5
"""After a re-routing, an imbalance beyond this many tolerances is answered at once, a smaller one when it lasts."""

LASTING = 2
"""Judgements in a row that find a stage out of tolerance before a small imbalance counts as lasting."""

SWITCH_SECONDS = 0.3
"""The cost of a switch in addition to moving state: an epoch's first batch computes what moves, and is not prefetched."""

MOVED_BYTES_PER_SECOND = 50e6
"""The speed of pulling state, on the cautious side."""

LOCALITY_MAY_COST = 0.1
"""Share of the horizon that operators planned for locality may lose by a switch, and by worse balance after it."""


@dataclass(frozen=True)
class Worthwhile:
    """The remedies to carry out together. Gain is seconds per batch, cost is seconds once."""

    remedies: Mapping[str, Remedy]
    gain_seconds: float
    cost_seconds: float


class Scales:
    """Weighs remedies; remembers the stages judged at a re-routing, and how often in a row each was out of tolerance."""

    def __init__(self) -> None:
        self._out_of_tolerance: Counter[str] = Counter()
        self._rerouted: set[str] = set()

    def rerouted(self, stages: Collection[str]) -> None:
        """After a re-routing a small imbalance of any of these stages must last before it is answered."""
        self._rerouted |= set(stages)
        self._out_of_tolerance.clear()

    def weigh(
        self, judged: Mapping[str, Remedy], tolerance: float, batch_seconds: float, horizon_seconds: float
    ) -> Hold | Worthwhile:
        """The decision to carry out, by what is `judged` of each stage, for usual batches of `batch_seconds`."""
        out = {name for name, remedy in judged.items() if remedy.imbalance > tolerance or remedy.brings_locality}
        self._out_of_tolerance = Counter({name: self._out_of_tolerance[name] + 1 for name in out})
        if not out:
            worst = max((remedy.imbalance for remedy in judged.values()), default=0.0)
            return Hold(HoldReason.BALANCED, imbalance=worst, tolerance=tolerance)
        ripe = {name for name in out if self._is_ripe(name, judged[name].imbalance, tolerance)}
        if not ripe:
            return Hold(HoldReason.MAY_NOT_LAST, stages=tuple(sorted(out)))
        noticeable = {name: remedy for name, remedy in judged.items() if remedy.is_noticeable or remedy.brings_locality}
        if not ripe & noticeable.keys():
            return Hold(HoldReason.NO_BETTER_PLAN, stages=tuple(sorted(ripe)))
        return _if_worth_it(noticeable, horizon_seconds / max(batch_seconds, 1e-3), horizon_seconds)

    def _is_ripe(self, name: str, imbalance: float, tolerance: float) -> bool:
        clear = imbalance > CLEAR * tolerance
        return name not in self._rerouted or clear or self._out_of_tolerance[name] >= LASTING


def _if_worth_it(remedies: Mapping[str, Remedy], batches: float, horizon_seconds: float) -> Hold | Worthwhile:
    """All of `remedies`, if over this number of `batches` they save the cost of switching."""
    gain = sum(remedy.gain_seconds for remedy in remedies.values())
    cost = SWITCH_SECONDS + sum(remedy.moved_bytes for remedy in remedies.values()) / MOVED_BYTES_PER_SECOND
    allowed = LOCALITY_MAY_COST * horizon_seconds if any(remedy.brings_locality for remedy in remedies.values()) else 0.0
    if gain * batches + allowed <= cost:
        return Hold(HoldReason.NOT_WORTH_COST, gain_seconds=gain, batches=batches, cost_seconds=cost)
    return Worthwhile(remedies, gain, cost)
