"""POSG's scheduler machine, step by step as in the paper's figure 3."""

from __future__ import annotations

import numpy as np
import pytest

from streamtopology.lab.reproduce.experiments.posg.scheduler_machine import PosgScheduler, SchedulerState, SyncReply
from streamtopology.routing.groupings.posg.greedy import packed, to_seconds
from streamtopology.routing.load.sketches.cost_sketch import CostSketch

EMPTY = CostSketch.empty(2, 64)


def test_the_scheduler_goes_round_the_papers_four_states() -> None:
    scheduler = PosgScheduler(2)
    scheduler.receive_pair(0, EMPTY)  # A
    assert scheduler.state is SchedulerState.ROUND_ROBIN
    scheduler.receive_pair(1, EMPTY)  # B
    assert scheduler.state is SchedulerState.SEND_ALL
    first = scheduler.request(0, 2.0)
    assert (first.estimated_seconds, scheduler.state) == (2.0, SchedulerState.SEND_ALL)
    second = scheduler.request(1, 3.0)
    assert scheduler.state is SchedulerState.WAIT_ALL  # C
    scheduler.receive_reply(0, first.answered(busy_seconds=10.0))  # D
    assert scheduler.state is SchedulerState.WAIT_ALL
    scheduler.loads[0] += packed(np.array([1.5]))[0]  # scheduling continues while replies are under way
    scheduler.receive_reply(1, second.answered(busy_seconds=2.5))  # E
    assert scheduler.state is SchedulerState.RUN
    assert to_seconds(scheduler.loads).tolist() == pytest.approx([11.5, 2.5])
    scheduler.receive_pair(1, EMPTY)  # F
    assert scheduler.state is SchedulerState.SEND_ALL
    assert scheduler.messages == 5


def test_pair_during_a_wait_begins_an_epoch_and_voids_old_replies() -> None:
    scheduler = PosgScheduler(1)
    scheduler.receive_pair(0, EMPTY)
    late = scheduler.request(0, 1.0)
    scheduler.receive_pair(0, EMPTY)
    assert scheduler.state is SchedulerState.SEND_ALL
    scheduler.receive_reply(0, late.answered(100.0))
    assert to_seconds(scheduler.loads).tolist() == [1.0]
    scheduler.receive_reply(0, SyncReply(scheduler.epoch, 2.0))
    assert to_seconds(scheduler.loads).tolist() == [3.0]
