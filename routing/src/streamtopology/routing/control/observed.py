"""A committed batch as the controller observes it, small: its figures, and loads of keys that may be of several batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamtopology.contract import wire_values
from streamtopology.contract.format_number import FORMAT, ONE_VERSION, check_format
from streamtopology.routing.control.timings import Timings, divided, joined
from streamtopology.routing.load.array_codec import Block, pack_columns, unpack_columns
from streamtopology.routing.load.load_report import ReportFormatError
from streamtopology.routing.load.load_sum import LoadSum

OBSERVED_FORMAT = 1


@dataclass(frozen=True, eq=False)
class ObservedBatch:
    """A committed batch without its reports.

    `epoch`: the one that it ran under. `committed_at`: seconds since 1970, 0 where nobody needs it. `source_rows`: rows of
    source tasks that we placed, else of operators. `read_ahead`: of these some were read while the previous batch ran;
    `source_seconds`: what operators waited for them. `remote_seconds`: how long a row between two executors kept a link busy,
    0 where that is not known.

    `loads`: by operator, the load of keys in the last `batches` batches, this one included, all under its epoch. Loads of
    several batches come with the last of them; the others have none.
    """

    number: int
    epoch: int
    seconds: float
    timings: Timings
    source_rows: int
    committed_at: float = 0.0
    read_ahead: bool = False
    source_seconds: float = 0.0
    remote_seconds: float = 0.0
    loads: Mapping[str, LoadSum] = field(default_factory=dict[str, LoadSum])
    batches: int = 0


_WHOLE = ("number", "epoch", "source_rows", "read_ahead", "batches")
_SECONDS = ("seconds", "committed_at", "source_seconds", "remote_seconds")


@dataclass(frozen=True)
class _Sent:
    """The form of several batches: figures of batches and of `stages` in columns, and the loads of each."""

    stages: tuple[str, ...]
    block: Block
    loads: tuple[tuple[LoadSum, ...], ...]


def to_wire(batches: Sequence[ObservedBatch]) -> dict[str, Any]:
    """JSON-able form of some batches, at least one, read back by `from_wire`."""
    stages, timings = joined([batch.timings for batch in batches])
    figures = {name: np.array([getattr(batch, name) for batch in batches], np.int64) for name in _WHOLE}
    figures |= {name: np.array([getattr(batch, name) for batch in batches], np.float64) for name in _SECONDS}
    counts = {"timings": np.array([len(batch.timings) for batch in batches], np.int64)}
    block = pack_columns(figures | counts | {f"timing.{name}": column for name, column in timings.items()})
    loads = tuple(tuple(batch.loads.values()) for batch in batches)
    return {FORMAT: OBSERVED_FORMAT, **wire_values.to_wire(_Sent(tuple(stages), block, loads))}


def from_wire(wire: Mapping[str, Any]) -> list[ObservedBatch]:
    """Raises `ReportFormatError` naming what is missing or damaged, or that another version wrote it."""
    try:
        check_format(wire, OBSERVED_FORMAT, "this", ONE_VERSION, ReportFormatError)
        return _batches(wire_values.from_wire(_Sent, wire))
    except KeyError as missing:
        raise ReportFormatError(f"observed batches: column {missing} is missing") from missing
    except (AttributeError, TypeError, ValueError, IndexError, OverflowError) as wrong:
        raise ReportFormatError(f"observed batches: {wrong}") from wrong


def _batches(sent: _Sent) -> list[ObservedBatch]:
    columns = unpack_columns(sent.block)
    counts = columns["timings"]
    of_timings = {name.removeprefix("timing."): column for name, column in columns.items() if name.startswith("timing.")}
    timings = divided(sent.stages, of_timings, counts)
    figures = zip(*(columns[name].tolist() for name in (*_WHOLE, *_SECONDS)), strict=True)
    rows = zip(figures, timings, sent.loads, strict=True)
    return [
        ObservedBatch(
            number=int(number),
            epoch=int(epoch),
            seconds=float(seconds),
            timings=of_batch,
            source_rows=int(source_rows),
            committed_at=float(committed_at),
            read_ahead=bool(read_ahead),
            source_seconds=float(source_seconds),
            remote_seconds=float(remote_seconds),
            loads={load.operator: load for load in loads},
            batches=int(batches),
        )
        for (number, epoch, source_rows, read_ahead, batches, *times), of_batch, loads in rows
        for seconds, committed_at, source_seconds, remote_seconds in [times]
    ]
