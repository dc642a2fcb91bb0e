"""The fair share of an executor, and its load against it: the one definition for all that shows loads.

The fair share of a stage is the time that it takes when all its executors finish together: its rows / the sum of their
capacities. A load of 1 is just that, and the imbalance of a stage is its highest load - 1. The mean of the busy seconds would
flatter a slow executor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain, islice
from statistics import fmean, median

from streamtopology.contract.reasons import SOURCE
from streamtopology.jobs.observe.outcome import BatchOutcome

# Batches over which present figures are medians: enough to ride over one slow batch.
RECENT_BATCHES = 5

# Rows per executor or instance from which loads are judged: with fewer, chance alone puts a third more on one of them.
JUDGED_ROWS = 30

# Rows from which rows / busy seconds is a capacity; with fewer, the controller's estimate is nearer.
MEASURED_ROWS = 50

_MEASURED_SECONDS = 1e-4


@dataclass(frozen=True)
class Work:
    """The rows of one executor at one stage, and its busy seconds for them."""

    rows: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.rows + other.rows, self.seconds + other.seconds)


# Slot (or instance) -> its work at one stage. Below 0 is the work of tasks that Spark ran on executors of its choice.
StageWork = Mapping[int, Work]


@dataclass(frozen=True)
class StageLoad:
    """One stage against its fair share of `fair_seconds`. `capacities` (rows/s), `loads`: by slot."""

    fair_seconds: float
    capacities: Mapping[int, float]
    loads: Mapping[int, float]


@dataclass(frozen=True)
class Loads:
    """The work of some batches. `stages`: those with rows enough to judge. `by_slot`: over these stages together.

    `work` has that of no slot, too; it is nobody's load.
    """

    work: Mapping[str, StageWork]
    stages: Mapping[str, StageLoad]
    by_slot: Mapping[int, float]

    @property
    def highest(self) -> float | None:
        """The load of the most loaded executor; None if nothing can be judged."""
        return max(self.by_slot.values(), default=None)


NOTHING = Loads({}, {}, {})


@dataclass(frozen=True)
class MeasuredBatch:
    """The work of one batch. `estimated`: stage -> slot -> rows/s, by the controller."""

    number: int
    epoch: int
    rows: int
    work: Mapping[str, StageWork]
    estimated: Mapping[str, Mapping[int, float]]


def measure(batch: BatchOutcome) -> MeasuredBatch:
    """Sum up the reports of a batch by stage and slot."""
    return MeasuredBatch(batch.number, batch.epoch, batch.rows, _work_of(batch), _estimated(batch))


def stage_of(batch: BatchOutcome, stage: str) -> StageLoad:
    """The loads of a batch's executors at one stage, however few its rows are."""
    return stage_load(_placed(_work_of(batch).get(stage, {})), _estimated(batch).get(stage, {}))


def batch_loads(batch: MeasuredBatch) -> Loads:
    """The loads of one batch."""
    return _loads(batch.work, batch.estimated)


def recent_loads(batches: Sequence[MeasuredBatch]) -> Loads:
    """The loads now: medians over the last `RECENT_BATCHES` batches with rows, as far as they are of the newest epoch.

    An executor that did nothing in the newest one is gone, and has none.
    """
    fed = [batch for batch in islice(reversed(batches), RECENT_BATCHES) if batch.rows][::-1]
    if not fed:
        return NOTHING
    newest = fed[-1]
    remaining = {slot for done in newest.work.values() for slot in done}
    same = [_of_slots(remaining, batch.work) for batch in fed if batch.epoch == newest.epoch]
    return _loads({stage: _medians([work.get(stage, {}) for work in same]) for stage in newest.work}, newest.estimated)


def stage_load(work: StageWork, estimated: Mapping[int, float]) -> StageLoad:
    """One stage's fair share. A slot with too little work to measure has the capacity that is `estimated`, if any.

    Too low an estimate, or none, would make the share longer than the stage has taken, and its imbalance negative.
    """
    capacities = {
        slot: done.rows / done.seconds
        if done.rows > MEASURED_ROWS and done.seconds > _MEASURED_SECONDS
        else estimated.get(slot, 0.0)
        for slot, done in work.items()
    }
    together = sum(capacities.values())
    taken = max((done.seconds for done in work.values()), default=0.0)
    fair = min(sum(done.rows for done in work.values()) / together, taken) if together else 0.0
    return StageLoad(fair, capacities, {slot: done.seconds / fair for slot, done in work.items()} if fair else {})


def _loads(work: Mapping[str, StageWork], estimated: Mapping[str, Mapping[int, float]]) -> Loads:
    placed = {stage: _placed(done) for stage, done in work.items()}
    judged = {
        stage: stage_load(done, estimated.get(stage, {}))
        for stage, done in placed.items()
        if done and sum(one.rows for one in done.values()) >= JUDGED_ROWS * len(done)
    }
    fair = sum(stage.fair_seconds for stage in judged.values())
    busy: defaultdict[int, float] = defaultdict(float)
    for stage in judged:
        for slot, done in placed[stage].items():
            busy[slot] += done.seconds
    return Loads(work, judged, {slot: seconds / fair for slot, seconds in busy.items()} if fair else {})


def _placed(work: StageWork) -> StageWork:
    """The work of executors that we placed it on."""
    return {slot: one for slot, one in work.items() if slot >= 0}


def _work_of(batch: BatchOutcome) -> Mapping[str, StageWork]:
    """Stage -> slot -> its work, the source first, then operators in the order of their reports."""
    work: dict[str, dict[int, Work]] = {}
    reading = ((SOURCE, one.slot, Work(one.rows, one.busy_seconds)) for one in batch.source_reports)
    running = ((one.operator, one.slot, Work(one.rows, one.busy_seconds)) for one in batch.reports)
    for stage, slot, done in chain(reading, running):
        at = work.setdefault(stage, {})
        at[slot] = at[slot] + done if slot in at else done
    return work


def _of_slots(slots: Set[int], work: Mapping[str, StageWork]) -> Mapping[str, StageWork]:
    return {stage: {slot: one for slot, one in done.items() if slot in slots} for stage, done in work.items()}


def _medians(works: Sequence[StageWork]) -> StageWork:
    if len(works) == 1:
        return works[0]
    by_slot: defaultdict[int, list[Work]] = defaultdict(list)
    for work in works:
        for slot, done in work.items():
            by_slot[slot].append(done)
    return {slot: Work(median(one.rows for one in d), median(one.seconds for one in d)) for slot, d in by_slot.items()}


def _estimated(batch: BatchOutcome) -> Mapping[str, Mapping[int, float]]:
    """Stage -> slot -> rows/s of its instances as the controller estimates them; they run one after the other."""
    given: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for report in batch.reports:
        if capacity := batch.capacities.get((report.operator, report.instance), 0.0):
            given[report.operator, report.slot].append(capacity)
    by_stage: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for (stage, slot), capacities in given.items():
        by_stage[stage][slot] = fmean(capacities)
    return by_stage
