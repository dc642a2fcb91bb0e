"""The verdict on a run: one sentence on what holds it up, or since when it is balanced. Pure.

`judge` has hysteresis, so that a figure that hovers at the tolerance does not turn the sentence with every batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from streamtopology.contract.formatting import percent
from streamtopology.contract.page import Verdict, VerdictState
from streamtopology.contract.phases import Phase
from streamtopology.contract.reason_text import describe
from streamtopology.contract.reasons import SOURCE, Binding, BindingKind
from streamtopology.jobs.observe.fair_share import JUDGED_ROWS, RECENT_BATCHES, Loads, MeasuredBatch, recent_loads
from streamtopology.jobs.observe.figures import working_seconds
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.outcome import WARMUP_BATCHES, BatchOutcome
from streamtopology.jobs.view.formatting import shown_name

# The share of a batch from which its fixed cost is worth a sentence.
_FIXED_COST = 0.45

# Batches of one epoch from which their median is no single slow batch.
_TURNING_BATCHES = 3

# Executors up to which the most loaded is named alone.
_ONE_BY_ONE = 64


@dataclass(frozen=True)
class Balance:
    """True in `held_up` while an executor holds the others up. `since_batch`: the first batch of this state."""

    held_up: bool
    since_batch: int


def judge(former: Balance | None, batches: Sequence[MeasuredBatch], tolerance: float) -> Balance | None:
    """The state after the newest of `batches`; None before it can be judged.

    An executor holds the others up from twice the tolerance, in the median of `_TURNING_BATCHES` of one epoch at least, until
    all are within the tolerance again. The first batches of a run, whose kernels compile, begin nothing: give it those since
    the start, or the newest `RECENT_BATCHES`.
    """
    highest = recent_loads(batches).highest
    if highest is None or len(batches) < WARMUP_BATCHES:
        return former
    was_held_up = former is not None and former.held_up
    held_up = highest > 1 + tolerance * (1 if was_held_up else 2)
    if former is not None and held_up == was_held_up:
        return former
    newest = [batch for batch in batches if batch.rows and batch.epoch == batches[-1].epoch]
    if held_up and len(newest) < _TURNING_BATCHES:
        return former
    return Balance(held_up, batches[-1].number)


def limiting_stage(loads: Loads) -> str | None:
    """The stage with most busy seconds, None before any has run."""
    busy = {stage: sum(done.seconds for done in work.values()) for stage, work in loads.work.items()}
    return max(busy, key=lambda stage: busy[stage], default=None)


def verdict(history: History, balance: Balance | None, loads: Loads, tolerance: float) -> Verdict:
    """The sentence on the run as it stands."""
    batches = history.batches
    since = None if balance is None else balance.since_batch
    if history.activity.phase in (Phase.STARTING, Phase.WARMING_UP):
        text = str(history.activity)
        return Verdict(VerdictState.WAIT, f"{text[:1].upper()}{text[1:]}")
    over = history.activity.phase is Phase.DONE
    if not batches:
        return Verdict(VerdictState.WAIT, "The run is over; no batch has run" if over else "No batch has run yet")
    if batches[-1].moving:
        ended = "The run ended in the middle of a re-routing; the next one continues it"
        text = ended if over else "A re-routing is under way; state moves portion by portion"
        return Verdict(VerdictState.WATCH, text, since)
    if balance is None or not loads.by_slot:
        return Verdict(VerdictState.WAIT, _not_judged(history, loads, over))
    if balance.held_up:
        return Verdict(VerdictState.ACT, _held_up(history, loads, tolerance), since)
    beyond = max(loads.by_slot.values()) - 1  # up to twice the tolerance: `judge` has hysteresis
    balanced = "Balanced" if beyond <= tolerance else f"Balanced to within {percent(beyond)}"
    balanced += _apart_from(loads, tolerance)
    until = f"{balanced} from batch {since} to the end" if over else f"{balanced} since batch {since}"
    return Verdict(VerdictState.GOOD, f"{until}{_limit(history.binding, batches, loads)}", since)


def _apart_from(loads: Loads, tolerance: float) -> str:
    """The operator with the highest imbalance, if it is beyond what holds others up: one with little work holds nobody up."""
    highest = {stage: max(done.loads.values()) - 1 for stage, done in loads.stages.items() if stage != SOURCE and done.loads}
    worst = max(highest, key=lambda stage: highest[stage], default=None)
    if worst is None or highest[worst] <= 2 * tolerance:
        return ""
    busy = {stage: sum(done.seconds for done in work.values()) for stage, work in loads.work.items()}
    share = percent(busy[worst] / sum(busy.values()))
    return f" apart from {shown_name(worst)} (imbalance {percent(highest[worst])}, {share} of the work)"


def _not_judged(history: History, loads: Loads, over: bool) -> str:
    if history.totals.batches > WARMUP_BATCHES and not loads.by_slot:
        text = "The run had too few rows to judge" if over else "Too few rows to judge"
        return f"{text}; loads are compared from {JUDGED_ROWS} rows per executor and batch on"
    text = "The run ended before it could be judged" if over else "Being measured"
    return f"{text}; the first batches also load code"


def _held_up(history: History, loads: Loads, tolerance: float) -> str:
    names = {slot.index: slot.executor for slot in history.slots}
    worst = max(loads.by_slot, key=lambda slot: loads.by_slot[slot])
    over = sum(load > 1 + tolerance for load in loads.by_slot.values())
    name, share = names.get(worst, f"slot {worst}"), f"{loads.by_slot[worst]:.1f} × its fair share"
    if len(loads.by_slot) <= _ONE_BY_ONE or over <= max(1, len(loads.by_slot) // 20):
        holds = "held" if history.activity.phase is Phase.DONE else "holds"
        text = f"{name} {holds} the others up: {share}"
    else:
        text = f"{over:,} of {len(loads.by_slot):,} executors are beyond the tolerance, {name} most: {share}"
    if history.binding is not None and history.binding.kind is BindingKind.KEY:
        return f"{text}; {describe(history.binding)}"
    return text if history.hold is None else f"{text}; {describe(history.hold)}"


def _limit(binding: Binding | None, batches: Sequence[BatchOutcome], loads: Loads) -> str:
    """A clause on the limit of the throughput."""
    recent = [batch for batch in batches[-RECENT_BATCHES:] if batch.rows and batch.seconds > 0]
    fixed = median(1 - working_seconds(batch) / batch.seconds for batch in recent) if recent else 0.0
    if fixed >= _FIXED_COST:
        return f"; {percent(fixed)} of a batch is fixed cost: larger batches would help, routing would not"
    if binding is not None and binding.kind is not BindingKind.INSTANCE:
        return f"; {describe(binding)}"
    stage = limiting_stage(loads)
    return "" if stage is None else f"; limited by {'the source' if stage == SOURCE else shown_name(stage)}"
