"""The figures that the view, the report, the picture and the metrics share, each defined once (docs/reference/report.md).

Pure functions of a `History`: nothing here reads a clock or a file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from streamtopology.jobs.observe.fair_share import JUDGED_ROWS, RECENT_BATCHES, Work, stage_load, stage_of
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.outcome import WARMUP_BATCHES, BatchOutcome
from streamtopology.routing.load import working
from streamtopology.routing.load.load_report import LoadReport, Onward


def after_warmup(history: History) -> Sequence[BatchOutcome]:
    """The newest batches without those of the warm-up; all of them when the run was no longer than that."""
    batches = history.batches
    gone = history.totals.batches - len(batches)
    return batches[max(WARMUP_BATCHES - gone, 0) :] or batches


def throughput(batches: Sequence[BatchOutcome]) -> float | None:
    """Source rows per second of processing time: sum of rows / sum of seconds; None without any time."""
    seconds = sum(batch.seconds for batch in batches)
    return sum(batch.rows for batch in batches) / seconds if seconds > 0 else None


def run_throughput(history: History) -> float | None:
    """Source rows per second of processing time over the whole run; None without any time."""
    totals = history.totals
    return totals.rows / totals.seconds if totals.seconds > 0 else None


def warm_throughput(history: History) -> float | None:
    """`run_throughput` without the warm-up, unless the run was no longer than that."""
    totals = history.totals
    if totals.batches <= WARMUP_BATCHES:
        return run_throughput(history)
    seconds = totals.seconds - totals.warmup_seconds
    return (totals.rows - totals.warmup_rows) / seconds if seconds > 0 else None


def recent_rate(batches: Sequence[BatchOutcome]) -> float | None:
    """Rows/s now: the median over the last `RECENT_BATCHES` batches that had rows."""
    rates = [batch.rows / batch.seconds for batch in batches[-RECENT_BATCHES:] if batch.rows and batch.seconds > 0]
    return median(rates) if rates else None


def operator_names(history: History) -> tuple[str, ...]:
    """Every operator of the run: those with a policy in the topology's order, then any other that reported."""
    return tuple(dict.fromkeys([*history.policies, *(operator for operator, _ in history.totals.instances)]))


def heaviest_operator(history: History) -> str | None:
    """The operator with most busy seconds over the run; None before any has run."""
    busy: defaultdict[str, float] = defaultdict(float)
    for (operator, _), total in history.totals.instances.items():
        busy[operator] += total.busy_seconds
    return max(busy, key=lambda name: busy[name], default=None)


def reports_of(batch: BatchOutcome, operator: str) -> tuple[LoadReport, ...]:
    """The operator's load reports in one batch, by instance."""
    return tuple(sorted((r for r in batch.reports if r.operator == operator), key=lambda r: r.instance))


def relative_loads(batch: BatchOutcome, operator: str) -> Mapping[int, float]:
    """Busy seconds of each instance over its fair share: 1 for all if nothing was measured."""
    reports = reports_of(batch, operator)
    work = {report.instance: Work(report.rows, report.busy_seconds) for report in reports}
    estimated = {instance: batch.capacities.get((operator, instance), 0.0) for instance in work}
    return stage_load(work, estimated).loads or dict.fromkeys(work, 1.0)


def imbalance(batch: BatchOutcome, operator: str) -> float | None:
    """The imbalance of one batch: the highest load of an executor, minus 1. Its instances run one after the other.

    The controller estimates that of the next ones.
    """
    reports = reports_of(batch, operator)
    if not reports:
        return None
    load = stage_of(replace(batch, reports=reports), operator)
    return max(load.loads.values(), default=1.0) - 1


def judged_imbalance(batch: BatchOutcome, operator: str) -> float | None:
    """The imbalance for people: None if the operator had fewer than `JUDGED_ROWS` rows per instance."""
    reports = reports_of(batch, operator)
    if sum(report.rows for report in reports) < JUDGED_ROWS * len(reports):
        return None
    return imbalance(batch, operator)


def locality(batch: BatchOutcome) -> Mapping[tuple[str, str], float]:
    """(operator, consumer of its rows) -> share of these rows that stayed on their executor."""
    sent: defaultdict[tuple[str, str], Onward] = defaultdict(Onward)
    for report in batch.reports:
        for consumer, onward in report.onward.items():
            sent[report.operator, consumer] += onward
    return {edge: onward.stayed / onward.rows for edge, onward in sent.items() if onward.rows}


