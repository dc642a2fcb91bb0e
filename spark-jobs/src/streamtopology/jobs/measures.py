"""The figures that the view, the report, the picture and the metrics share, each defined once (docs/report.md).

Pure functions of a `History`: nothing here reads a clock or a file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean, median

from streamtopology.jobs.history import BatchOutcome, History
from streamtopology.routing.report import LoadReport, Onward

WARMUP_BATCHES = 3
"""Batches at the start of a run that throughput leaves out: kernels compile and files are opened for the first time."""

RECENT_BATCHES = 5
"""Batches over which the present rate is the median: enough to ride over one slow batch."""


def after_warmup(batches: Sequence[BatchOutcome]) -> Sequence[BatchOutcome]:
    """The batches that count for throughput; all of them when the run was no longer than the warm-up."""
    return batches[WARMUP_BATCHES:] or batches


def throughput(batches: Sequence[BatchOutcome]) -> float | None:
    """Source rows per second of processing time: sum of rows / sum of seconds; None without any time."""
    seconds = sum(batch.seconds for batch in batches)
    return sum(batch.rows for batch in batches) / seconds if seconds > 0 else None


def recent_rate(batches: Sequence[BatchOutcome]) -> float | None:
    """Rows/s now: the median over the last `RECENT_BATCHES` batches that had rows."""
    rates = [batch.rows / batch.seconds for batch in batches[-RECENT_BATCHES:] if batch.rows and batch.seconds > 0]
    return median(rates) if rates else None


def operator_names(history: History) -> tuple[str, ...]:
    """Every operator of the run: those with a policy in the topology's order, then any other that reported."""
    reported = (report.operator for batch in history.batches for report in batch.reports)
    return tuple(dict.fromkeys([*history.policies, *reported]))


def heaviest_operators(history: History, share: float = 1.0) -> tuple[str, ...]:
    """Operators by busy seconds over the run, heaviest first: those with at least `share` of the heaviest's."""
    busy: defaultdict[str, float] = defaultdict(float)
    for batch in history.batches:
        for report in batch.reports:
            busy[report.operator] += report.busy_seconds
    if not busy:
        return ()
    most = max(busy.values())
    return tuple(sorted((name for name in busy if busy[name] >= share * most), key=lambda name: -busy[name]))


def reports_of(batch: BatchOutcome, operator: str) -> tuple[LoadReport, ...]:
    """The operator's load reports in one batch, by instance."""
    return tuple(sorted((r for r in batch.reports if r.operator == operator), key=lambda r: r.instance))


def relative_loads(batch: BatchOutcome, operator: str) -> Mapping[int, float]:
    """Load / capacity of each instance over the mean of the operator's instances: 1 is exactly its fair share.

    Load / capacity is rows / estimated capacity; an operator with an instance not estimated yet is compared by the
    busy seconds measured, which are the same thing after the fact.
    """
    reports = reports_of(batch, operator)
    capacities = {r.instance: batch.capacities.get((operator, r.instance), 0.0) for r in reports}
    if all(capacity > 0 for capacity in capacities.values()):
        loads = {r.instance: r.rows / capacities[r.instance] for r in reports}
    else:
        loads = {r.instance: r.busy_seconds for r in reports}
    mean = fmean(loads.values()) if loads else 0.0
    return {instance: load / mean if mean > 0 else 1.0 for instance, load in loads.items()}


def imbalance(batch: BatchOutcome, operator: str) -> float | None:
    """Max over instances of load / capacity over the mean, minus 1; as the controller saw it, else from the reports."""
    if operator in batch.imbalance:
        return batch.imbalance[operator]
    loads = relative_loads(batch, operator)
    return max(loads.values()) - 1 if loads else None


def locality(batch: BatchOutcome) -> Mapping[tuple[str, str], float]:
    """(operator, the one that its rows went on to) -> share of these rows that stayed on their executor."""
    sent: defaultdict[tuple[str, str], Onward] = defaultdict(Onward)
    for report in batch.reports:
        for consumer, onward in report.onward.items():
            sent[report.operator, consumer] += onward
    return {edge: onward.stayed / onward.rows for edge, onward in sent.items() if onward.rows}


def imbalance_before_and_after(history: History) -> tuple[float | None, float | None]:
    """Median imbalance of the heaviest operator before the first re-routing, and in the last third of the run.

    Without a re-routing, `before` is the median over the run after warm-up. When the first batch already ran re-routed
    there is no `before`.
    """
    heaviest = heaviest_operators(history)
    if not heaviest:
        return None, None
    before, after = _before_and_after(history)
    return _median_imbalance(before, heaviest[0]), _median_imbalance(after, heaviest[0])


def locality_before_and_after(history: History) -> Mapping[tuple[str, str], tuple[float | None, float | None]]:
    """By edge the median share of rows that stayed on their executor, over the same batches as the imbalance."""
    before, after = ([locality(batch) for batch in part] for part in _before_and_after(history))
    edges = dict.fromkeys(edge for shares in (*before, *after) for edge in shares)
    return {edge: (_median_of(before, edge), _median_of(after, edge)) for edge in edges}


def _median_of(shares: Sequence[Mapping[tuple[str, str], float]], edge: tuple[str, str]) -> float | None:
    seen = [each[edge] for each in shares if edge in each]
    return median(seen) if seen else None


def _before_and_after(history: History) -> tuple[Sequence[BatchOutcome], Sequence[BatchOutcome]]:
    """The batches before the first re-routing (without one: after warm-up), and the last third of the run."""
    batches = history.batches
    changes = history.reconfigurations
    if changes:
        first = min(change.batch for change in changes)
        before: Sequence[BatchOutcome] = [batch for batch in batches if batch.number < first]
    else:
        before = after_warmup(batches)
    return before, batches[-max(1, len(batches) // 3) :]


def _median_imbalance(batches: Sequence[BatchOutcome], operator: str) -> float | None:
    seen = [value for batch in batches if (value := imbalance(batch, operator)) is not None]
    return median(seen) if seen else None


def latest_capacities(history: History) -> dict[tuple[str, int], float]:
    """The newest capacity estimate of every (operator, instance) that was ever estimated, rows/s."""
    latest: dict[tuple[str, int], float] = {}
    for batch in history.batches:
        latest.update(batch.capacities)
    return latest
