"""Workers with queues, and the sources of consistent grouping that move virtual workers by what the workers signal.

The paper's cost model (Consistent Grouping, section III): a message arrives per unit of time, waits in its worker's
unbounded first-come-first-served queue and is served for 1 / capacity units. Everything is exact but one thing: where a
worker's capacity changes, the latencies of the messages that wait there stay as they were predicted when they came.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from streamtopology.lab.reproduce.experiments.consistent.schemes import Hashes, Route, from_sources, virtual_chooser
from streamtopology.routing.groupings import VirtualChooser
from streamtopology.routing.planners.consistent import Pairing, Signal, signals
from streamtopology.routing.table.table import RoutingTable

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


class Cluster:
    """Workers and their queues. `capacities` float64[n]: messages that each can serve in a unit of time.

    Of the window since the last `start_window`, float64[n] or int64[n]: messages `assigned`, sum of their `latencies`.
    """

    def __init__(self, capacities: Floats) -> None:
        self.service: Floats = 1.0 / capacities
        self.now = 0.0
        self._done: Floats = np.zeros(len(capacities))
        self.start_window()

    def start_window(self) -> None:
        self.assigned: Counts = np.zeros(len(self.service), np.int64)
        self.latencies: Floats = np.zeros(len(self.service))

    def serve(self, workers: npt.NDArray[np.int32]) -> Floats:
        """The next messages, one a unit of time, go to these workers; when each is done, float64[n]."""
        done = np.empty(len(workers))
        _serve(workers, self.now, self.service, self._done, self.assigned, self.latencies, done)
        self.now += len(workers)
        return done

    def change(self, capacities: Floats) -> None:
        """Other capacities from now on; the messages that wait take as much longer or shorter."""
        waiting = np.maximum(self._done - self.now, 0.0) / self.service
        self.service = 1.0 / capacities
        self._done = self.now + waiting * self.service

    @property
    def queues(self) -> Floats:
        """Messages at each worker now, the one in service included."""
        return np.ceil(np.maximum(self._done - self.now, 0.0) / self.service)


class ConsistentSources:
    """Several sources of consistent grouping, each with a chooser, a map of virtual workers and queues of its own.

    Messages come to them in turn. Every worker says one word about a time slot; a source hears it with the next
    acknowledgement of one of its own messages, so sources learn of it at different times. A source acts on a slot when
    it has heard all workers, at the latest when the next one has ended, and takes the words in the order of the workers,
    not in that of the acknowledgements: that makes all sources move the same virtual workers, sooner or later. A worker keeps
    its last virtual worker: what it is busy with may be a slot old, and without messages it would not be heard again.
    """

    def __init__(self, n_workers: int, each: int, epsilon: float, seed: int, n_sources: int = 1) -> None:
        self._choosers = [virtual_chooser("porc", n_workers, each, seed, epsilon) for _ in range(n_sources)]
        start = RoutingTable.uniform(range(n_workers), each * n_workers).buckets
        self.pairings = [Pairing(start, least=1) for _ in range(n_sources)]
        self.route: Route = from_sources([_route(chooser) for chooser in self._choosers])
        self.moves = 0
        self._signals: list[Signal] = []
        self._signalled_at = np.inf
        self._heard = np.zeros((n_sources, n_workers), np.bool_)
        self._has_acted = [True] * n_sources
        # Of a piece's messages to a worker, the first and the last acknowledgement are remembered; between the two they
        # follow each other closely, as each takes a time of service.
        self._acknowledged = [[deque[tuple[float, float]]() for _ in range(n_workers)] for _ in range(n_sources)]
        self._first = 0

    def signal(self, signals: list[Signal], now: float) -> None:
        """Deliver the workers' signals at the end of a time slot; undelivered ones of the slot before are lost."""
        for source, has_acted in enumerate(self._has_acted):
            if not has_acted:
                self._act(source)
        self._signals, self._signalled_at = signals, now
        self._heard[:] = False
        self._has_acted = [False] * len(self.pairings)

    def observe(self, workers: npt.NDArray[np.int32], done: Floats, now: float) -> None:
        """The piece that was just routed (in the order of `route`), with when its messages will be done."""
        earliest, latest = np.full(self._heard.shape, np.inf), np.zeros(self._heard.shape)
        _acknowledgements(workers, done, self._first, earliest, latest)
        self._first = (self._first + len(workers)) % len(self.pairings)
        for source, worker in np.argwhere(latest > 0).tolist():
            span = (float(earliest[source, worker]), float(latest[source, worker]))
            self._acknowledged[source][worker].append(span)
        for source, has_acted in enumerate(self._has_acted):
            if not has_acted:
                self._listen(source, now)

    def _listen(self, source: int, now: float) -> None:
        for worker in np.flatnonzero(~self._heard[source]).tolist():
            acknowledgements = self._acknowledged[source][worker]
            while acknowledgements and acknowledgements[0][1] <= self._signalled_at:
                acknowledgements.popleft()
            self._heard[source, worker] = bool(acknowledgements) and acknowledgements[0][0] <= now
        if self._heard[source].all():
            self._act(source)

    def _act(self, source: int) -> None:
        pairing = self.pairings[source]
        for worker in np.flatnonzero(self._heard[source]).tolist():
            pairing.hear(worker, self._signals[worker])
        if moved := len(pairing.pair()):
            self.moves += moved
            self._choosers[source].follow(RoutingTable(np.empty(0, np.uint64), np.empty(0, np.int32), pairing.owner))
        self._has_acted[source] = True


