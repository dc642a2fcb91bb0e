"""The value behind the page, from the history of a run and where the run stands. Pure: clocks are passed in.

It stays below `MOST_BYTES`: of more than `ONE_BY_ONE` executors it has the distribution and the most loaded ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from streamtopology.contract.formatting import clipped
from streamtopology.contract.page import (
    Distribution,
    Page,
    PageBatch,
    PageExecutor,
    PageExecutorClass,
    RunEvent,
)
from streamtopology.contract.reason_text import describe
from streamtopology.contract.reasons import PARTIAL, SOURCE
from streamtopology.contract.stats import BatchFigures, BatchSteps, Slot, shared
from streamtopology.jobs.observe.fair_share import Loads, MeasuredBatch, StageWork, batch_loads, recent_loads
from streamtopology.jobs.observe.figures import recent_rate
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.jobs.observe.speeds import speeds
from streamtopology.jobs.observe.stats import Standing
from streamtopology.jobs.view.page.figures import rounded, spread
from streamtopology.jobs.view.page.graph import edges_of, nodes_of
from streamtopology.jobs.view.page.keys import ShownKey, heaviest_of, page_keys
from streamtopology.jobs.view.page.reroutings import reroutings
from streamtopology.jobs.view.verdict import Balance, verdict
from streamtopology.topology import Rebalance, Topology

# Size of an answer at 1,000 instances.
MOST_BYTES = 256_000

# Executors up to which each is listed; beyond, the most loaded `MOST_LISTED` and the distribution.
ONE_BY_ONE = 64

MOST_LISTED = 10
# Batches of the timeline that are kept.
MOST_BATCHES = 600

# Loads of single executors in one answer: with many executors it has fewer batches.
MOST_LOADS = 12_000

MOST_EVENTS = 10
# Characters of an event's text.
_MOST_EVENT = 400

_BIN = 0.04
_BINS = 100


@dataclass(frozen=True)
class Recorded:
    """All that is kept of the batches so far. `recent`: the newest; `reasons`: by epoch, why the routing changed.

    `keys`: the heaviest of the newest batch.
    """

    batches: Sequence[PageBatch] = ()
    balance: Balance | None = None
    recent: Sequence[MeasuredBatch] = ()
    keys: Sequence[ShownKey] = ()
    reasons: Mapping[int, str] | None = None


def timeline_batch(batch: BatchOutcome, measured: MeasuredBatch) -> PageBatch:
    """The batch as the timeline draws it."""
    loads = {slot: rounded(load) for slot, load in sorted(batch_loads(measured).by_slot.items())}
    many = len(loads) > ONE_BY_ONE
    return PageBatch(
        number=batch.number,
        epoch=batch.epoch,
        **{**vars(_last_batch(batch)), "committed_at": round(batch.committed_at, 2)},
        bound=rounded(batch.bound or None),
        loads={str(slot): load for slot, load in loads.items()} if loads and not many else None,
        spread=spread(list(loads.values())) if many else None,
    )


def build_page(
    history: History, standing: Standing, recorded: Recorded, topology: Topology | None, run: str, now: float, since: int
) -> Page:
    """The value at `now`, with the batches after the number `since`. `topology`: None before it is known."""
    last, running = history.last, history.running
    loads = recent_loads(recorded.recent)
    tolerance = (topology.rebalance if topology is not None else Rebalance()).tolerance
    present = {slot.index: slot for slot in history.slots if slot.present}
    names = {slot.index: slot.executor for slot in history.slots}
    by_slot = {slot: load for slot, load in loads.by_slot.items() if slot in present}
    many = len(present) > ONE_BY_ONE
    changes, before = reroutings(history, recorded.reasons or {})
    keys = page_keys(recorded.keys, last, names, standing.routing) if last is not None else ((), ())
    return Page(
        run=run,
        now=now,
        topology=history.topology,
        activity=history.activity,
        verdict=verdict(history, recorded.balance, loads, tolerance),
        mode=topology.rebalance.mode if topology is not None else None,
        tolerance=tolerance if topology is not None else None,
        epoch=last.epoch if last else None,
        newest_epoch=standing.newest_epoch,
        batch=last.number if last else None,
        rows_per_second=rounded(recent_rate(history.batches)),
        bound_rows_per_second=rounded(standing.bound or None),
        lag_rows=standing.lag_rows,
        idle_seconds=rounded(history.idle_seconds),
        running_seconds=rounded(running.seconds) if running is not None else None,
        judgement=describe(history.hold) if history.hold is not None else None,
        recommended=describe(history.recommended) if history.recommended is not None else None,
        watermark=standing.watermark,
        last_batch=_last_batch(last) if last else None,
        steps=_steps(last),
        stages=_stages(loads.work, history.policies),
        classes=_classes(present.values()),
        executors=_executors(present, by_slot, loads, last, many),
        distribution=_distribution(present, by_slot, tolerance) if many and by_slot else None,
        nodes=nodes_of(topology, history, loads, standing) if topology is not None else (),
        edges=edges_of(topology, history) if topology is not None else (),
        keys=keys[0],
        keys_of=keys[1],
        reroutings=changes,
        reroutings_before=before,
        events=_events(history),
        batches=_batches(recorded.batches, since),
    )


def _events(history: History) -> tuple[RunEvent, ...]:
    """The newest, oldest first: one may have been noted later than others that happened after it."""
    newest = sorted(history.events, key=lambda event: event.at)[-MOST_EVENTS:]
    return tuple(RunEvent(one.at, one.batch, clipped(one.text, _MOST_EVENT)) for one in newest)


def _last_batch(batch: BatchOutcome) -> BatchFigures:
    return BatchFigures(**{**shared(BatchFigures, batch), "seconds": rounded(batch.seconds)})


def _steps(batch: BatchOutcome | None) -> BatchSteps | None:
    steps = None if batch is None else batch.steps
    return None if steps is None else BatchSteps(**{name: rounded(seconds) for name, seconds in vars(steps).items()})


def _stages(work: Mapping[str, StageWork], operators: Iterable[str]) -> tuple[str, ...]:
    """The stages that worked: the source, then in the order of the operators, parts of keys ahead of their merge.

    A source that Spark reads on executors of its choice is none: nobody knows whose work it was.
    """
    order = [SOURCE, *(stage for name in operators for stage in (name + PARTIAL, name))]
    place = {stage: index for index, stage in enumerate(order)}
    unplaced = {stage for stage, done in work.items() if any(slot < 0 and one.rows for slot, one in done.items())}
    return tuple(sorted((stage for stage in work if stage not in unplaced), key=lambda stage: place.get(stage, len(order))))


def _classes(present: Iterable[Slot]) -> tuple[PageExecutorClass, ...]:
    slots: dict[str, list[Slot]] = {}
    for slot in present:
        slots.setdefault(slot.class_name, []).append(slot)
    return tuple(PageExecutorClass(name, of_class[-1].cpu, len(of_class)) for name, of_class in slots.items())


def _executors(
    present: Mapping[int, Slot], by_slot: Mapping[int, float], loads: Loads, last: BatchOutcome | None, many: bool
) -> tuple[PageExecutor, ...]:
    """All by their number, or, of many, the most loaded first."""
    chosen = sorted(present)
    if many:
        chosen = sorted(chosen, key=lambda slot: (-by_slot.get(slot, 0.0), slot))[:MOST_LISTED]
    relative = speeds(loads)
    held: dict[int, tuple[int, int]] = {}
    for report in last.reports if last is not None else ():
        size, keys = held.get(report.slot, (0, 0))
        held[report.slot] = size + report.state_bytes, keys + report.state_keys
    return tuple(
        PageExecutor(
            slot=slot,
            name=present[slot].executor,
            class_name=present[slot].class_name,
            cpu=present[slot].cpu,
            load=rounded(by_slot.get(slot)),
            speed=rounded(relative.get(slot)),
            loads={stage: rounded(one.loads[slot]) for stage, one in loads.stages.items() if slot in one.loads},
            busy={stage: rounded(work[slot].seconds) for stage, work in loads.work.items() if slot in work},
            state_bytes=held.get(slot, (0, 0))[0],
            state_keys=held.get(slot, (0, 0))[1],
            heaviest=heaviest_of(slot, last, loads) if last is not None else None,
        )
        for slot in chosen
    )


def _distribution(present: Mapping[int, Slot], by_slot: Mapping[int, float], tolerance: float) -> Distribution:
    edges = tuple(round(_BIN * edge, 2) for edge in range(_BINS + 1))
    classes: dict[str, list[int]] = {}
    for slot, load in by_slot.items():
        bins = classes.setdefault(present[slot].class_name, [0] * _BINS)
        bins[min(int(load / _BIN), _BINS - 1)] += 1
    over = sum(load > 1 + tolerance for load in by_slot.values())
    counts = {name: tuple(bins) for name, bins in classes.items()}
    return Distribution(edges, counts, spread(list(by_slot.values())), over, len(by_slot))


def _batches(batches: Sequence[PageBatch], since: int) -> tuple[PageBatch, ...]:
    """Those after `since`; all, if it is a number of the future: of another run."""
    newest = batches[-1].number if batches else -1
    new = [batch for batch in batches if since > newest or batch.number > since]
    loads = 0
    for index in range(len(new) - 1, -1, -1):
        loads += len(new[index].loads or ())
        if loads > MOST_LOADS:
            return tuple(new[index + 1 :])
    return tuple(new)
