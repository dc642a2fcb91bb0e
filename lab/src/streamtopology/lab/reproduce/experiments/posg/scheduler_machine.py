"""POSG's scheduler machine (Rivetti et al., section III-B, figure 3): its states and synchronisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import numpy.typing as npt

from streamtopology.routing.groupings.posg.greedy import Loads, packed, to_seconds, to_ticks
from streamtopology.routing.load.sketches.cost_sketch import CostSketch

Floats = npt.NDArray[np.float64]


class SchedulerState(Enum):
    ROUND_ROBIN = "round robin"
    SEND_ALL = "send all"
    WAIT_ALL = "wait all"
    RUN = "run"


@dataclass(frozen=True)
class SyncRequest:
    """A request that rides on a tuple: the scheduler's estimate of its instance's work once that tuple is executed."""

    epoch: int
    estimated_seconds: float

    def answered(self, busy_seconds: float) -> SyncReply:
        """Return the instance's reply, given its cumulated execution time including that tuple (C)."""
        return SyncReply(self.epoch, busy_seconds - self.estimated_seconds)


@dataclass(frozen=True)
class SyncReply:
    """`delta` = C - C-hat, seconds."""

    epoch: int
    delta: float


@dataclass(eq=False)
class PosgScheduler:
    """C-hat (`loads`, see greedy), the pairs of all k instances, and the four states.

    `merged` looks a tuple's cost up in the sum of all pairs instead of its instance's own: not in the paper, and only
    for instances of like speed. `messages` counts pairs received and replies; requests ride on tuples.
    """

    k: int
    merged: bool = False
    state: SchedulerState = SchedulerState.ROUND_ROBIN
    epoch: int = 0
    messages: int = 0
    loads: Loads = field(init=False)
    pairs: dict[int, CostSketch] = field(default_factory=dict[int, CostSketch])
    _asked: int = 0
    _deltas: dict[int, float] = field(default_factory=dict[int, float])

    def __post_init__(self) -> None:
        self.loads = packed(np.zeros(self.k))

    def receive_pair(self, position: int, pair: CostSketch) -> None:
        """An instance has sent F and W (A, B, F in figure 3)."""
        self.messages += 1
        self.pairs[position] = pair
        if len(self.pairs) == self.k:
            self.state = SchedulerState.SEND_ALL
            self.epoch += 1
            self._asked = 0
            self._deltas = {}

    def request(self, position: int, estimated_cost: float) -> SyncRequest:
        """In SEND_ALL: a tuple goes to `position`, in turn, and a request with it; after k of them it is WAIT_ALL (C)."""
        self.loads[position] += to_ticks(estimated_cost)
        self._asked += 1
        if self._asked == self.k:
            self.state = SchedulerState.WAIT_ALL
        return SyncRequest(self.epoch, float(to_seconds(self.loads)[position]))

    def receive_reply(self, position: int, reply: SyncReply) -> None:
        """D and E in figure 3: with the last reply of this epoch C-hat is corrected. Late ones of older epochs are not used."""
        self.messages += 1
        if reply.epoch != self.epoch:
            return
        self._deltas[position] = reply.delta
        if len(self._deltas) == self.k:
            self.loads = self.loads + to_ticks(self._in_order(self._deltas))
            self.state = SchedulerState.RUN

    def _in_order(self, by_position: Mapping[int, float]) -> Floats:
        return np.array([by_position[position] for position in range(self.k)])
