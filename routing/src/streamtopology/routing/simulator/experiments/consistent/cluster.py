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

from streamtopology.routing.groupings import VirtualChooser
from streamtopology.routing.planners.consistent import Pairing, Signal, signals
from streamtopology.routing.simulator.experiments.consistent.schemes import Hashes, Route, from_sources, virtual_chooser
from streamtopology.routing.table import RoutingTable

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

    Messages come to them in turn. Workers signal once a time slot; a signal reaches a source with the next
    acknowledgement of a message of that source, so sources learn of it at different times and are only eventually alike.
    Sources act on what they have heard by the end of each piece of the stream that they are given.
    """

    def __init__(self, n_workers: int, each: int, epsilon: float, seed: int, n_sources: int = 1) -> None:
        self._choosers = [virtual_chooser("porc", n_workers, each, seed, epsilon) for _ in range(n_sources)]
        start = RoutingTable.uniform(range(n_workers), each * n_workers).buckets
        self.pairings = [Pairing(start) for _ in range(n_sources)]
        self.route: Route = from_sources([_route(chooser) for chooser in self._choosers])
        self.moves = 0
        self._signals: list[Signal] = [Signal.FINE] * n_workers
        self._told_at = np.inf
        self._unheard = np.zeros((n_sources, n_workers), np.bool_)
        # Of the messages of a piece, the first acknowledgement of each worker is remembered: enough to know the next one.
        self._acknowledged = [[deque[float]() for _ in range(n_workers)] for _ in range(n_sources)]
        self._first = 0

    def signal(self, said: list[Signal], now: float) -> None:
        """What the workers say at the end of a time slot; it takes the place of what a source has not heard yet."""
        self._signals, self._told_at = said, now
        self._unheard[:] = True

    def observe(self, workers: npt.NDArray[np.int32], done: Floats, now: float) -> None:
        """The piece that was just routed (in the order of `route`), with when its messages will be done."""
        acknowledged = np.full(self._unheard.shape, np.inf)
        _first_done(workers, done, self._first, acknowledged)
        self._first = (self._first + len(workers)) % len(self.pairings)
        for source, worker in np.argwhere(np.isfinite(acknowledged)).tolist():
            self._acknowledged[source][worker].append(float(acknowledged[source, worker]))
        for source in np.flatnonzero(self._unheard.any(axis=1)).tolist():
            self._listen(source, now)

    def _listen(self, source: int, now: float) -> None:
        """The source hears the workers whose acknowledgements reached it, in their order, and pairs."""
        heard: list[tuple[float, int]] = []
        for worker in np.flatnonzero(self._unheard[source]).tolist():
            acknowledgements = self._acknowledged[source][worker]
            while acknowledgements and acknowledgements[0] <= self._told_at:
                acknowledgements.popleft()
            if acknowledgements and acknowledgements[0] <= now:
                heard.append((acknowledgements[0], worker))
        pairing = self.pairings[source]
        for _, worker in sorted(heard):
            pairing.hear(worker, self._signals[worker])
            self._unheard[source, worker] = False
        if moved := len(pairing.pair()):
            self.moves += moved
            self._choosers[source].follow(RoutingTable(np.empty(0, np.uint64), np.empty(0, np.int32), pairing.owner))


class SimulatedConsistent:
    """Consistent grouping on a cluster, slot by slot of `slot` messages: route, serve, signal, hear."""

    def __init__(self, cluster: Cluster, sources: ConsistentSources, slot: int) -> None:
        self.cluster = cluster
        self.sources = sources
        self._slot = slot
        self._slot_ends = slot
        self._in_slot = np.zeros(len(cluster.service), np.int64)

    def feed(self, hashes: Hashes) -> None:
        """The next messages. In a slot, sources act on what they heard after its first tenth and at its end."""
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
def _first_done(workers: Any, done: Any, first: Any, acknowledged: Any) -> None:
    """acknowledged[source, worker] = when the first of the source's messages to that worker is done."""
    source, n_sources = first, len(acknowledged)
    for i in range(len(workers)):
        if done[i] < acknowledged[source, workers[i]]:
            acknowledged[source, workers[i]] = done[i]
        source += 1
        if source == n_sources:
            source = 0
