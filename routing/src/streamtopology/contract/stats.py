"""The answer of a driver at `/stats` (docs/reference/stats.md): its schema, its writer and its one reader.

Load reports and the routing stay in their wire form, which `streamtopology.routing` reads; most readers need neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Annotated, Any, cast

from streamtopology.contract.divided_key import DividedKey
from streamtopology.contract.epoch_story import EpochStory
from streamtopology.contract.errors import UnreadableData
from streamtopology.contract.format_number import FORMAT, ONE_VERSION, check_format
from streamtopology.contract.formatting import percent, size
from streamtopology.contract.phases import Activity
from streamtopology.contract.reason_text import describe
from streamtopology.contract.reasons import SOURCE, Binding, EpochReason, RemedyKind
from streamtopology.contract.wire_values import SPARSE, Form, WireError, from_wire, named, to_wire

STATS_FORMAT = 1

# A JSON object.
Wire = Mapping[str, Any]


class StatsFormatError(UnreadableData):
    """The answer is no stats, damaged, or of another version or topology; the message says which, and what to do."""


@dataclass(frozen=True)
class Slot:
    """An executor slot that instances are placed on. `cpu`: cores. It keeps its number when it is not `present` any more."""

    index: int
    executor: str
    class_name: str
    cpu: float
    present: bool = True


def ordinal_of(slot: Slot) -> int:
    """The number of the slot's executor in its class: 2 of `large-2`."""
    tail = slot.executor.rpartition("-")[2]
    return int(tail) if tail.isdecimal() else 0


@dataclass(frozen=True)
class LiveExecutor:
    """A live executor. `executor`: Spark's id; `slot`: the slot it fills, None if none of this topology.

    `admitted`: it is warm and gets work.
    """

    executor: str
    class_name: str
    pod: str | None
    slot: int | None
    admitted: bool


@dataclass(frozen=True)
class DriverRefusal:
    """The epoch, or the generation of the topology, that the driver was given and did not take; the other is None."""

    epoch: int | None
    generation: int | None
    why: str


@dataclass(frozen=True)
class Rerouting:
    """One re-routing of one operator (seconds, bytes; gains as shares of batch time).

    `batch`: the first under the new epoch; state moved in that and the following, `batches` in all. `reason` travels as a text
    for people, of which a reader knows no more. `predicted_gain`, `measured_gain`: 0 and None for an epoch made outside the
    driver.
    """

    epoch: int
    batch: int
    operator: str
    reason: Annotated[EpochReason, Form(describe, EpochReason.of_text, str)]
    keys_moved: int
    bytes_moved: int
    published_to_active_seconds: float
    plan_seconds: float = 0.0
    predicted_gain: float = 0.0
    batches: int = 1
    measured_gain: float | None = None

    @property
    def changes_shares(self) -> bool:
        """True if rows go to the operator, or are read by the source, in other shares, which moves no keys."""
        by_plan = any(stage.kind is RemedyKind.SHARES and stage.stage == self.operator for stage in self.reason.stages)
        return by_plan or (self.operator == SOURCE and self.predicted_gain != 0)


# The share of the room for state from which on an executor is crowded: state grows in steps, as hash tables do.
CROWDED = 0.7
# A crowded one has room again below this share: what else it holds changes with each batch.
ROOMY = 0.6


@dataclass(frozen=True)
class SlotMemory:
    """The memory of an executor that has a limit of it. `room_bytes`: for state, beside all else that it holds now."""

    slot: int
    state_bytes: int
    room_bytes: int

    @property
    def share(self) -> float:
        """Of the room that state takes."""
        return self.state_bytes / max(self.room_bytes, 1)

    def text(self, executor: str) -> str:
        """What fills the executor of that name."""
        full = f"{percent(min(self.share, 1.0))} of what its memory has room for beside all else"
        return f"executor {executor} holds {size(self.state_bytes)} of state, {full}"


@dataclass(frozen=True)
class LostAttempts:
    """The `attempts` at the batch that runs that were lost, and the reason for the newest."""

    batch: int
    attempts: int
    why: str


@dataclass(frozen=True)
class Capacity:
    """The estimated capacity of an instance."""

    operator: str
    instance: int
    rows_per_second: float


@dataclass(frozen=True)
class Locality:
    """The share of an operator's rows that stayed on their executor on the way to the operator `to`."""

    operator: str
    to: str
    share: float


