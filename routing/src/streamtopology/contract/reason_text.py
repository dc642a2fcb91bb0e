"""Reasons as people read them: in status and events, the live view, reports, logs and plan previews.

No code reads these texts. Quantities are written as everywhere else, by `formatting`.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamtopology.contract.formatting import duration, percent, size
from streamtopology.contract.reasons import (
    PARTIAL,
    SOURCE,
    Binding,
    BindingKind,
    Choice,
    ChoiceReason,
    EpochCause,
    EpochReason,
    Hold,
    HoldReason,
    Reason,
    RemedyKind,
    ScalingReason,
    Sizing,
    StageReason,
)

# The share of a predicted gain from which on nothing needs to be known about what it was lowered by.
FULL_TRUST = 0.9


def describe(reason: Reason) -> str:
    """One line with the figures, without a full stop."""
    match reason:
        case Binding():
            return _binding(reason)
        case Hold():
            return _hold(reason)
        case StageReason():
            return _stage(reason)
        case EpochReason():
            return _epoch(reason)
        case Sizing():
            return _sizing(reason)


def _hold(hold: Hold) -> str:
    match hold.reason:
        case HoldReason.OFF:
            return "rebalance is off"
        case HoldReason.NOT_ACTIVE:
            return f"epoch {hold.epoch} has been published and is not active yet"
        case HoldReason.NOT_DUE:
            return f"the next judgement is due in {hold.due_seconds:.1f} s"
        case HoldReason.TOO_FEW_BATCHES:
            return f"{hold.batches:.0f} of {hold.needed} batches seen under epoch {hold.epoch}"
        case HoldReason.CAPACITY_CHANGED:
            return "a capacity has just changed: waiting for batches under the new one"
        case HoldReason.NOTHING_OBSERVED:
            return "no batch has been observed"
        case HoldReason.CONTRADICTED:
            return (
                f"by the reports {_stages(hold.stages)} took {duration(hold.stage_seconds)} of batches that took "
                f"{duration(hold.batch_seconds)}: the clocks of executors are wrong"
            )
        case HoldReason.BALANCED:
            return f"balanced: imbalance {hold.imbalance:z.1%} is within the tolerance of {hold.tolerance:.1%}"
        case HoldReason.MAY_NOT_LAST:
            return f"{_stages(hold.stages)} is out of balance: waiting to see whether that lasts"
        case HoldReason.NO_BETTER_PLAN:
            doubt = "" if hold.trust >= FULL_TRUST else ", as far as predictions are trusted: the last ones did not hold"
            return f"{_stages(hold.stages)} is out of balance, but no plan is noticeably better{doubt}"
        case HoldReason.NOT_WORTH_COST:
            return (
                f"not worth its cost: saves {hold.gain_seconds:.3f} s a batch over {hold.batches:.0f} batches, "
                f"costs {hold.cost_seconds:.2f} s"
            )
        case HoldReason.NO_ROOM:
            return (
                f"a better routing of {_stages(hold.stages)} would put {size(hold.state_bytes)} more of state on executor slot "
                f"{hold.slot}, whose memory has room for {size(hold.free_bytes)}"
            )


def _binding(binding: Binding) -> str:
    name = stage_name(binding.stage)
    together, seconds = duration(binding.bound_seconds), duration(binding.seconds)
    where = f"{'executor slot' if binding.stage == SOURCE else 'instance'} {binding.instance}"
    match binding.kind:
        case BindingKind.CAPACITY:
            fixed = f"fixed seconds are {percent(binding.fixed_share)} of it"
            return f"{name} is bounded by capacity: its instances finish together after {together}, {fixed}"
        case BindingKind.INSTANCE:
            return f"{name} is bounded by {where}: it takes {seconds}, all together would take {together}"
        case BindingKind.KEY:
            alone = f"{binding.key} alone takes {seconds} at {where}, all together would take {together}"
            return f"{name} is bounded by one key: {alone}{_remedy_of_key(binding, name)}"
        case BindingKind.FIXED:
            share = percent(binding.fixed_share)
            return f"{name} is bounded by fixed seconds: {share} of its {together}, larger batches would help"
        case BindingKind.ELSEWHERE:
            rest = duration(binding.batch_seconds - binding.seconds)
            return f"routing is not the bound: tasks take {seconds} of a batch, the driver and waiting {rest}"


def _remedy_of_key(binding: Binding, name: str) -> str:
    if binding.combinable is None:
        return ""
    can_split = ", a policy that splits keys would divide it"
    return can_split if binding.combinable else f", the state of {name} cannot be combined"


def _stage(stage: StageReason) -> str:
    name = "source" if stage.stage == SOURCE else stage.stage
    match stage.kind:
        case RemedyKind.SHARES:
            return f"{name}: shares by measured capacity, imbalance {stage.imbalance:z.1%}"
        case RemedyKind.TABLE:
            return f"{name}: imbalance {stage.imbalance:z.1%}, planned {stage.planned or 0.0:.1%}"
        case RemedyKind.LOCALITY:
            return (
                f"{name}: {stage.local_before or 0.0:.0%} of the tuples stay on their server, planned "
                f"{stage.local_planned or 0.0:.0%}; imbalance {stage.imbalance:z.1%}"
            )


def _epoch(reason: EpochReason) -> str:
    match reason.cause:
        case EpochCause.FIRST:
            return "the first epoch"
        case EpochCause.REBALANCED:
            return "; ".join(_stage(stage) for stage in reason.stages)
        case EpochCause.TAKEN_BACK:
            return f"routed as before epoch {reason.epoch}, under which batches took {duration(reason.lost_seconds)} longer"
        case EpochCause.APPLIED:
            return "; ".join(reason.changes)
        case EpochCause.RESTARTED:
            return "; ".join(reason.changes) or "restarted"
        case EpochCause.JOINED:
            return f"{', '.join(reason.slots)} joined"
        case EpochCause.DRAINED:
            return "partial instances that a restart had kept hand over and end"
        case EpochCause.WITHDRAWN:
            return f"routed as before epoch {reason.epoch}, which the operator gave up before it ran"
        case EpochCause.UNKNOWN:
            return reason.text


def _sizing(sizing: Sizing) -> str:
    wanted = _wanted(sizing) if sizing.choice is None else _chosen(sizing, sizing.choice)
    return f"{wanted}{_delay(sizing)}"


def _chosen(sizing: Sizing, choice: Choice) -> str:
    classes = " and ".join(f"{count} of class {name}" for name, count in choice.replicas)
    match sizing.reason:
        case ScalingReason.NOT_MEASURED:
            return f"{classes}: nothing has been measured yet"
        case ScalingReason.AT_MINIMUM:
            return f"{classes}: {_load(sizing)}, fewer would do: each class is held at minReplicas"
        case ScalingReason.AT_MAXIMUM:
            return f"{classes}: {_load(sizing)}, more would be needed: each class is held at maxReplicas"
        case _:
            return f"{classes}: {_why_this_class(choice)}{_load(sizing)}"


def _why_this_class(choice: Choice) -> str:
    price = "price" if choice.priced else "CPU"
    match choice.reason:
        case None:
            return ""
        case ChoiceReason.MOST_FOR_PRICE:
            return f"for its {price} one of {choice.name} brings {choice.times:.1f} times what one of {choice.other} does; "
        case ChoiceReason.OTHERS_AT_MAXIMUM:
            return f"{choice.name}, since classes that bring more for their {price} are at maxReplicas; "
        case ChoiceReason.CHEAPEST_ENOUGH:
            least = "cheapest" if choice.priced else "smallest"
            return f"one of {choice.name} is enough, and the {least} that is; "
        case ChoiceReason.CAN_BE_MISSED:
            return f"one of {choice.name} can be missed; "


def _wanted(sizing: Sizing) -> str:
    wanted = f"{sizing.replicas} executors"
    match sizing.reason:
        case ScalingReason.NOT_MEASURED:
            return f"{wanted}: nothing has been measured yet"
        case ScalingReason.ON_TARGET:
            return f"{wanted} are right: {_load(sizing)}"
        case ScalingReason.LOAD:
            return f"{wanted}: {_load(sizing)}"
        case ScalingReason.AT_MINIMUM:
            return f"{wanted}: {_load(sizing)}, {sizing.needed} would do: held at minReplicas"
        case ScalingReason.AT_MAXIMUM:
            return f"{wanted}: {_load(sizing)}, {sizing.needed} would be needed: held at maxReplicas"
        case ScalingReason.ASKED_BELOW_MINIMUM:
            return f"{sizing.needed} replicas were asked for; minReplicas is {sizing.replicas}"
        case ScalingReason.ASKED_ABOVE_MAXIMUM:
            return f"{sizing.needed} replicas were asked for; maxReplicas is {sizing.replicas}"


def _load(sizing: Sizing) -> str:
    lag = "" if sizing.lag_rows is None else f", {sizing.lag_rows:.0f} rows behind ({sizing.lag_seconds:.0f} s)"
    busy = f"busy {sizing.utilisation:.0%} of the measured capacity of {sizing.executors} executors"
    full = f"; state takes {sizing.crowded:.0%} of the room that their memory has for it" if sizing.crowded else ""
    return f"{busy}{lag}, target {sizing.target:.0%}{full}"


def _delay(sizing: Sizing) -> str:
    if sizing.fewer_in_seconds is not None:
        return f"; fewer not before {sizing.fewer_in_seconds:.0f} s more of it"
    if sizing.held is not None and sizing.choice is not None:
        return f"; more were needed within the last {sizing.window_seconds:.0f} s"
    if sizing.held is not None:
        return f"; {sizing.held} were needed within the last {sizing.window_seconds:.0f} s"
    return ""


def stage_name(stage: str) -> str:
    """The name of a stage in a sentence: the user's of the operator, or `the source`."""
    return _stages((stage.removesuffix(PARTIAL),))


def _stages(names: Sequence[str]) -> str:
    return "the source" if tuple(names) == (SOURCE,) else ", ".join(names)
