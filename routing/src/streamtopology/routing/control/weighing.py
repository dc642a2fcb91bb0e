"""The decision whether remedies of stages are worthwhile: tolerance, hysteresis, and gain against cost.

A better table is always to be had; that is no reason to move state. Gains come with every batch of the horizon, the cost
comes once, and both are in seconds, so they can be compared. A gain within the noise of the measurements counts as none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from streamtopology.contract.reasons import SOURCE, Binding, Hold, HoldReason, Weighed, WeighedStage
from streamtopology.routing.control.memory import added_bytes, overfilled
from streamtopology.routing.control.moves import MOST_MOVES
from streamtopology.routing.control.stages import Remedy
from streamtopology.routing.control.window import WindowBatch
from streamtopology.routing.planners.switch_costs import switch_seconds

# After a re-routing, an imbalance beyond this many tolerances is answered at once, a smaller one when it lasts.
CLEAR = 1.5

# Judgements in a row that find a stage out of tolerance before a small imbalance counts as lasting.
LASTING = 2

# Share of the horizon that operators planned for locality may lose by a switch, and by worse balance after it.
LOCALITY_MAY_COST = 0.1


# Stages whose figures an epoch carries.
MOST_STAGES = 16

# Reports by which a single stage lasts longer than this many batches are wrong, whichever of them it is.
CONTRADICTORY = 1.5


@dataclass(frozen=True)
class Worthwhile:
    """The remedies to carry out together. Gain is seconds per batch over `batches`, cost is seconds once."""

    remedies: Mapping[str, Remedy]
    gain_seconds: float
    cost_seconds: float
    batches: float

    def weighed(self, judged: Mapping[str, Remedy], batch_seconds: float, trust: float, binding: Binding | None) -> Weighed:
        """The figures that an epoch carries: those of the stages that were `judged`, first those that are taken."""
        stages = (_weighed(name, remedy, name in self.remedies) for name, remedy in sorted(judged.items()))
        keys = (move for remedy in self.remedies.values() for move in remedy.keys)
        links = (link for remedy in self.remedies.values() for link in remedy.links)
        return Weighed(
            stages=tuple(sorted(stages, key=lambda stage: (not stage.taken, -stage.keep_seconds))[:MOST_STAGES]),
            batch_seconds=batch_seconds,
            gain_seconds=self.gain_seconds,
            cost_seconds=self.cost_seconds,
            batches=self.batches,
            trust=trust,
            binding=binding,
            keys=tuple(sorted(keys, key=lambda move: -move.rows)[:MOST_MOVES]),
            links=tuple(sorted(links, key=lambda link: -link.rows)[:MOST_MOVES]),
        )


def _weighed(stage: str, remedy: Remedy, taken: bool) -> WeighedStage:
    after = remedy.seconds_before - remedy.gain_seconds
    return WeighedStage(stage, remedy.reason.kind, remedy.seconds_before, after, remedy.noise_seconds, taken)


def contradicted(judged: Mapping[str, Remedy], batches: Sequence[WindowBatch]) -> Hold | None:
    """The reason to do nothing about a stage that, by its reports, lasts longer than whole `batches` of its epoch did."""
    if not batches:
        return None
    apart = {SOURCE} if any(batch.read_ahead for batch in batches) else set[str]()
    seconds = {name: remedy.seconds_before for name, remedy in judged.items() if name not in apart}
    longest = max(seconds, key=seconds.__getitem__, default="")
    measured = float(np.mean([batch.seconds for batch in batches]))
    if not longest or seconds[longest] <= CONTRADICTORY * measured:
        return None
    return Hold(HoldReason.CONTRADICTED, stages=(longest,), stage_seconds=seconds[longest], batch_seconds=measured)


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
        self,
        judged: Mapping[str, Remedy],
        tolerance: float,
        batch_seconds: float,
        horizon_seconds: float,
        trust: float,
        free_bytes: Mapping[int, float],
    ) -> Hold | Worthwhile:
        """The decision to carry out, by what is `judged` of each stage, for usual batches of `batch_seconds`.

        `trust`: the share of a predicted gain that counts. `free_bytes`: of memory for more state, by slot with a limit.
        """
        out = {name for name, remedy in judged.items() if remedy.imbalance > tolerance or remedy.brings_locality}
        self._out_of_tolerance = Counter({name: self._out_of_tolerance[name] + 1 for name in out})
        if not out:
            worst = max((remedy.imbalance for remedy in judged.values()), default=0.0)
            return Hold(HoldReason.BALANCED, imbalance=worst, tolerance=tolerance)
        ripe = {name for name in out if self._is_ripe(name, judged[name].imbalance, tolerance)}
        if not ripe:
            return Hold(HoldReason.MAY_NOT_LAST, stages=tuple(sorted(out)))
        noticeable = {name: one for name, one in judged.items() if one.brings_locality or one.is_noticeable_by(trust)}
        if not ripe & noticeable.keys():
            return Hold(HoldReason.NO_BETTER_PLAN, stages=tuple(sorted(ripe)), trust=trust)
        # Shares move no state: with a switch that is made anyway they cost nothing, so that a gain need not be certain.
        noticeable |= {name: judged[name] for name in ripe if judged[name].shares and judged[name].gain_seconds > 0}
        batches = horizon_seconds / max(batch_seconds, 1e-3)
        wanted = _if_worth_it(noticeable, batches, horizon_seconds, trust)
        fitting = _with_room(noticeable, ripe, free_bytes)
        if isinstance(wanted, Hold) or len(fitting) == len(noticeable):
            return wanted
        if not ripe & fitting.keys():
            return _no_room({name: noticeable[name] for name in ripe & noticeable.keys()}, free_bytes)
        return _if_worth_it(fitting, batches, horizon_seconds, trust)

    def _is_ripe(self, name: str, imbalance: float, tolerance: float) -> bool:
        clear = imbalance > CLEAR * tolerance
        return name not in self._rerouted or clear or self._out_of_tolerance[name] >= LASTING


def _with_room(remedies: Mapping[str, Remedy], ripe: Collection[str], free_bytes: Mapping[int, float]) -> dict[str, Remedy]:
    """Those of `remedies` that executors have memory for together: without the ones that bring a full slot the most.

    Those that are not `ripe` go first, so that they keep no ripe one from being carried out.
    """
    kept = dict(remedies)
    while full := overfilled(added_bytes(remedy.arriving_bytes for remedy in kept.values()), free_bytes):
        brought = {name: remedy.arriving_bytes.get(min(full), 0.0) for name, remedy in kept.items()}
        del kept[max((name for name in kept if brought[name] > 0), key=lambda name: (name not in ripe, brought[name]))]
    return kept


def _no_room(remedies: Mapping[str, Remedy], free_bytes: Mapping[int, float]) -> Hold:
    """The reason to carry out none of `remedies`, with the slot that would get the most."""
    full = overfilled(added_bytes(remedy.arriving_bytes for remedy in remedies.values()), free_bytes)
    slot = max(full, key=full.__getitem__)
    stages = tuple(sorted(remedies))
    return Hold(HoldReason.NO_ROOM, stages=stages, slot=slot, state_bytes=full[slot], free_bytes=free_bytes[slot])


def _if_worth_it(remedies: Mapping[str, Remedy], batches: float, horizon_seconds: float, trust: float) -> Hold | Worthwhile:
    """All of `remedies`, if over this number of `batches` what is believed of their gain saves the cost of switching."""
    gain = sum(remedy.gain_seconds for remedy in remedies.values())
    cost = switch_seconds(sum(remedy.moved_bytes for remedy in remedies.values()))
    allowed = LOCALITY_MAY_COST * horizon_seconds if any(remedy.brings_locality for remedy in remedies.values()) else 0.0
    if min(gain, gain * trust) * batches + allowed <= cost:
        return Hold(HoldReason.NOT_WORTH_COST, gain_seconds=gain, batches=batches, cost_seconds=cost)
    return Worthwhile(remedies, gain, cost, batches)