class SimulatedConsistent:
    """Consistent grouping on a cluster, slot by slot of `slot` messages: route, serve, signal, hear."""

    def __init__(self, cluster: Cluster, sources: ConsistentSources, slot: int) -> None:
        self.cluster = cluster
        self.sources = sources
        self._slot = slot
        self._slot_ends = slot
        self._in_slot = np.zeros(len(cluster.service), np.int64)

    def feed(self, hashes: Hashes) -> None:
        """The next messages. Sources hear what reached them after the first tenth of a slot and at its end."""
        start = 0
        while start < len(hashes):
            into_slot = int(self.cluster.now) - (self._slot_ends - self._slot)
            first_part = max(self._slot // 10, 1)
            left = first_part - into_slot if into_slot < first_part else self._slot - into_slot
            end = min(start + left, len(hashes))
            self._feed(hashes[start:end])
            start = end

    def _feed(self, hashes: Hashes) -> None:
        cluster = self.cluster
        workers = self.sources.route(hashes)
        self._in_slot += np.bincount(workers, minlength=len(cluster.service))
        self.sources.observe(workers, cluster.serve(workers), cluster.now)
        if cluster.now >= self._slot_ends:
            used = self._in_slot * cluster.service / self._slot
            self.sources.signal(signals(used), cluster.now)
            self._in_slot[:] = 0
            self._slot_ends += self._slot


class SimulatedPlain:
    """A scheme that learns nothing of the cluster."""

    def __init__(self, cluster: Cluster, route: Route) -> None:
        self.cluster = cluster
        self._route = route

    def feed(self, hashes: Hashes) -> None:
        """The next messages."""
        self.cluster.serve(self._route(hashes))


def _route(chooser: VirtualChooser) -> Route:
    return lambda hashes: chooser.choose(hashes, len(hashes))


@njit(cache=True, nogil=True)
def _serve(workers: Any, start: Any, service: Any, worker_done: Any, assigned: Any, latencies: Any, done: Any) -> None:
    for i in range(len(workers)):
        worker, now = workers[i], start + i
        finished = max(worker_done[worker], now) + service[worker]
        worker_done[worker] = finished
        assigned[worker] += 1
        latencies[worker] += finished - now
        done[i] = finished


@njit(cache=True, nogil=True)
def _acknowledgements(workers: Any, done: Any, first: Any, earliest: Any, latest: Any) -> None:
    """The times at which the first and the last of each source's messages to each worker are done, [source, worker]."""
    source, n_sources = first, len(earliest)
    for i in range(len(workers)):
        worker = workers[i]
        earliest[source, worker] = min(earliest[source, worker], done[i])
        latest[source, worker] = max(latest[source, worker], done[i])
        source += 1
        if source == n_sources:
            source = 0
