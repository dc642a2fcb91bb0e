"""The work of a run: one value per committed batch, and the sums over all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean

from streamtopology.contract.stats import BatchSteps, Messages, NumberedBatch, SlotMemory
from streamtopology.routing.load.load_report import LoadReport, SourceReport

# Batches at the start of a run that throughput leaves out: kernels compile and files are opened for the first time.
WARMUP_BATCHES = 3


@dataclass(frozen=True, kw_only=True)
class BatchOutcome(NumberedBatch):
    """One committed batch.

    `capacities`: rows/s per operator and instance as the controller estimated them when the batch was done; `rows_out`: the
    rows that each sink got; `bound`: the capacity bound by these capacities, 0 while none is known; `remote_seconds`: how long
    a row between two executors kept a link busy, as last measured, or 0; `steps`: where the seconds went, if that was measured;
    `memory`: of executors with a limit of it.
    """

    reports: tuple[LoadReport, ...]
    source_reports: tuple[SourceReport, ...]
    capacities: dict[tuple[str, int], float] = field(default_factory=dict)
    messages: dict[str, Messages] = field(default_factory=dict)
    rows_out: dict[str, int] = field(default_factory=dict)
    bound: float = 0.0
    remote_seconds: float = 0.0
    steps: BatchSteps | None = None
    memory: tuple[SlotMemory, ...] = ()

    def with_hidden_keys(self) -> BatchOutcome:
        """With the hash of each key in the place of its text."""
        return replace(self, reports=tuple(_with_hidden_keys(report) for report in self.reports))

    def without_keys(self) -> BatchOutcome:
        """Without the arrays per key and bucket; all totals stay."""
        return replace(self, reports=tuple(report.without_keys() for report in self.reports))


def _with_hidden_keys(report: LoadReport) -> LoadReport:
    return replace(report, heavy_labels=tuple(f"{key:016x}" for key in report.heavy_hashes.tolist()))


@dataclass(frozen=True)
class InstanceTotal:
    """The work of one instance over a run, on the slot that it had last."""

    slot: int
    rows: int = 0
    busy_seconds: float = 0.0

    def plus(self, report: LoadReport) -> InstanceTotal:
        return InstanceTotal(report.slot, self.rows + report.rows, self.busy_seconds + report.busy_seconds)


@dataclass(frozen=True)
class RunTotals:
    """Sums over all batches of a run, of which only the newest are kept; a value, so any thread may read it.

    `warmup_rows`, `warmup_seconds`: those of the first `WARMUP_BATCHES`. `instances`: by operator and instance.
    `capacities`: the newest estimate of each, rows/s. `lost_seconds`: by operator what a perfect division would have saved.
    `late_rows` and `bad_rows` by operator (`bad_rows` of sources, too), `skipped_rows` and `filtered_rows` by source,
    `rows_out` by sink.
    """

    batches: int = 0
    rows: int = 0
    seconds: float = 0.0
    warmup_rows: int = 0
    warmup_seconds: float = 0.0
    instances: Mapping[tuple[str, int], InstanceTotal] = field(default_factory=dict)
    capacities: Mapping[tuple[str, int], float] = field(default_factory=dict)
    lost_seconds: Mapping[str, float] = field(default_factory=dict)
    late_rows: Mapping[str, int] = field(default_factory=dict)
    bad_rows: Mapping[str, int] = field(default_factory=dict)
    skipped_rows: Mapping[str, int] = field(default_factory=dict)
    filtered_rows: Mapping[str, int] = field(default_factory=dict)
    rows_out: Mapping[str, int] = field(default_factory=dict)
    messages: Mapping[str, Messages] = field(default_factory=dict)

    def plus(self, batch: BatchOutcome) -> RunTotals:
        """The sums with one more batch. The cost grows with the instances, not with the batches."""
        lost = _lost(batch)
        in_warmup = self.batches < WARMUP_BATCHES
        instances = dict(self.instances)
        for report in batch.reports:
            known = instances.get((report.operator, report.instance), InstanceTotal(report.slot))
            instances[report.operator, report.instance] = known.plus(report)
        sources = batch.source_reports
        set_aside = [given for report in sources for given in report.bad_rows.items()]
        set_aside += [(report.operator, report.bad_rows) for report in batch.reports]
        return RunTotals(
            batches=self.batches + 1,
            rows=self.rows + batch.rows,
            seconds=self.seconds + batch.seconds,
            warmup_rows=self.warmup_rows + (batch.rows if in_warmup else 0),
            warmup_seconds=self.warmup_seconds + (batch.seconds if in_warmup else 0.0),
            instances=instances,
            capacities={**self.capacities, **batch.capacities},
            lost_seconds={**self.lost_seconds, **{name: self.lost_seconds.get(name, 0.0) + s for name, s in lost.items()}},
            late_rows=_added(self.late_rows, ((report.operator, report.late_rows) for report in batch.reports)),
            bad_rows=_added(self.bad_rows, set_aside),
            skipped_rows=_added(self.skipped_rows, (given for report in sources for given in report.skipped_rows.items())),
            filtered_rows=_added(self.filtered_rows, (given for report in sources for given in report.filtered_rows.items())),
            rows_out=_added(self.rows_out, batch.rows_out.items()),
            messages={
                **self.messages,
                **{name: self.messages.get(name, Messages(name)) + m for name, m in batch.messages.items()},
            },
        )


def _added(sums: Mapping[str, int], given: Iterable[tuple[str, int]]) -> dict[str, int]:
    """`sums` and the counts given by name; a name without any is left out."""
    added = dict(sums)
    for name, count in given:
        if count:
            added[name] = added.get(name, 0) + count
    return added


def _lost(batch: BatchOutcome) -> dict[str, float]:
    """By operator the busy seconds of the busiest instance minus their mean."""
    busy: defaultdict[str, list[float]] = defaultdict(list)
    for report in batch.reports:
        busy[report.operator].append(report.busy_seconds)
    return {operator: max(seconds) - fmean(seconds) for operator, seconds in busy.items()}
