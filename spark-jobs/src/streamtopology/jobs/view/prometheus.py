"""The driver's Prometheus metrics, fed from a run's history, and at each scrape from where the run stands; own registry, so
that two runs in a process stay apart."""

from __future__ import annotations

import math
import threading
from collections import Counter as Tally
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streamtopology.contract.stats import Rerouting
from streamtopology.jobs.observe.fair_share import RECENT_BATCHES, MeasuredBatch, measure, recent_loads
from streamtopology.jobs.observe.figures import imbalance, locality
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.jobs.observe.stats import NOT_STARTED, Standing

_INSTANCE = ("operator", "instance")
_SECONDS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2.5, 5, 10, 20, 60)


class Metrics:
    """Keeps `registry` up to date with `history`; every batch and re-routing is counted once.

    Counters start at 0 with the process, as Prometheus expects: a restarted driver is a counter reset.
    """

    def __init__(self, history: History, standing: Callable[[], Standing] = lambda: NOT_STARTED) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(StandingFigures(history, standing))
        self._define(self.registry)
        self._define_divided(self.registry)
        self._lock = threading.Lock()
        self._batches_seen = 0
        self._changes_seen = 0
        self._shown_instances: set[tuple[str, int]] = set()
        self._shown_executors: set[str] = set()
        self._shown_divided: set[str] = set()
        self._recent: deque[MeasuredBatch] = deque(maxlen=RECENT_BATCHES)
        self._update(history)
        history.listen(self._update)

    def _define(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(f"streamtopology_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(f"streamtopology_{name}", text, labels, registry=registry)

        def seconds(name: str, text: str) -> Histogram:
            return Histogram(f"streamtopology_{name}", text, registry=registry, buckets=_SECONDS)

        self._batches = counter("batches_total", "Committed batches.")
        self._source_rows = counter("source_rows_total", "Rows read from the sources in committed batches.")
        self._rows = counter("rows_total", "Rows processed by an instance in committed batches.", _INSTANCE)
        self._late_rows = counter("late_rows_total", "Rows whose window was closed, or without event time.", ("operator",))
        self._bad_rows = counter(
            "bad_rows_total", "Rows set aside because the operator or source raised on them.", ("operator",)
        )
        self._skipped_rows = counter(
            "skipped_rows_total", "Rows that a source skipped, because they were deleted before they were read.", ("source",)
        )
        self._rows_ahead = counter(
            "rows_ahead_total", "Rows whose event time is too far ahead of the clock to move the watermark.", ("source",)
        )
        self._batch_seconds = seconds("batch_seconds", "From taking a batch to its commit record, retries included.")
        self._busy = gauge("instance_busy_seconds", "Time in the operator's work, last committed batch.", _INSTANCE)
        self._class_busy = counter(
            "busy_seconds_total", "Time of a class's executors in the work of operators and sources.", ("class",)
        )
        self._capacity = gauge(
            "instance_capacity_rows_per_second", "Capacity of an instance as estimated from what it did.", _INSTANCE
        )
        self._load = gauge(
            "executor_load_ratio", "Busy time of an executor over its fair share, over all stages; 1 is fair.", ("executor",)
        )
        self._imbalance = gauge(
            "imbalance_ratio", "Busy time of an operator's most loaded instance over its fair share, minus 1.", ("operator",)
        )
        self._locality = gauge(
            "locality_ratio",
            "Share of an operator's rows that stay on their executor.",
            ("operator", "to"),
        )
        self._state_bytes = gauge("state_bytes", "State an instance holds in memory.", _INSTANCE)
        self._state_keys = gauge("state_keys", "Keys an instance holds state for.", _INSTANCE)
        self._epoch = gauge("epoch", "Number of the epoch of the last committed batch.")
        self._executors = gauge("executors", "Executors of the run.", ("class",))
        self._reroutings = counter(
            "reroutings_total",
            "Re-routings of a running operator, by the controller (imbalance) or by a changed manifest (applied).",
            ("operator", "reason"),
        )
        self._keys_moved = counter("keys_moved_total", "Keys whose state moved to another instance.", ("operator",))
        self._bytes_moved = counter("bytes_moved_total", "State moved to another instance.", ("operator",))
        learns = "Reports of instances to an operator's choosers, which learn from them what tuples cost."
        self._messages = counter("messages_total", learns, ("operator",))
        self._message_bytes = counter("message_bytes_total", "Size of these reports on the wire.", ("operator",))
        self._reconfigure = seconds("time_to_reconfigure_seconds", "From publishing an epoch to its first batch.")

    def _define_divided(self, registry: CollectorRegistry) -> None:
        """Of keys that routers divide over several instances: by operator, as keys have no bound."""
        away = "Rows that an instance gathered for the home of their divided key."
        self._rows_away = Counter("streamtopology_rows_away_total", away, ("operator",), registry=registry)
        merged = "Parts of divided keys merged at their home."
        self._parts_merged = Counter("streamtopology_parts_merged_total", merged, ("operator",), registry=registry)
        now = "Keys whose rows routers divided over several instances, last committed batch."
        self._divided_keys = Gauge("streamtopology_divided_keys", now, ("operator",), registry=registry)

    def _update(self, history: History) -> None:
        with self._lock:
            self._batches_seen, new = history.batches_since(self._batches_seen)
            classes = {slot.index: slot.class_name for slot in history.slots}
            for batch in new:
                self._count(batch, classes)
                self._recent.append(measure(batch))
            if new:
                self._show(new[-1])
                self._show_divided(history.divided.counts)
                self._show_loads({slot.index: slot.executor for slot in history.slots if slot.present})
            self._changes_seen, changes = history.reconfigurations_since(self._changes_seen)
            for change in changes:
                self._count_change(change)
            executors = Tally({slot.class_name: 0 for slot in history.slots})
            executors.update(slot.class_name for slot in history.slots if slot.present)
            for class_name, number in executors.items():
                self._executors.labels(class_name).set(number)

    def _count(self, batch: BatchOutcome, classes: Mapping[int, str]) -> None:
        self._batches.inc()
        self._source_rows.inc(batch.rows)
        self._batch_seconds.observe(batch.seconds)
        for report in batch.reports:
            self._rows.labels(report.operator, report.instance).inc(report.rows)
            self._late_rows.labels(report.operator).inc(report.late_rows)
            self._bad_rows.labels(report.operator).inc(report.bad_rows)
            self._rows_away.labels(report.operator).inc(report.rows_away)
            self._parts_merged.labels(report.operator).inc(report.parts_merged)
        for report in (*batch.reports, *batch.source_reports):
            if report.slot in classes:  # rows that Spark reads itself are read wherever it puts them
                self._class_busy.labels(classes[report.slot]).inc(report.busy_seconds)
        for source in batch.source_reports:
            for name, rows in source.bad_rows.items():
                self._bad_rows.labels(name).inc(rows)
            for name, rows in source.skipped_rows.items():
                self._skipped_rows.labels(name).inc(rows)
            for name, rows in source.rows_ahead.items():
                self._rows_ahead.labels(name).inc(rows)
        for operator, sent in batch.messages.items():
            self._messages.labels(operator).inc(sent.count)
            self._message_bytes.labels(operator).inc(sent.bytes)

    def _show(self, batch: BatchOutcome) -> None:
        self._epoch.set(batch.epoch)
        active = {(report.operator, report.instance) for report in batch.reports}
        for drained in self._shown_instances - active:  # its last figures are not true any more
            for gauge in (self._busy, self._state_bytes, self._state_keys, self._capacity):
                gauge.remove(*drained)
        self._shown_instances = active
        for report in batch.reports:
            instance = (report.operator, report.instance)
            self._busy.labels(*instance).set(report.busy_seconds)
            self._state_bytes.labels(*instance).set(report.state_bytes)
            self._state_keys.labels(*instance).set(report.state_keys)
            self._capacity.labels(*instance).set(batch.capacities.get(instance, math.nan))
        for edge, share in locality(batch).items():
            self._locality.labels(*edge).set(share)
        for operator in {report.operator for report in batch.reports}:
            ratio = imbalance(batch, operator)
            if ratio is not None:
                self._imbalance.labels(operator).set(ratio)

    def _show_divided(self, counts: Mapping[str, int]) -> None:
        for gone in self._shown_divided - counts.keys():
            self._divided_keys.remove(gone)
        self._shown_divided = set(counts)
        for operator, count in counts.items():
            self._divided_keys.labels(operator).set(count)

    def _show_loads(self, present: Mapping[int, str]) -> None:
        by_slot = recent_loads(self._recent).by_slot
        loads = {present[slot]: load for slot, load in by_slot.items() if slot in present}
        for gone in self._shown_executors - loads.keys():
            self._load.remove(gone)
        self._shown_executors = set(loads)
        for executor, load in loads.items():
            self._load.labels(executor).set(load)

    def _count_change(self, change: Rerouting) -> None:
        self._reroutings.labels(change.operator, change.reason.cause.trigger.value).inc()
        self._keys_moved.labels(change.operator).inc(change.keys_moved)
        self._bytes_moved.labels(change.operator).inc(change.bytes_moved)
        self._reconfigure.observe(change.published_to_active_seconds)


class StandingFigures(Collector):
    """Figures of the moment of a scrape, which no batch brings: what waits, and for how long."""

    def __init__(self, history: History, standing: Callable[[], Standing]) -> None:
        self._history = history
        self._standing = standing

    def collect(self) -> Iterator[Metric]:
        standing, running = self._standing(), self._history.running
        build = GaugeMetricFamily("streamtopology_build_info", "1, with the version of the driver.", labels=("version",))
        build.add_metric((version("streamtopology"),), 1)
        yield build
        seconds = 0.0 if running is None else running.seconds
        text = "For how long the present batch has run; 0 between two batches."
        yield GaugeMetricFamily("streamtopology_running_batch_seconds", text, value=seconds)
        text = "Rows that wait in Kafka after the newest batch, counted every ten seconds."
        lag = GaugeMetricFamily("streamtopology_lag_rows", text, labels=("source",))
        for source, rows in standing.lag.items():
            if rows is not None:
                lag.add_metric((source,), rows)
        yield lag
        text = "The event time up to which windows are closed, in seconds since 1970; the year 9999 after the end of the input."
        watermark = GaugeMetricFamily("streamtopology_watermark_timestamp_seconds", text, labels=())
        if standing.watermark is not None:
            watermark.add_metric((), standing.watermark)
        yield watermark
