"""The operator's own metrics for Prometheus (docs/run/operations.md)."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from streamtopology.contract.stats import Batch
from streamtopology.k8s.decide.snapshot_figures import by_phase, completed_at
from streamtopology.k8s.io.queue import TopologyKey
from streamtopology.k8s.resources.objects import Object

PREFIX = "streamtopology_operator_"
TOPOLOGY = ("namespace", "topology")

RECONCILE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
RECONFIGURE_BUCKETS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0)


class OperatorMetrics:
    """The operator's metrics, in a registry of their own."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.reconcile_seconds = Histogram(
            f"{PREFIX}reconcile_seconds",
            "One look at a topology, with all calls it led to.",
            ("outcome",),
            buckets=RECONCILE_BUCKETS,
            registry=registry,
        )
        self.queue_length = Gauge(f"{PREFIX}queue_length", "Topologies that wait to be looked at.", registry=registry)
        self.outdated_topologies = Gauge(
            f"{PREFIX}outdated_topologies", "Topologies that wait for the pods of this version.", registry=registry
        )
        self.reroutings = Counter(f"{PREFIX}reroutings", "Re-routings that were published.", ("reason",), registry=registry)
        self.time_to_reconfigure_seconds = Histogram(
            f"{PREFIX}time_to_reconfigure_seconds",
            "From seeing a change to the first batch under it.",
            ("kind",),
            buckets=RECONFIGURE_BUCKETS,
            registry=registry,
        )
        self.tuples_stalled = Gauge(
            f"{PREFIX}tuples_stalled",
            "Tuples that the last switch held up: its extra seconds times the rate.",
            TOPOLOGY,
            registry=registry,
        )
        self.imbalance_ratio = Gauge(
            f"{PREFIX}imbalance_ratio", "The worst operator's imbalance as the driver measures it.", TOPOLOGY, registry=registry
        )
        self._conditions = Gauge(
            f"{PREFIX}condition",
            "1 where a condition of the topology is True, else 0; with its present reason.",
            (*TOPOLOGY, "condition", "reason"),
            registry=registry,
        )
        self._reasons: defaultdict[tuple[str, str], dict[str, str]] = defaultdict(dict)
        self.leading = Gauge(f"{PREFIX}leading", "1 where this replica works.", registry=registry)
        self.api_requests = Counter(
            f"{PREFIX}api_requests",
            "Calls of the API server by HTTP status; of those that it did not answer the code is `none`.",
            ("method", "code"),
            registry=registry,
        )
        build = Gauge(f"{PREFIX}build_info", "1, with the version of the operator.", ("version",), registry=registry)
        build.labels(version("streamtopology-operator")).set(1)
        self.snapshots = SnapshotFigures()
        registry.register(self.snapshots)

    def show_conditions(self, namespace: str, topology: str, conditions: Iterable[Mapping[str, Any]]) -> None:
        """Set the gauges to the `conditions` in status. A reason that has passed has no series any more."""
        reasons = self._reasons[namespace, topology]
        for one in conditions:
            kind, reason, before = one["type"], one["reason"], reasons.get(one["type"])
            self._conditions.labels(namespace, topology, kind, reason).set(1 if one["status"] == "True" else 0)
            reasons[kind] = reason
            if before not in (None, reason):
                self._conditions.remove(namespace, topology, kind, before)

    def api_answered(self, method: str, code: str) -> None:
        """Count a call of the API server."""
        self.api_requests.labels(method, code).inc()

    def forget(self, namespace: str, topology: str) -> None:
        """Remove the gauges of a topology that is gone."""
        self.forget_batches(namespace, topology)
        for kind, reason in self._reasons.pop((namespace, topology), {}).items():
            self._conditions.remove(namespace, topology, kind, reason)

    def forget_batches(self, namespace: str, topology: str) -> None:
        """Remove the gauges of the last batch of a topology that does not run: nothing of them is true any more."""
        for gauge in (self.tuples_stalled, self.imbalance_ratio):
            try:
                gauge.remove(namespace, topology)
            except KeyError:  # it never had a batch
                continue


class SnapshotFigures(Collector):
    """Metrics of the snapshots that exist when they are asked for, which need no clearing when one goes."""

    def __init__(self) -> None:
        self._bodies: Callable[[], Iterable[Object]] = tuple
        self._missed: Callable[[], Mapping[TopologyKey, int]] = dict

    def follow(self, bodies: Callable[[], Iterable[Object]], missed: Callable[[], Mapping[TopologyKey, int]] = dict) -> None:
        """Take the snapshots from `bodies`, and from `missed` the times of schedules that have passed without one."""
        self._bodies, self._missed = bodies, missed

    def collect(self) -> Iterable[Metric]:
        bodies = list(self._bodies())
        phases = GaugeMetricFamily(f"{PREFIX}snapshots", "Snapshots by phase.", labels=(*TOPOLOGY, "phase"))
        for labels, number in by_phase(bodies).items():
            phases.add_metric(labels, number)
        text = "When the newest whole snapshot was completed, in seconds since 1970."
        completed = GaugeMetricFamily(f"{PREFIX}snapshot_completed_timestamp_seconds", text, labels=TOPOLOGY)
        for labels, moment in completed_at(bodies).items():
            completed.add_metric(labels, moment)
        text = "Times of its schedule that have passed since the newest whole copy, while there is something to copy."
        missed = GaugeMetricFamily(f"{PREFIX}snapshots_missed", text, labels=TOPOLOGY)
        for key, number in self._missed().items():
            missed.add_metric((key.namespace, key.name), number)
        return phases, completed, missed


def tuples_stalled(batches: Sequence[Batch]) -> float | None:
    """Tuples that the newest switch among these batches held up: what its first batch took beyond the usual, times the
    usual rate. None where there is no switch or nothing to compare it with."""
    switches = [index for index in range(1, len(batches)) if batches[index].epoch != batches[index - 1].epoch]
    if not switches:
        return None
    before = [batch for batch in batches[: switches[-1]] if batch.rows]
    if not before:
        return None
    usual = statistics.median(batch.seconds / batch.rows for batch in before)
    first = batches[switches[-1]]
    return max(first.seconds - first.rows * usual, 0.0) / usual if usual > 0 else None