@dataclass(frozen=True)
class Messages:
    """Reports of an operator's instances to choosers that learn, and their size on the wire."""

    operator: str
    count: int = 0
    bytes: int = 0

    def __add__(self, other: Messages) -> Messages:
        return Messages(self.operator, self.count + other.count, self.bytes + other.bytes)


@dataclass(frozen=True, kw_only=True)
class BatchFigures:
    """What everybody reads of a committed batch.

    `rows`: read from the sources. `seconds`: from taking it to its commit, failed attempts included. `committed_at`: seconds
    since 1970. `moving`: state moves with it.
    """

    rows: int
    seconds: float
    committed_at: float
    attempt: int = 1
    moving: bool = False


@dataclass(frozen=True, kw_only=True)
class NumberedBatch(BatchFigures):
    """`epoch`: by which it was routed, the older one while state is `moving`."""

    number: int
    epoch: int


@dataclass(frozen=True, kw_only=True)
class BatchSteps:
    """Where the seconds of a batch went, one step after the other.

    `choosing`: plan and record of its attempt. `working`: the stages of executors, each as long as its slowest instance.
    `passing`: the rest of its attempts: scheduling, messages, rows between executors. `committing`: the commit record.
    `publishing`: the sinks.
    """

    choosing: float
    working: float
    passing: float
    committing: float
    publishing: float


def shared(kind: type, record: object) -> dict[str, Any]:
    """The fields that `record` has of `kind`, its base."""
    return {one.name: getattr(record, one.name) for one in fields(kind)}


@dataclass(frozen=True, kw_only=True)
class Batch(NumberedBatch):
    """One committed batch.

    `imbalance`: by operator, None where it cannot be measured. `reports`, `source_reports`: load reports as they travel.
    `remote_seconds`: how long a row between two executors kept a link busy, as last measured, or 0.
    """

    imbalance: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    reports: Sequence[Wire] = ()
    source_reports: Sequence[Wire] = ()
    capacities: tuple[Capacity, ...] = ()
    locality: tuple[Locality, ...] = ()
    messages: tuple[Messages, ...] = ()
    remote_seconds: float = field(default=0.0, metadata=SPARSE)

    @property
    def began_at(self) -> float:
        return self.committed_at - self.seconds

    def without_reports(self) -> Batch:
        """Its totals alone."""
        return replace(self, reports=(), source_reports=(), capacities=(), locality=(), messages=())


