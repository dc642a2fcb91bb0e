"""The answer of a driver at `/stats` (docs/reference/stats.md): its schema, its writer and its one reader.

Load reports and the routing stay in their wire form, which `streamtopology.routing` reads; most readers need neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, cast

from streamtopology.contract.divided_key import DividedKey
from streamtopology.contract.epoch_story import EpochStory
from streamtopology.contract.errors import UnreadableData
from streamtopology.contract.format_number import FORMAT, ONE_VERSION, check_format
from streamtopology.contract.phases import Activity
from streamtopology.contract.reasons import Binding
from streamtopology.contract.wire_values import finite, from_wire, optional, to_wire, whole

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
class Reconfiguration:
    """One re-routing of one operator (seconds, bytes; gains as shares of batch time).

    `batch`: the first under the new epoch; state moved in that and the following, `batches` in all. `predicted_gain`,
    `measured_gain`: 0 and None for an epoch made outside the driver.
    """

    epoch: int
    batch: int
    operator: str
    reason: str
    keys_moved: int
    bytes_moved: int
    published_to_active_seconds: float
    plan_seconds: float = 0.0
    predicted_gain: float = 0.0
    batches: int = 1
    measured_gain: float | None = None


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
    count: int
    bytes: int


@dataclass(frozen=True)
class Batch:
    """One committed batch.

    `epoch`: by which it was routed, the older one while state is `moving`. `seconds`: from taking it to its commit.
    `committed_at`: seconds since 1970. `imbalance`: by operator, None where it cannot be measured. `reports`,
    `source_reports`: load reports as they travel. `remote_seconds`: how long a row between two executors kept a link busy, as
    last measured, or 0.
    """

    number: int
    epoch: int
    rows: int
    seconds: float
    committed_at: float
    imbalance: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    reports: Sequence[Wire] = ()
    source_reports: Sequence[Wire] = ()
    attempt: int = 1
    moving: bool = False
    capacities: tuple[Capacity, ...] = ()
    locality: tuple[Locality, ...] = ()
    messages: tuple[Messages, ...] = ()
    remote_seconds: float = 0.0

    @property
    def began_at(self) -> float:
        return self.committed_at - self.seconds

    def without_reports(self) -> Batch:
        """Its totals alone."""
        return replace(self, reports=(), source_reports=(), capacities=(), locality=(), messages=())


@dataclass(frozen=True)
class Stats:
    """A driver's answer. `epoch`, `batch`: of the last committed batch; `newest_epoch`: the newest that is ready.

    `generation`, `replicas` by executor class: of the topology that runs; None outside of Kubernetes.
    `bound_rows_per_second`: source rows/s that any routing could reach at most. `routing`: the current epoch as it travels,
    None if the reader has it. `batches`: those after the number asked for. `observed`: what a controller observes of these,
    where it asked for that.
    `lag_rows`: rows that wait in Kafka after the last batch. `idle_seconds`: for how long no batch has run for want of rows,
    None while one runs. Both are None where they are not known. `binding`: the constraint that bounds the batches, as last
    judged. `epochs`: the stories of the newest epochs, oldest first. `part_seconds`: of merging a part of a key, as measured,
    by operator whose keys are divided. `divided_keys`: the heaviest of them in the last batch.
    """

    topology: str
    activity: Activity
    epoch: int | None
    batch: int | None
    rows_per_second: float | None
    slots: tuple[Slot, ...]
    policies: Mapping[str, str]
    last_batch: Batch | None = None
    generation: int | None = None
    replicas: Mapping[str, int] | None = None
    newest_epoch: int | None = None
    bound_rows_per_second: float | None = None
    checkpoint: str | None = None
    refused: DriverRefusal | None = None
    routing: Wire | None = None
    executors: tuple[LiveExecutor, ...] = ()
    reconfigurations: tuple[Reconfiguration, ...] = ()
    batches: tuple[Batch, ...] = ()
    observed: Wire | None = None
    lag_rows: int | None = None
    idle_seconds: float | None = None
    binding: Binding | None = None
    epochs: tuple[EpochStory, ...] = ()
    part_seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    divided_keys: tuple[DividedKey, ...] = ()

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
    def slots_by_class(self) -> Mapping[str, int]:
        """Class -> slots that the driver places instances on."""
        return Counter(slot.class_name for slot in self.slots if slot.present)

    @cached_property
    def admitted_by_class(self) -> Mapping[str, int]:
        """Class -> executors that fill such a slot and are warm."""
        return Counter(one.class_name for one in self.executors if one.admitted and one.slot is not None)

    @property
    def imbalance(self) -> float | None:
        """The worst operator's in the last batch."""
        measured = self.last_batch.imbalance.values() if self.last_batch else ()
        return max((value for value in measured if value is not None), default=None)

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
        """The JSON value."""
        return {
            FORMAT: STATS_FORMAT,
            "topology": self.topology,
            "generation": self.generation,
            **({} if self.replicas is None else {"replicas": dict(self.replicas)}),
            "phase": str(self.activity),
            "epoch": self.epoch,
            "newest_epoch": self.newest_epoch,
            "refused": vars(self.refused) if self.refused else None,
            "batch": self.batch,
            "rows_per_second": self.rows_per_second,
            "lag_rows": self.lag_rows,
            "idle_seconds": self.idle_seconds,
            "bound_rows_per_second": self.bound_rows_per_second,
            "checkpoint": self.checkpoint,
            "slots": [_with_class(slot) for slot in self.slots],
            "executors": [_with_class(executor) for executor in self.executors],
            "policies": dict(self.policies),
            "routing": self.routing,
            "reconfigurations": [vars(change) for change in self.reconfigurations],
            "last_batch": _batch_to_wire(self.last_batch) if self.last_batch else None,
            "batches": [{"number": one.number, "epoch": one.epoch, **_batch_to_wire(one)} for one in self.batches],
            **({} if self.observed is None else {"observed": self.observed}),
            **({} if self.binding is None else {"binding": to_wire(self.binding)}),
            **({"epochs": to_wire(self.epochs)} if self.epochs else {}),
            **({"part_seconds": dict(self.part_seconds)} if self.part_seconds else {}),
            **({"divided_keys": to_wire(self.divided_keys)} if self.divided_keys else {}),
        }


