"""The limit of events: a burst is posted, then one a minute, which says how many were not."""

from __future__ import annotations

from streamtopology.k8s.decide.steps import Event
from streamtopology.k8s.io.event_limit import BURST, REFILL_SECONDS, EventLimit
from streamtopology.k8s.io.queue import TopologyKey

FLOW, OTHER = TopologyKey("space", "flow"), TopologyKey("space", "other")


def test_burst_is_posted_and_then_one_in_each_interval_with_the_number_withheld() -> None:
    limit = EventLimit()
    posted = [limit.admits(FLOW, "ExecutorsMissing", 1000.0 + n / 10) for n in range(BURST + 10)]
    assert posted == [0] * BURST + [None] * 10
    later = 1000.0 + REFILL_SECONDS + 1
    assert limit.admits(FLOW, "ExecutorsMissing", later) == 10
    assert limit.admits(FLOW, "ExecutorsMissing", later) is None


def test_other_reasons_and_other_topologies_have_limits_of_their_own() -> None:
    limit = EventLimit()
    for _ in range(BURST + 1):
        limit.admits(FLOW, "ExecutorsMissing", 1000.0)
    assert limit.admits(FLOW, "NodeLost", 1000.0) == 0
    assert limit.admits(OTHER, "ExecutorsMissing", 1000.0) == 0
    limit.forget(FLOW)
    assert limit.admits(FLOW, "ExecutorsMissing", 1000.0) == 0, "a namesake begins with all of them"


def test_next_event_that_is_posted_says_how_many_like_it_were_withheld() -> None:
    limit, event = EventLimit(), Event("Warning", "ExecutorsMissing", "small-1 is missing")
    assert limit.admitted(FLOW, event, 1000.0) == event
    later = [limit.admitted(FLOW, event, 1000.0) for _ in range(BURST)]
    assert later == [*[event] * (BURST - 1), None]
    then = limit.admitted(FLOW, event, 1000.0 + REFILL_SECONDS)
    assert then is not None
    assert then.message == "small-1 is missing (1 more like it were only logged)"


def test_clock_that_goes_back_gives_nothing() -> None:
    limit = EventLimit()
    for _ in range(BURST):
        limit.admits(FLOW, "Rerouted", 1000.0)
    assert limit.admits(FLOW, "Rerouted", 0.0) is None