@dataclass(frozen=True, kw_only=True)
class RunFigures:
    """Where a run stands.

    `epoch`, `batch`: of the last committed batch; `newest_epoch`: the newest that is ready. `bound_rows_per_second`: source
    rows/s that any routing could reach at most. `lag_rows`: rows that wait in Kafka after the last batch. `idle_seconds`: for
    how long no batch has run for want of rows, None while one runs or input waits for one. Both are None where they are not
    known.
    """

    topology: str
    activity: Annotated[Activity, Form(str, Activity.of_text, str)] = field(metadata=named("phase"))
    epoch: int | None = None
    newest_epoch: int | None = None
    batch: int | None = None
    rows_per_second: float | None = None
    bound_rows_per_second: float | None = None
    lag_rows: int | None = None
    idle_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Stats(RunFigures):
    """A driver's answer.

    `generation`, `replicas` by executor class: of the topology that runs; None outside of Kubernetes.
    `routing`: the current epoch as it travels, None if the reader has it. `batches`: those after the number asked for.
    `observed`: what a controller observes of these, where it asked for that. `binding`: the constraint that bounds the
    batches, as last judged. `answered_at`: the time of the driver's host, seconds since 1970, that `committed_at` of its
    batches is to be compared with. `epochs`: the stories of the newest epochs, oldest first. `part_seconds`: of merging a
    part of a key, as measured, by operator whose keys are divided. `divided_keys`: the heaviest of them in the last batch.
    `memory`: of executors with a limit of it, after the last batch. `lost`: attempts at the batch that runs.
    """

    answered_at: float = 0.0
    slots: tuple[Slot, ...] = ()
    policies: Mapping[str, str] = field(default_factory=dict[str, str])
    last_batch: Batch | None = None
    generation: int | None = None
    replicas: Mapping[str, int] | None = field(default=None, metadata=SPARSE)
    checkpoint: str | None = None
    refused: DriverRefusal | None = None
    routing: Wire | None = None
    executors: tuple[LiveExecutor, ...] = ()
    reconfigurations: tuple[Rerouting, ...] = ()
    batches: tuple[Batch, ...] = ()
    observed: Wire | None = field(default=None, metadata=SPARSE)
    binding: Binding | None = field(default=None, metadata=SPARSE)
    epochs: tuple[EpochStory, ...] = field(default=(), metadata=SPARSE)
    part_seconds: Mapping[str, float] = field(default_factory=dict[str, float], metadata=SPARSE)
    divided_keys: tuple[DividedKey, ...] = field(default=(), metadata=SPARSE)
    memory: tuple[SlotMemory, ...] = field(default=(), metadata=SPARSE)
    lost: LostAttempts | None = field(default=None, metadata=SPARSE)

    @property
    def settled(self) -> bool:
        """True if the last batch ran under the newest epoch: nothing is about to change."""
        return self.epoch is not None and self.epoch == self.newest_epoch

    @property
    def cpu(self) -> tuple[float, ...]:
        """Cores of each slot by its number, slots that are gone included."""
        return tuple(slot.cpu for slot in self.slots)

    @property
    def slot_classes(self) -> tuple[str, ...]:
        """Class of each slot by its number, slots that are gone included."""
        return tuple(slot.class_name for slot in self.slots)

    @property
    def present_classes(self) -> tuple[str, ...]:
        """The same; empty for slots that are gone."""
        return tuple(slot.class_name if slot.present else "" for slot in self.slots)

    @property
    def slots_by_class(self) -> Mapping[str, int]:
        """Class -> slots that the driver places instances on."""
        return Counter(slot.class_name for slot in self.slots if slot.present)

    @cached_property
    def admitted_by_class(self) -> Mapping[str, int]:
        """Class -> executors that fill such a slot and are warm."""
        return Counter(one.class_name for one in self.executors if one.admitted and one.slot is not None)

    @property
    def free_bytes(self) -> Mapping[int, float]:
        """Of memory for more state, by slot with a limit of it."""
        return {one.slot: float(one.room_bytes - one.state_bytes) for one in self.memory}

    @property
    def imbalance(self) -> float | None:
        """The worst operator's in the last batch."""
        measured = self.last_batch.imbalance.values() if self.last_batch else ()
        return max((value for value in measured if value is not None), default=None)

    def dated_by(self, now: float) -> Stats:
        """With the times of batches by the reader's clock, which says `now` as the answer comes."""
        ahead = now - self.answered_at

        def dated(batch: Batch) -> Batch:
            return replace(batch, committed_at=batch.committed_at + ahead)

        last = self.last_batch and dated(self.last_batch)
        return replace(self, answered_at=now, last_batch=last, batches=tuple(dated(batch) for batch in self.batches))

    def without_reports(self) -> Stats:
        """All but loads and the routing, which only a controller reads."""
        return replace(
            self,
            routing=None,
            observed=None,
            last_batch=self.last_batch.without_reports() if self.last_batch else None,
            batches=tuple(batch.without_reports() for batch in self.batches),
        )

    def to_wire(self) -> dict[str, Any]:
        """The JSON value. The number and the epoch of the last batch are those of the answer."""
        wire: dict[str, Any] = {FORMAT: STATS_FORMAT, **to_wire(self)}
        if wire["last_batch"] is not None:
            del wire["last_batch"]["number"], wire["last_batch"]["epoch"]
        return wire


def read_stats(answer: object, topology: str | None = None) -> Stats:
    """Read the JSON value of an answer; of this topology, where one is given. StatsFormatError."""
    if not isinstance(answer, dict):
        raise StatsFormatError(f"the answer is {type(answer).__name__}, not a JSON object")
    wire = cast(Wire, answer)
    check_format(wire, STATS_FORMAT, "this answer", ONE_VERSION, StatsFormatError)
    if topology is not None and wire.get("topology") != topology:
        raise StatsFormatError(f"these are the stats of topology {wire.get('topology')!r}, not of {topology!r}")
    if isinstance(last := wire.get("last_batch"), dict):
        whole = {**cast(Wire, last), "number": wire.get("batch"), "epoch": wire.get("epoch")}
        wire = {**wire, "last_batch": whole}
    try:
        return from_wire(Stats, wire)
    except WireError as wrong:
        raise StatsFormatError(f"the stats do not hold: {wrong}; pass on all that the driver serves at /stats") from wrong
