"""What links take is told apart from slow instances and from clocks that differ."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtopology.jobs.realtime.link_waits import DRIFT, LEAST_BYTES, LinkWaits, Way

LARGE = 10 * LEAST_BYTES
# Of the senders' clocks against ours.
OFFSETS = {"a": 0.0, "b": -5000.0, "c": 1e6}


def way(sender: str, sent: float, took: float, size: int = LARGE) -> Way:
    """One that is sent at this time of ours."""
    return Way(sender, sent + OFFSETS[sender], sent + took, size)


def small_ones(links: LinkWaits) -> None:
    """One from each, in next to no time."""
    assert links.seconds([way(sender, 0.0, 0.001, 100) for sender in OFFSETS], 0.0) is None


def test_the_slowest_way_is_what_a_stage_waits_for() -> None:
    links = LinkWaits()
    small_ones(links)
    ways = [way("a", 10.0, 0.201), way("b", 10.0, 0.401), way("c", 10.0, 0.301)]
    assert links.seconds(ways, 10.0) == pytest.approx(0.4, abs=0.001)


def test_a_slow_instance_is_no_slow_link() -> None:
    links = LinkWaits()
    small_ones(links)
    assert links.seconds([way("a", 10.0, 0.001), way("b", 12.0, 0.001)], 10.0) == pytest.approx(0.0, abs=1e-6)


def test_who_was_busy_meanwhile_has_not_waited() -> None:
    links = LinkWaits()
    small_ones(links)
    assert links.seconds([way("a", 10.0, 2.001)], 11.9) == pytest.approx(0.101, abs=0.001)


def test_small_envelopes_tell_nothing_of_rows() -> None:
    links = LinkWaits()
    small_ones(links)
    assert links.seconds([way("a", 10.0, 0.5, LEAST_BYTES - 1)], 10.0) is None
    assert links.seconds([], 10.0) is None


def test_another_worker_at_the_place_of_one_has_another_clock() -> None:
    links = LinkWaits()
    small_ones(links)
    links.forget_others(["b"])
    assert links.seconds([Way("a", 500.0, 20.0, LARGE)], 10.0) is None, "nobody knows how long its quickest takes"


def test_a_link_that_stays_slow_is_not_taken_for_the_usual_one() -> None:
    links = LinkWaits()
    small_ones(links)
    found = [links.seconds([way("b", at, 0.401)], at) for at in range(10, 1010, 5)]
    assert found[0] == pytest.approx(0.4, abs=0.001)
    assert found[-1] == pytest.approx(0.4 - 1000 * DRIFT, abs=0.002)


def test_clocks_that_part_slowly_are_no_slow_links() -> None:
    links = LinkWaits()
    small_ones(links)
    for at in range(10, 10_000, 100):
        drifted = Way("a", at - 0.5 * DRIFT * at, at + 0.001, LARGE)
        assert links.seconds([drifted], at - 10) == pytest.approx(0.0, abs=1e-6)


@given(
    offset=st.floats(-1e6, 1e6),
    takes=st.lists(st.floats(0.0, 5.0), min_size=1, max_size=100),
    waits=st.floats(0.0, 5.0),
)
def test_it_is_never_more_than_was_waited_nor_than_the_way_took(offset: float, takes: list[float], waits: float) -> None:
    links = LinkWaits()
    links.seconds([Way("a", offset, 0.0, 1)], 0.0)
    for number, took in enumerate(takes):
        sent, came = number * 10.0, number * 10.0 + took
        found = links.seconds([Way("a", sent + offset, came, LARGE)], came - waits)
        assert found is not None
        drift = DRIFT * 10.0 * (number + 1)
        assert min(took - drift, waits) - 1e-6 <= found <= min(took, waits) + 1e-6
