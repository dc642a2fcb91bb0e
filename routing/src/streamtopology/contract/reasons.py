"""Reasons of routing that stays, changes or is refused, and of the size of a class: enums, and values with the figures.

Code compares members of these enums; `reason_text` renders them for people.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from streamtopology.contract.wire_values import from_wire, to_wire

# The stage that reads the sources; no operator can bear this name.
SOURCE = "(source)"

# Suffix of the stage that gathers parts of keys ahead of the stage that merges them under the operator's own name.
PARTIAL = ".partial"


class Documented(StrEnum):
    """A string enum whose members carry one line of documentation, `meaning`."""

    meaning: str

    def __new__(cls, value: str, meaning: str) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


class HoldReason(Documented):
    """Reasons of the controller to leave the routing as it is."""

    OFF = "off", "rebalance.mode is Off"
    NOT_ACTIVE = "not-active", "a published epoch is not active yet"
    NOT_DUE = "not-due", "the interval between two judgements has not passed"
    TOO_FEW_BATCHES = "too-few-batches", "too few batches have run under the current epoch"
    CAPACITY_CHANGED = "capacity-changed", "a capacity has just changed: the window starts again"
    NOTHING_OBSERVED = "nothing-observed", "no batch has been observed"
    CONTRADICTED = "contradicted", "by its reports a stage lasts longer than whole batches: their seconds are wrong"
    BALANCED = "balanced", "every stage is within the tolerance"
    MAY_NOT_LAST = "may-not-last", "the imbalance is small and may be gone by the next judgement"
    NO_BETTER_PLAN = "no-better-plan", "no plan is noticeably better than the current routing"
    NOT_WORTH_COST = "not-worth-cost", "a better routing would cost more than it saves"
    NO_ROOM = "no-room", "a better routing would put more state on an executor than its memory has room for"

    @property
    def is_waiting(self) -> bool:
        """True if nothing was judged and nothing has changed, so that the last verdict still holds."""
        return self in (HoldReason.NOT_DUE, HoldReason.TOO_FEW_BATCHES)


class EpochCause(Documented):
    """Causes of an epoch."""

    FIRST = "first", "the topology's first epoch"
    REBALANCED = "rebalanced", "the controller found a better routing"
    TAKEN_BACK = "taken-back", "batches were slower under the controller's last epoch: routed as before"
    APPLIED = "applied", "the manifest or the number of executors changed while the topology ran"
    RESTARTED = "restarted", "the topology was started again from its checkpoint"
    JOINED = "joined", "executors that the topology was waiting for have joined"
    DRAINED = "drained", "partial instances that a restart had kept hand over and end"
    WITHDRAWN = "withdrawn", "the operator gave up an epoch whose state was being copied: routed as before"
    UNKNOWN = "unknown", "written by another program, with a text alone"

    @property
    def trigger(self) -> ReroutingTrigger:
        """The requester of the epoch, as metrics label it."""
        match self:
            case EpochCause.REBALANCED | EpochCause.TAKEN_BACK:
                return ReroutingTrigger.IMBALANCE
            case EpochCause.UNKNOWN:
                return ReroutingTrigger.UNKNOWN
            case _:
                return ReroutingTrigger.APPLIED


class ReroutingTrigger(Documented):
    """The label `reason` of the metrics that count re-routings."""

    IMBALANCE = "imbalance", "by the controller"
    APPLIED = "applied", "the manifest or the executors changed"
    UNKNOWN = "unknown", "by another program"


class RemedyKind(Documented):
    """Changes of a plan at a stage."""

    SHARES = "shares", "the shares of the rows, by measured capacity"
    TABLE = "table", "a routing table, for balance"
    LOCALITY = "locality", "the tables of several operators, so that tuples stay on their server"


class BindingKind(Documented):
    """Kinds of constraints that bound the time of a batch."""

    CAPACITY = "capacity", "all instances finish together: only more capacity would be faster"
    INSTANCE = "instance", "one instance is done after the others"
    KEY = "key", "one key has more work than its share, and has one home"
    FIXED = "fixed", "starting tasks takes longer than their rows: larger batches would help"
    ELSEWHERE = "elsewhere", "tasks take less than half of a batch: the rest is the driver's, or waiting"


class ScalingReason(Documented):
    """Reasons of the number of executors of the scaled class."""

    NOT_MEASURED = "not-measured", "no load has been measured: the number stays"
    ON_TARGET = "on-target", "the utilisation is close to the target"
    LOAD = "load", "this number keeps the target share of its capacity busy"
    AT_MINIMUM = "at-minimum", "fewer would do; minReplicas holds the number"
    AT_MAXIMUM = "at-maximum", "more would be needed; maxReplicas holds the number"
    ASKED_BELOW_MINIMUM = "asked-below-minimum", "spec.autoscale.replicas is below minReplicas"
    ASKED_ABOVE_MAXIMUM = "asked-above-maximum", "spec.autoscale.replicas is above maxReplicas"


class ChoiceReason(Documented):
    """Reasons to scale this class and not another."""

    MOST_FOR_PRICE = "most-for-price", "one of it brings more for its price than one of another class"
    OTHERS_AT_MAXIMUM = "others-at-maximum", "those that bring more for their price are at maxReplicas"
    CHEAPEST_ENOUGH = "cheapest-enough", "one of it is enough for the rest, and the cheapest that is"
    CAN_BE_MISSED = "can-be-missed", "one of it can be missed"


@dataclass(frozen=True)
class Hold:
    """The decision to leave the routing as it is, with the figures that led to it; each is 0 or empty where it has none.

    `epoch`: the one that is awaited, or that too few batches have run under: `batches` of `needed`. `due_seconds`: until
    the next judgement. `stages`: those out of balance. `gain_seconds` per batch over `batches`, against `cost_seconds` once.
    `stage_seconds`: of a stage by its reports, against the `batch_seconds` that were measured. `trust`: the share of a
    predicted gain that counts. `slot`: the one that would get `state_bytes` more of state, with `free_bytes` of room for it.
    """

    reason: HoldReason
    epoch: int = 0
    batches: float = 0
    needed: int = 0
    due_seconds: float = 0.0
    stages: tuple[str, ...] = ()
    imbalance: float = 0.0
    tolerance: float = 0.0
    gain_seconds: float = 0.0
    cost_seconds: float = 0.0
    stage_seconds: float = 0.0
    batch_seconds: float = 0.0
    trust: float = 1.0
    slot: int = 0
    state_bytes: float = 0.0
    free_bytes: float = 0.0


@dataclass(frozen=True)
class StageReason:
    """The effect of a plan on one stage. `planned`: the imbalance that it predicts.

    `local_before`, `local_planned`: the share of tuples that stay on their server.
    """

    kind: RemedyKind
    stage: str
    imbalance: float
    planned: float | None = None
    local_before: float | None = None
    local_planned: float | None = None


@dataclass(frozen=True)
class Binding:
    """The constraint that bounds the time of a batch, at the stage that takes longest.

    `seconds`: of its last instance, of the key alone, or of all tasks, against `bound_seconds`: when all of its instances
    finish together, `fixed_share` of it in fixed seconds. `key`: its hash in hexadecimal digits, or its label where that may
    be shown; `combinable`: its state may be gathered in parts, None if that is not known.
    """

    kind: BindingKind
    stage: str
    seconds: float
    bound_seconds: float
    fixed_share: float = 0.0
    instance: int | None = None
    key: str = ""
    combinable: bool | None = None
    batch_seconds: float = 0.0

    @property
    def subject(self) -> tuple[str, ...]:
        """The kind, the stage, and the instance or key that is to blame: figures change with every batch, this does not."""
        match self.kind:
            case BindingKind.ELSEWHERE:
                return (self.kind.value,)
            case BindingKind.INSTANCE:
                return self.kind.value, self.stage, str(self.instance)
            case BindingKind.KEY:
                return self.kind.value, self.stage, self.key
            case _:
                return self.kind.value, self.stage


@dataclass(frozen=True)
class WeighedStage:
    """The two routings of a stage that were weighed, in predicted seconds of a batch; `taken`: the planned one was.

    A gain up to `noise_seconds` is not distinguishable from noise.
    """

    stage: str
    kind: RemedyKind
    keep_seconds: float
    planned_seconds: float
    noise_seconds: float = 0.0
    taken: bool = True


@dataclass(frozen=True)
class KeyMove:
    """A key that changes its owner, with its `rows` of average cost in a batch.

    `key`: its hash in hexadecimal digits, or its label where that may be shown. `before`, `after`: instances.
    """

    stage: str
    key: str
    rows: float
    before: int
    after: int


@dataclass(frozen=True)
class LinkMove:
    """Two keys that come to one server, with the `rows` of a batch that go from the one to the other."""

    stage: str
    key: str
    next_stage: str
    next_key: str
    rows: float


@dataclass(frozen=True)
class Weighed:
    """The figures by which a re-routing was decided.

    It saves `gain_seconds` of usual batches of `batch_seconds`; the share `trust` of that, over `batches`, outweighs
    `cost_seconds` once. `binding`: the constraint under the routing before. `keys`, `links`: the first of those that make
    the difference.
    """

    stages: tuple[WeighedStage, ...]
    batch_seconds: float
    gain_seconds: float
    cost_seconds: float
    batches: float
    trust: float = 1.0
    binding: Binding | None = None
    keys: tuple[KeyMove, ...] = ()
    links: tuple[LinkMove, ...] = ()


@dataclass(frozen=True)
class EpochReason:
    """The cause of an epoch, with its figures.

    `stages`: what was rebalanced. `changes`: a sentence for each thing that changed in the manifest. `slots`: those that
    joined. `text`: of an unknown cause. `epoch`: the one that was taken back, under which batches took `lost_seconds` longer,
    or withdrawn. `weighed`: of one by the controller.
    """

    cause: EpochCause
    stages: tuple[StageReason, ...] = ()
    changes: tuple[str, ...] = ()
    slots: tuple[str, ...] = ()
    text: str = ""
    epoch: int = 0
    lost_seconds: float = 0.0
    weighed: Weighed | None = None

    @staticmethod
    def of_text(text: str) -> EpochReason:
        """A reason that only people understand."""
        return EpochReason(EpochCause.UNKNOWN, text=text)

    def brings(self, kind: RemedyKind) -> bool:
        """True if a plan of this kind is part of it."""
        return any(stage.kind is kind for stage in self.stages)

    def to_text(self) -> str:
        """One text, as an epoch carries it: JSON, or the text of an unknown cause as it stands."""
        if self.cause is EpochCause.UNKNOWN:
            return self.text
        return json.dumps(to_wire(self), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @staticmethod
    def from_text(text: str) -> EpochReason:
        """The reason that `to_text` was called on; any other text is of an unknown cause."""
        try:
            return from_wire(EpochReason, json.loads(text))
        except ValueError:
            return EpochReason.of_text(text)


@dataclass(frozen=True)
class Choice:
    """The wanted executors of each of several scaled classes, and the reason for `name`.

    One of it brings `times` what one of `other` does, for its price: `costPerHour`, or where that is not `priced`, its CPU.
    """

    replicas: tuple[tuple[str, int], ...]
    reason: ChoiceReason | None = None
    name: str = ""
    other: str = ""
    times: float = 1.0
    priced: bool = True


@dataclass(frozen=True)
class Sizing:
    """The wanted number of executors of the scaled class, within the bounds, with reason and figures; None for no value.

    `executors` were `utilisation` busy against `target`; `lag_rows` wait in the sources, which is `lag_seconds` of work.
    `needed`: what the load alone asks for, or what was asked for. Fewer are delayed by the stabilisation window of
    `window_seconds`: `fewer_in_seconds` at the earliest, or since `held` were needed within it. `choice`: of several
    classes, which have `replicas` in all; then nothing else counts executors. `crowded`: the share of the room for state that
    it takes at all executors together, where that asks for more of them than the load does.
    """

    reason: ScalingReason
    replicas: int
    needed: int = 0
    executors: int = 0
    utilisation: float = 0.0
    target: float = 0.0
    lag_rows: float | None = None
    lag_seconds: float = 0.0
    window_seconds: float = 0.0
    fewer_in_seconds: float | None = None
    held: int | None = None
    choice: Choice | None = None
    crowded: float = 0.0


Reason = Binding | Hold | StageReason | EpochReason | Sizing
