"""What a driver tells at `/stats` (docs/stats.md), as far as decisions read it; the load reports go to the planner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

STATS_VERSION = 2


class StatsFormatError(ValueError):
    """An answer that is no stats, damaged, or of another version; the message says what is wrong."""


@dataclass(frozen=True)
class Batch:
    """One committed batch. `seconds`: from taking it to its commit, `committed_at`: seconds since 1970."""

    number: int
    epoch: int
    rows: int
    seconds: float
    committed_at: float

    @property
    def began_at(self) -> float:
        return self.committed_at - self.seconds


@dataclass(frozen=True)
class Rerouted:
    """One re-routing of one operator. What it was to bring and did, the controller knows."""

    epoch: int
    batch: int
    operator: str
    reason: str
    keys_moved: int
    bytes_moved: int
    published_to_active_seconds: float


@dataclass(frozen=True)
class Refused:
    """What the driver would not take: an epoch, or a topology's generation."""

    epoch: int | None
    generation: int | None
    why: str


@dataclass(frozen=True)
class Stats:
    """A driver's answer. `epoch`, `batch`: of the last committed batch; `newest_epoch`: the newest that is ready.

    `slots`: class -> executor slots the driver places instances on; `admitted`: class -> executors that fill such a slot and
    are warm; `slot_classes`, `cpu`: of each slot by its number, those that are gone included.
    `imbalance`: the worst operator's.
    """

    phase: str
    generation: int
    epoch: int | None
    newest_epoch: int | None
    batch: int | None
    rows_per_second: float | None
    bound_rows_per_second: float | None
    slots: Mapping[str, int]
    admitted: Mapping[str, int]
    slot_classes: tuple[str, ...]
    cpu: tuple[float, ...]
    policies: Mapping[str, str]
    imbalance: float | None
    checkpoint: str | None
    refused: Refused | None
    batches: tuple[Batch, ...]
    reroutings: tuple[Rerouted, ...]

    @property
    def settled(self) -> bool:
        """Whether the last batch ran under the newest epoch: nothing is about to change."""
        return self.epoch is not None and self.epoch == self.newest_epoch


def read_stats(answer: object, topology: str) -> Stats:
    """The stats of this topology in a JSON value. StatsFormatError: not such, of another version, of another topology."""
    if not isinstance(answer, dict):
        raise StatsFormatError(f"the answer is {type(answer).__name__}, not a JSON object")
    if answer.get("version") != STATS_VERSION:
        raise StatsFormatError(
            f"these stats are of version {answer.get('version')!r}, this operator reads {STATS_VERSION}: "
            "let operator and image be of one release"
        )
    if answer.get("topology") != topology:
        raise StatsFormatError(f"these are the stats of topology {answer.get('topology')!r}")
    try:
        return _stats(answer)
    except KeyError as missing:
        raise StatsFormatError(f"the stats lack {missing}") from missing
    except (TypeError, ValueError, AttributeError) as wrong:
        raise StatsFormatError(f"the stats do not hold: {wrong}") from wrong


def _stats(answer: Mapping[str, Any]) -> Stats:
    last, refused = answer["last_batch"], answer.get("refused")
    slots = Counter(str(slot["class"]) for slot in answer["slots"] if slot.get("present", True))
    return Stats(
        phase=str(answer["phase"]),
        generation=int(answer.get("generation") or 0),
        epoch=_optional(int, answer["epoch"]),
        newest_epoch=_optional(int, answer.get("newest_epoch")),
        batch=_optional(int, answer["batch"]),
        rows_per_second=_optional(float, answer["rows_per_second"]),
        bound_rows_per_second=_optional(float, answer.get("bound_rows_per_second")) or None,
        slots=slots,
        admitted=Counter(
            str(executor["class"])
            for executor in answer.get("executors") or ()
            if executor["admitted"] and executor["slot"] is not None
        ),
        slot_classes=tuple(str(slot["class"]) for slot in answer["slots"]),
        cpu=tuple(float(slot["cpu"]) for slot in answer["slots"]),
        policies={str(name): str(policy) for name, policy in answer["policies"].items()},
        imbalance=max((float(value) for value in last["imbalance"].values()), default=None) if last else None,
        checkpoint=answer.get("checkpoint"),
        refused=Refused(refused.get("epoch"), refused.get("generation"), str(refused["why"])) if refused else None,
        batches=tuple(
            Batch(int(b["number"]), int(b["epoch"]), int(b["rows"]), float(b["seconds"]), float(b["committed_at"]))
            for b in answer.get("batches") or ()
        ),
        reroutings=tuple(_rerouted(change) for change in answer.get("reconfigurations") or ()),
    )


def _rerouted(change: Mapping[str, Any]) -> Rerouted:
    return Rerouted(
        epoch=int(change["epoch"]),
        batch=int(change["batch"]),
        operator=str(change["operator"]),
        reason=str(change["reason"]),
        keys_moved=int(change["keys_moved"]),
        bytes_moved=int(change["bytes_moved"]),
        published_to_active_seconds=float(change["published_to_active_seconds"]),
    )


def _optional(kind: type[Any], value: object) -> Any:
    return None if value is None else kind(value)
