"""The stages of a topology that may be re-routed, with what a window of batches shows of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from streamtopology.contract.reasons import SOURCE
from streamtopology.routing.control.decisions import TopologyFacts
from streamtopology.routing.control.stages import JointStage, ShareStage, Stage, TableStage
from streamtopology.routing.control.window import FEW_BATCHES, LoadSpan, WindowBatch
from streamtopology.routing.epochs.epoch import Epoch, Route
from streamtopology.topology import groupings

Floats = npt.NDArray[np.float64]

# One of this number of the window's spans shows which keys are gone.
NEWEST = 4

# Share of the rows read on a slot that is sent to others at least, as rows vary.
LEAST_AWAY = 0.05


def stages_in_window(
    window: Sequence[WindowBatch], spans: Sequence[LoadSpan], current: Epoch, facts: TopologyFacts
) -> list[Stage]:
    """The source and the operators that may be re-routed; those that one planner plans together are one stage."""
    tables = [
        stage
        for name, route in current.routes.items()
        if (stage := _table_stage(name, route, spans, current, facts)) is not None
    ]
    shares = [
        stage
        for name, route in current.routes.items()
        if name in facts.choosers and (stage := _chooser_stage(name, route, window, current, facts)) is not None
    ]
    alone: list[TableStage] = []
    together: dict[tuple[str, tuple[int, ...]], list[TableStage]] = {}
    for stage in tables:
        if groupings.get(stage.route.policy).plans_jointly:
            together.setdefault((stage.planner, stage.route.instances), []).append(stage)
        else:
            alone.append(stage)
    joint = [JointStage(tuple(operators), planner) for (planner, _), operators in together.items()]
    return [*_source_stage(window, current, facts), *_joined(alone, _remote_seconds(window)), *shares, *joint]


def _joined(alone: Sequence[TableStage], remote_seconds: float) -> list[Stage]:
    """`alone`, with operators that feed each other as one stage: where remote rows take time, and pairs of keys are counted."""
    group_of = {stage.name: {stage.name} for stage in alone}
    for stage in alone if remote_seconds else ():
        followed = {name for report in stage.reports for name in report.key_pairs}
        for other in (other for other in alone if other.name in followed and _may_join(stage, other)):
            group = group_of[stage.name] | group_of[other.name]
            group_of |= dict.fromkeys(group, group)
    joined: list[Stage] = []
    for stage in alone:
        group = tuple(other for other in alone if other.name in group_of[stage.name])
        planner = _joiner(stage)
        if planner is None or len(group) == 1:
            joined.append(stage)
        elif group[0] is stage:
            joined.append(JointStage(group, planner, remote_seconds))
    return joined


def _may_join(one: TableStage, other: TableStage) -> bool:
    return (_joiner(one), one.route.instances) == (_joiner(other), other.route.instances) and _joiner(one) is not None


def _joiner(stage: TableStage) -> str | None:
    """The planner of operators that feed each other."""
    return groupings.get(stage.route.policy).joined_by


def _remote_seconds(window: Sequence[WindowBatch]) -> float:
    """The median of those that were measured in the window; 0 without any."""
    measured = [batch.remote_seconds for batch in window if batch.remote_seconds > 0]
    return float(np.median(measured)) if measured else 0.0


def operators_of(stage: Stage) -> list[str]:
    """The operators (or the source) that the stage consists of."""
    return [operator.name for operator in stage.operators] if isinstance(stage, JointStage) else [stage.name]


def _source_stage(window: Sequence[WindowBatch], current: Epoch, facts: TopologyFacts) -> list[ShareStage]:
    """The source, unless Spark places its tasks, or reading is hidden behind the batch before and links take no time."""
    present = current.placement.present if current.placement else tuple(range(len(facts.declared_cpu)))
    links = _link_seconds(window, present, facts.fed_by_sources)
    is_hidden = all(batch.source_is_hidden for batch in window[-FEW_BATCHES:])
    if not facts.source_by_share or (is_hidden and links is None):
        return []
    rows = float(np.mean([batch.source_rows for batch in window]))
    in_force = [current.source_shares[slot] for slot in present] if current.source_shares else None
    return [ShareStage(SOURCE, present, rows, _shares(in_force, len(present)), links, is_hidden)]


def _link_seconds(window: Sequence[WindowBatch], present: Sequence[int], fed: Collection[str]) -> Floats | None:
    """float64[present]: how long a row that a slot reads keeps its link busy in the mean; None where it takes no time.

    Of what a slot reads, the share stays that all slots send it; which rows these are does not depend on the reader.
    """
    remote_seconds = _remote_seconds(window)
    if not remote_seconds or len(present) == 1:
        return None
    newest = window[-FEW_BATCHES:]
    of_fed = [batch.timings.of_stage(stage) for batch in newest for stage in fed]
    table = np.concatenate([newest[0].timings.table[:0], *of_fed])
    received = np.bincount(table["slot"], table["rows"], max(present) + 1)[list(present)]
    stays = received / received.sum() if received.sum() > 0 else np.full(len(present), 1 / len(present))
    return remote_seconds * np.maximum(1 - stays, LEAST_AWAY)


def _table_stage(name: str, route: Route, spans: Sequence[LoadSpan], current: Epoch, facts: TopologyFacts) -> TableStage | None:
    """An operator whose table a planner may change; None where it is none, or has not reported.

    One of whose instances some have not been heard of under the current epoch is left alone, too: these would seem to have
    nothing to do.
    """
    planner = facts.planners.get(name)
    if planner is None or route.table is None:
        return None
    reports = [(span, span.reports_of(name)) for span in spans]
    every = [report for _, of_span in reports for report in of_span]
    if not every:
        return None
    of_now = [report for span, of_span in reports if span.epoch == current.number for report in of_span]
    if of_now and {report.instance for report in of_now} < set(route.instances):
        return None
    newest = [report for _, of_span in reports[-max(len(reports) // NEWEST, 1) :] for report in of_span]
    return TableStage(
        name=name,
        route=route,
        slot_by_instance=_slots_of(route, current, facts),
        reports=every,
        present=of_now,
        batches=sum(span.batches for span in spans),
        planner=planner,
        batches_at_present=sum(span.batches for span in spans if span.epoch == current.number),
        newest=newest,
        batches_with_pairs=sum(span.batches for span, of_span in reports if any(report.key_pairs for report in of_span)),
        splitting=facts.splitting.get(name),
    )


def _chooser_stage(
    name: str, route: Route, window: Sequence[WindowBatch], current: Epoch, facts: TopologyFacts
) -> ShareStage | None:
    """An operator whose rows are divided by capacities; None where it has not reported."""
    rows = np.concatenate([batch.timings.of_stage(name)["rows"] for batch in window])
    if not len(rows):
        return None
    shares = _shares(route.options.get("capacities"), len(route.instances))
    return ShareStage(name, _slots_of(route, current, facts), int(rows.sum()) / len(window), shares)


def _slots_of(route: Route, current: Epoch, facts: TopologyFacts) -> tuple[int, ...]:
    """The slot of each active instance."""
    placement, n_slots = current.placement, len(facts.declared_cpu)
    return tuple(placement.slot_of(instance) if placement else instance % n_slots for instance in route.instances)


def _shares(weights: object, count: int) -> npt.NDArray[np.float64]:
    """Published weights as shares; equal ones where none have been published for this many."""
    published = np.asarray(weights or (), np.float64)
    return published / published.sum() if len(published) == count else np.full(count, 1 / count)
