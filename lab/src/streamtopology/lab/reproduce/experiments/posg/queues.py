"""A stream before k instances, each working its tuples off in the order in which they came: discrete events, exactly.

An instance's tuples are executed in order and never interrupted, so that when a tuple is given to an instance it is known
when it will be done. Tuple by tuple a kernel advances (some 15 ns for a tuple by the paper's greedy scheduler, 40 ns by
earliest finish, k = 5) and stops where a message is due: a message reaches the scheduler, or an instance has one
to send. Messages take no time, as in the paper.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from streamtopology.routing.groupings.earliest_finish import earliest
from streamtopology.routing.groupings.posg.greedy import least_loaded

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


NOBODY = -1


class Stream(NamedTuple):
    """m tuples, one every `interval` seconds. `items` int64[m]; `costs` float64[n], seconds on an instance of speed 1.

    From tuple starts[p] on (int64[p]) instance j takes slowness[p, j] times as long (float64[p, k]). `hashes` uint64[n].
    """

    items: Integers
    hashes: Hashes
    costs: Floats
    interval: float
    starts: Integers
    slowness: Floats


class Queues(NamedTuple):
    """The work of the instances. free, busy float64[k]: when each is done with all it has, and how long it works for that;
    executed int64[k]: with how many tuples; squares float64[k]: the sum of their execution times squared.

    chosen int64[m], took and done float64[m]: each tuple's instance, execution time and the moment when it is done.
    """

    free: Floats
    busy: Floats
    executed: Integers
    squares: Floats
    chosen: Integers
    took: Floats
    done: Floats

    @classmethod
    def idle(cls, stream: Stream) -> Queues:
        k, m = stream.slowness.shape[1], len(stream.items)
        return cls(np.zeros(k), np.zeros(k), np.zeros(k, np.int64), np.zeros(k), np.full(m, -1), np.zeros(m), np.zeros(m))

    def completion_times(self, stream: Stream) -> Floats:
        """float64[m]: from a tuple's arrival until it is done."""
        return self.done - np.arange(len(self.done)) * stream.interval


class Unreported(NamedTuple):
    """The instances' pending reports. tuples, limits int64[k]: executed since the last report, and with how many to report.

    drift float64[k]: by how much they took longer than was estimated. tolerated: an instance reports when its drift is
    larger than that multiple of E[w^2] / E[w], the execution time of the tuple that an arriving one finds under way. In
    mean execution times, rare long tuples would each be a message.
    """

    tuples: Integers
    limits: Integers
    drift: Floats
    tolerated: float


class FinishEstimates(NamedTuple):
    """The scheduler's view for earliest finish. costs float64[n], slowness float64[k]: of items and instances.

    finish float64[k]: when each instance is done. sent float64[k]: estimated seconds given to it; carried float64[m]: `sent`
    as each tuple takes it along.
    """

    costs: Floats
    slowness: Floats
    finish: Floats
    sent: Floats
    carried: Floats


@njit(cache=True, nogil=True, inline="always")
def _execute(stream: Any, queues: Any, i: Any, instance: Any) -> Any:
    """Gives tuple i to an instance; seconds that it takes there."""
    period = len(stream.starts) - 1
    while stream.starts[period] > i:
        period -= 1
    seconds = stream.costs[stream.items[i]] * stream.slowness[period, instance]
    queues.free[instance] = max(queues.free[instance], i * stream.interval) + seconds
    queues.busy[instance] += seconds
    queues.executed[instance] += 1
    queues.squares[instance] += seconds * seconds
    queues.chosen[i] = instance
    queues.took[i] = seconds
    queues.done[i] = queues.free[instance]
    return seconds


@njit(cache=True, nogil=True)
def advance_round_robin(stream: Any, queues: Any, unreported: Any, first: int, last: int, due: float) -> tuple[int, int]:
    """Tuples from `first` on, at most to `last`, before the time `due`. Returns the next tuple and who reports."""
    k = len(queues.free)
    for i in range(first, last):
        if i * stream.interval >= due:
            return i, NOBODY
        instance = i % k
        _execute(stream, queues, i, instance)
        unreported.tuples[instance] += 1
        if unreported.tuples[instance] == unreported.limits[instance]:
            return i + 1, instance
    return last, NOBODY


@njit(cache=True, nogil=True)
def advance_greedy(
    stream: Any, queues: Any, unreported: Any, ticks: Any, loads: Any, first: int, last: int, due: float
) -> tuple[int, int]:
    """As `advance_round_robin`, to the least loaded; ticks int64[n, k] or, the same for all instances, int64[n, 1]."""
    per_instance = np.int64(ticks.shape[1] > 1)
    for i in range(first, last):
        if i * stream.interval >= due:
            return i, NOBODY
        instance = least_loaded(loads)
        loads[instance] += ticks[stream.items[i], instance * per_instance]
        _execute(stream, queues, i, instance)
        unreported.tuples[instance] += 1
        if unreported.tuples[instance] == unreported.limits[instance]:
            return i + 1, instance
    return last, NOBODY


@njit(cache=True, nogil=True)
def advance_earliest_finish(
    stream: Any, queues: Any, unreported: Any, estimates: Any, first: int, due: float
) -> tuple[int, int]:
    """As `advance_round_robin`, to the instance done first; instances also report by drift."""
    for i in range(first, len(stream.items)):
        now = i * stream.interval
        if now >= due:
            return i, NOBODY
        cost = estimates.costs[stream.items[i]]
        instance = earliest(estimates.finish, estimates.slowness, cost, now)
        expected = cost * estimates.slowness[instance]
        estimates.finish[instance] = max(estimates.finish[instance], now) + expected
        estimates.sent[instance] += expected
        estimates.carried[i] = estimates.sent[instance]
        seconds = _execute(stream, queues, i, instance)
        unreported.tuples[instance] += 1
        unreported.drift[instance] += seconds - expected
        under_way = queues.squares[instance] / queues.busy[instance]
        drifted = abs(unreported.drift[instance]) > unreported.tolerated * under_way
        if drifted or unreported.tuples[instance] == unreported.limits[instance]:
            return i + 1, instance
    return len(stream.items), NOBODY
