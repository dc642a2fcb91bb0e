"""The graph on the page: sources, operators and sinks of a topology with their figures in the newest batch. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamtopology.contract.page import NodeKind, PageEdge, PageNode
from streamtopology.contract.reasons import PARTIAL, SOURCE
from streamtopology.jobs.observe.fair_share import Loads
from streamtopology.jobs.observe.figures import locality, recent_rate
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.jobs.observe.stats import Standing
from streamtopology.jobs.view.page.figures import rounded
from streamtopology.jobs.view.verdict import limiting_stage
from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.topology import OperatorSpec, Topology


def nodes_of(topology: Topology, history: History, loads: Loads, standing: Standing) -> tuple[PageNode, ...]:
    """Sources, operators and sinks, each kind in the order of the flow."""
    limit = limiting_stage(loads)
    busy = {stage: sum(done.seconds for done in work.values()) for stage, work in loads.work.items()}
    sources = [
        PageNode(one.name, NodeKind.SOURCE, one.format, limits=limit == SOURCE, lag_rows=standing.lag.get(one.name))
        for one in topology.sources
    ]
    operators = [_operator(one, history, loads, busy, limit, standing.routing) for one in topology.operators]
    sinks = [PageNode(one.name, NodeKind.SINK, one.format) for one in topology.sinks]
    return (*sources, *operators, *sinks)


def edges_of(topology: Topology, history: History) -> tuple[PageEdge, ...]:
    """The connections, with the columns that route and the rows/s of the newest batch where they are known."""
    last, rate = history.last, recent_rate(history.batches)
    stays = locality(last) if last is not None else {}
    rows = _rows_by_edge(topology, last) if last is not None else {}
    per_row = rate / last.rows if last is not None and last.rows and rate is not None else None

    def edge(start: str, end: str, key: Sequence[str] = ()) -> PageEdge:
        sent = rows.get((start, end))
        flow = None if sent is None or per_row is None else rounded(sent * per_row)
        share = next((stays[pair] for pair in _stage_pairs(start, end) if pair in stays), None)
        return PageEdge(start, end, tuple(key), flow, rounded(share))

    into = [
        edge(one.source, operator.name, operator.key_of(one.alias))
        for operator in topology.operators
        for one in operator.inputs
    ]
    return (*into, *(edge(sink.input, sink.name) for sink in topology.sinks))


def _operator(
    operator: OperatorSpec,
    history: History,
    loads: Loads,
    busy: Mapping[str, float],
    limit: str | None,
    routing: Epoch | None,
) -> PageNode:
    """An operator whose keys are split is two stages: its rows go to the first, its keys are at the second."""
    stages = [stage for stage in (operator.name + PARTIAL, operator.name) if stage in loads.work]
    reports = [report for report in (history.last.reports if history.last else ()) if report.operator in stages]
    highest = [load for stage in stages if stage in loads.stages for load in loads.stages[stage].loads.values()]
    whole = sum(busy.values())
    routes = [routing.routes[stage] for stage in stages if routing is not None and stage in routing.routes]
    return PageNode(
        name=operator.name,
        kind=NodeKind.OPERATOR,
        policy=operator.grouping.policy,
        instances=len({report.instance for report in reports if report.operator == stages[0]})
        if stages
        else operator.parallelism,
        imbalance=rounded(max(highest) - 1) if highest else None,
        busy_share=rounded(sum(busy[stage] for stage in stages) / whole) if whole and stages else None,
        limits=limit in stages,
        entries=sum(len(route.table.entry_hashes) for route in routes if route.table is not None),
        state_bytes=sum(report.state_bytes for report in reports),
        state_keys=sum(report.state_keys for report in reports),
        late_rows=history.totals.late_rows.get(operator.name, 0),
        bad_rows=history.totals.bad_rows.get(operator.name, 0),
    )


def _stage_pairs(start: str, end: str) -> Sequence[tuple[str, str]]:
    """The names under which the sender may have counted the rows of an edge."""
    return [(start, end + PARTIAL), (start, end)]


def _rows_by_edge(topology: Topology, batch: BatchOutcome) -> Mapping[tuple[str, str], int]:
    """Rows of the edges that are counted: along them, by the only reader of an edge, or by the sink."""
    taken: dict[str, int] = {}
    sent: dict[tuple[str, str], int] = {}
    for report in batch.reports:
        taken[report.operator] = taken.get(report.operator, 0) + report.rows
        for to, onward in report.onward.items():
            sent[report.operator, to] = sent.get((report.operator, to), 0) + onward.rows
    rows: dict[tuple[str, str], int] = {
        (sink.input, sink.name): batch.rows_out[sink.name] for sink in topology.sinks if sink.name in batch.rows_out
    }
    for operator in topology.operators:
        for one in operator.inputs:
            edge = one.source, operator.name
            counted = next((sent[pair] for pair in _stage_pairs(*edge) if pair in sent), None)
            if counted is not None:
                rows[edge] = counted
            elif len(operator.inputs) == 1 and (stage := _reading_stage(operator.name, taken)) is not None:
                rows[edge] = taken[stage]
    return rows


def _reading_stage(operator: str, taken: Mapping[str, int]) -> str | None:
    return next((stage for stage in (operator + PARTIAL, operator) if stage in taken), None)