def working_seconds(batch: BatchOutcome) -> float:
    """The seconds of a batch that its rows need, at most all of it."""
    return min(batch.seconds, working.working_seconds(batch.source_reports, batch.reports))


def waited_share(history: History, baseline: History | None = None) -> float | None:
    """The share of the time in which no batch ran, of `baseline` neither, since the first batch that is kept.

    None without two of them.
    """
    batches = history.batches
    if len(batches) < 2:
        return None
    begin, end = batches[0].committed_at, batches[-1].committed_at
    ran = [*batches, *(baseline.batches if baseline else ())]
    busy = sum(batch.seconds for batch in ran if begin < batch.committed_at <= end)
    return max(0.0, 1 - busy / (end - begin)) if end > begin else None


def rate_before_and_after(history: History) -> tuple[float | None, float | None]:
    """Rows/s before the first re-routing, without the warm-up, and in the last third of the run; None without a batch there."""
    before, after = _before_and_after(history)
    first = history.opening[0].number if history.opening else 0
    return throughput([batch for batch in before if batch.number >= first + WARMUP_BATCHES]), throughput(after)


def imbalance_before_and_after(history: History) -> tuple[float | None, float | None]:
    """Median imbalance of the heaviest operator before the first re-routing, and in the last third of the run.

    Batches with too few rows to judge do not count.
    Without a re-routing, `before` is the median over the run after warm-up. When the first batch already ran re-routed
    there is no `before`.
    """
    heaviest = heaviest_operator(history)
    if heaviest is None:
        return None, None
    before, after = _before_and_after(history)
    return _median_imbalance(before, heaviest), _median_imbalance(after, heaviest)


def locality_before_and_after(history: History) -> Mapping[tuple[str, str], tuple[float | None, float | None]]:
    """By edge the median share of rows that stayed on their executor, over the same batches as the imbalance."""
    before, after = ([locality(batch) for batch in part] for part in _before_and_after(history))
    edges = dict.fromkeys(edge for shares in (*before, *after) for edge in shares)
    return {edge: (_median_of(before, edge), _median_of(after, edge)) for edge in edges}


def _median_of(shares: Sequence[Mapping[tuple[str, str], float]], edge: tuple[str, str]) -> float | None:
    seen = [each[edge] for each in shares if edge in each]
    return median(seen) if seen else None


def speed_change(history: History, baseline: History | None) -> float | None:
    """The rows that a busy second of an executor processed of the heaviest operator, against those of `baseline`.

    Without a baseline: in the last third of the run against before the first re-routing. The median of the executors that had
    rows in both; None without any. Routing gives an executor more rows or fewer, so this changes with the machine.
    """
    before, after = (after_warmup(baseline), after_warmup(history)) if baseline else _before_and_after(history)
    heaviest = heaviest_operator(history)
    if heaviest is None:
        return None
    past, now = (_speeds(part, heaviest) for part in (before, after))
    return median(now[slot] / past[slot] for slot in past.keys() & now.keys()) if past.keys() & now.keys() else None


def _speeds(batches: Sequence[BatchOutcome], operator: str) -> Mapping[int, float]:
    """By slot, the rows a busy second of the operator's instances there."""
    rows, seconds = defaultdict[int, int](int), defaultdict[int, float](float)
    for report in (report for batch in batches for report in reports_of(batch, operator)):
        rows[report.slot] += report.rows
        seconds[report.slot] += report.busy_seconds
    return {slot: count / seconds[slot] for slot, count in rows.items() if count and seconds[slot] > 0}


def _before_and_after(history: History) -> tuple[Sequence[BatchOutcome], Sequence[BatchOutcome]]:
    """The batches before the first re-routing (without one: after warm-up), and the last third, as far as they are kept."""
    batches, first = history.batches, history.first_change
    after = batches[-max(1, len(batches) // 3) :]
    if first is None:
        return after_warmup(history), after
    opening = {batch.number: batch for batch in history.opening}
    known = {**opening, **{batch.number: batch for batch in batches}}
    return [batch for number, batch in known.items() if number < first], after


def _median_imbalance(batches: Sequence[BatchOutcome], operator: str) -> float | None:
    seen = [value for batch in batches if (value := judged_imbalance(batch, operator)) is not None]
    return median(seen) if seen else None