def read_stats(answer: object, topology: str | None = None) -> Stats:
    """Read the JSON value of an answer; of this topology, where one is given. StatsFormatError."""
    if not isinstance(answer, dict):
        raise StatsFormatError(f"the answer is {type(answer).__name__}, not a JSON object")
    wire = cast(Wire, answer)
    check_format(wire, STATS_FORMAT, "this answer", ONE_VERSION, StatsFormatError)
    if topology is not None and wire.get("topology") != topology:
        raise StatsFormatError(f"these are the stats of topology {wire.get('topology')!r}, not of {topology!r}")
    try:
        return _stats(wire)
    except KeyError as missing:
        raise StatsFormatError(f"the stats lack {missing}: pass on all that the driver serves at /stats") from missing
    except (TypeError, ValueError, AttributeError, OverflowError) as wrong:
        raise StatsFormatError(f"the stats do not hold: {wrong}") from wrong


def _stats(wire: Wire) -> Stats:
    epoch, number, refused = optional(whole, wire["epoch"]), optional(whole, wire["batch"]), wire["refused"]
    last = wire["last_batch"]
    return Stats(
        topology=str(wire["topology"]),
        activity=Activity.of_text(str(wire["phase"])),
        epoch=epoch,
        batch=number,
        rows_per_second=optional(finite, wire["rows_per_second"]),
        slots=tuple(_slot(slot) for slot in wire["slots"]),
        policies={str(name): str(policy) for name, policy in wire["policies"].items()},
        last_batch=_batch({"number": number, "epoch": epoch, **last}) if last else None,
        generation=optional(int, wire["generation"]),
        replicas=optional(_replicas, wire.get("replicas")),
        newest_epoch=optional(whole, wire["newest_epoch"]),
        bound_rows_per_second=optional(finite, wire["bound_rows_per_second"]) or None,
        checkpoint=optional(str, wire["checkpoint"]),
        refused=_refusal(refused) if refused else None,
        routing=wire["routing"],
        executors=tuple(_executor(executor) for executor in wire["executors"]),
        reconfigurations=tuple(_reconfiguration(change) for change in wire["reconfigurations"]),
        batches=tuple(_batch(batch) for batch in wire["batches"]),
        observed=wire.get("observed"),
        lag_rows=optional(int, wire["lag_rows"]),
        idle_seconds=optional(float, wire["idle_seconds"]),
        binding=optional(partial(from_wire, Binding), wire.get("binding")),
        epochs=tuple(from_wire(EpochStory, story) for story in wire.get("epochs", ())),
        part_seconds=optional(_part_seconds, wire.get("part_seconds")) or {},
        divided_keys=tuple(from_wire(DividedKey, one) for one in wire.get("divided_keys", ())),
    )


