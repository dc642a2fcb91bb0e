"""Stage timings of many batches in little memory: as objects they take ten times as much, and a window has thousands."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopology.contract.reasons import SOURCE
from streamtopology.routing.load.load_report import LoadReport, SourceReport

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


@dataclass(frozen=True)
class StageTiming:
    """One slot's part in one stage of one batch, all instances that share the slot together.

    `timed`: the operator measures single tuples because they differ in cost.
    """

    stage: str
    slot: int
    rows: int
    busy_seconds: float
    task_seconds: float
    timed: bool = False


def stage_timings(reports: Iterable[LoadReport], source_reports: Iterable[SourceReport]) -> tuple[StageTiming, ...]:
    """The stage timings of one batch, from the reports of its instances and source tasks."""
    shares: defaultdict[tuple[str, int], list[LoadReport | SourceReport]] = defaultdict(list)
    for report in reports:
        shares[report.operator, report.slot].append(report)
    for source_report in source_reports:
        shares[SOURCE, source_report.slot].append(source_report)
    return tuple(
        StageTiming(
            stage,
            slot,
            sum(report.rows for report in of_slot),
            sum(report.busy_seconds for report in of_slot),
            sum(report.task_seconds for report in of_slot),
            any(isinstance(report, LoadReport) and report.times_keys for report in of_slot),
        )
        for (stage, slot), of_slot in shares.items()
    )


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

    def of_stage(self, name: str) -> npt.NDArray[Any]:
        """The rows of the stage; none of one that is not there."""
        return self.table[self.table["stage"] == self.stages.index(name)] if name in self.stages else self.table[:0]


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
