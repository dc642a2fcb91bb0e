"""Stage timings of many batches in little memory: as objects they take ten times as much, and a window has thousands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopology.routing.control.slot_model import StageTiming

_ROW = np.dtype(
    [
        ("stage", np.int16),
        ("slot", np.int32),
        ("rows", np.int64),
        ("busy_seconds", np.float64),
        ("task_seconds", np.float64),
        ("timed", np.bool_),
    ]
)

COLUMNS = _ROW.names or ()


@dataclass(frozen=True, eq=False, slots=True)
class Timings:
    """The stage timings of one batch. `stages`: their names; `table`: a row for each timing, with the index of its stage."""

    stages: tuple[str, ...]
    table: npt.NDArray[Any]

    @staticmethod
    def of(timings: Sequence[StageTiming]) -> Timings:
        stages = tuple(dict.fromkeys(timing.stage for timing in timings))
        rows = [(stages.index(one.stage), one.slot, one.rows, one.busy_seconds, one.task_seconds, one.timed) for one in timings]
        return Timings(stages, np.array(rows, _ROW))

    def __len__(self) -> int:
        return len(self.table)

    def unpacked(self) -> tuple[StageTiming, ...]:
        rows: list[tuple[int, int, int, float, float, bool]] = self.table.tolist()
        return tuple(
            StageTiming(self.stages[stage], slot, count, busy_seconds, task_seconds, timed)
            for stage, slot, count, busy_seconds, task_seconds, timed in rows
        )


def joined(timings: Sequence[Timings]) -> tuple[tuple[str, ...], dict[str, npt.NDArray[Any]]]:
    """(stages, columns) of several batches one after the other; `divided` cuts them again."""
    stages = tuple(dict.fromkeys(stage for one in timings for stage in one.stages))
    tables = [one.table.copy() for one in timings]
    for table, one in zip(tables, timings, strict=True):
        table["stage"] = np.array([stages.index(stage) for stage in one.stages], np.int16)[table["stage"]]
    table = np.concatenate(tables)
    seconds = {name: table[name].astype(np.float32) for name in ("busy_seconds", "task_seconds")}
    return stages, {name: table[name].astype(np.int64) for name in COLUMNS} | seconds


def divided(stages: tuple[str, ...], columns: dict[str, npt.NDArray[Any]], counts: npt.NDArray[Any]) -> list[Timings]:
    """The timings of each batch, of which there are `counts`. ValueError: the columns do not fit each other."""
    total = int(counts.sum())
    if counts.min(initial=0) < 0 or any(len(columns[name]) != total for name in COLUMNS):
        raise ValueError(f"the columns of timings are not of {total} timings each")
    if total and not 0 <= columns["stage"].min() <= columns["stage"].max() < len(stages):
        raise ValueError(f"there are timings of other stages than {', '.join(stages)}")
    table = np.empty(total, _ROW)
    for name in COLUMNS:
        table[name] = columns[name]
    return [Timings(stages, part.copy()) for part in np.split(table, np.cumsum(counts)[:-1])]