def _replicas(wire: Wire) -> dict[str, int]:
    return {str(name): int(count) for name, count in wire.items()}


def _part_seconds(wire: Wire) -> dict[str, float]:
    return {str(name): finite(seconds) for name, seconds in wire.items()}


def _slot(wire: Wire) -> Slot:
    return Slot(
        class_name=str(wire["class"]),
        index=int(wire["index"]),
        executor=str(wire["executor"]),
        cpu=float(wire["cpu"]),
        present=bool(wire["present"]),
    )


def _executor(wire: Wire) -> LiveExecutor:
    return LiveExecutor(
        class_name=str(wire["class"]),
        executor=str(wire["executor"]),
        pod=optional(str, wire["pod"]),
        slot=optional(int, wire["slot"]),
        admitted=bool(wire["admitted"]),
    )


def _refusal(wire: Wire) -> DriverRefusal:
    return DriverRefusal(optional(int, wire["epoch"]), optional(int, wire["generation"]), str(wire["why"]))


def _reconfiguration(wire: Wire) -> Reconfiguration:
    return Reconfiguration(
        epoch=whole(wire["epoch"]),
        batch=whole(wire["batch"]),
        operator=str(wire["operator"]),
        reason=str(wire["reason"]),
        keys_moved=whole(wire["keys_moved"]),
        bytes_moved=whole(wire["bytes_moved"]),
        published_to_active_seconds=finite(wire["published_to_active_seconds"]),
        plan_seconds=float(wire["plan_seconds"]),
        predicted_gain=float(wire["predicted_gain"]),
        batches=int(wire["batches"]),
        measured_gain=optional(float, wire["measured_gain"]),
    )


def _batch(wire: Wire) -> Batch:
    return Batch(
        reports=tuple(wire["reports"]),
        source_reports=tuple(wire["source_reports"]),
        number=whole(wire["number"]),
        epoch=whole(wire["epoch"]),
        rows=whole(wire["rows"]),
        seconds=finite(wire["seconds"]),
        committed_at=finite(wire["committed_at"]),
        imbalance={str(operator): optional(finite, value) for operator, value in wire["imbalance"].items()},
        attempt=int(wire["attempt"]),
        moving=bool(wire["moving"]),
        remote_seconds=float(wire.get("remote_seconds", 0.0)),
        capacities=tuple(
            Capacity(str(one["operator"]), int(one["instance"]), float(one["rows_per_second"])) for one in wire["capacities"]
        ),
        locality=tuple(Locality(str(one["operator"]), str(one["to"]), float(one["share"])) for one in wire["locality"]),
        messages=tuple(Messages(str(one["operator"]), int(one["count"]), int(one["bytes"])) for one in wire["messages"]),
    )


def _batch_to_wire(batch: Batch) -> dict[str, Any]:
    return {
        "rows": batch.rows,
        "seconds": batch.seconds,
        "committed_at": batch.committed_at,
        "attempt": batch.attempt,
        "moving": batch.moving,
        **({"remote_seconds": batch.remote_seconds} if batch.remote_seconds else {}),
        "imbalance": dict(batch.imbalance),
        "capacities": [vars(capacity) for capacity in batch.capacities],
        "locality": [vars(edge) for edge in batch.locality],
        "messages": [vars(sent) for sent in batch.messages],
        "reports": list(batch.reports),
        "source_reports": list(batch.source_reports),
    }


def _with_class(value: Slot | LiveExecutor) -> dict[str, Any]:
    """All fields; `class` is a word of Python's, but not of JSON's."""
    return {("class" if name == "class_name" else name): given for name, given in vars(value).items()}
