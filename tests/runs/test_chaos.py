"""A short chaos run with a fixed seed: everything is killed once, and every row counts once."""

from __future__ import annotations

import pytest

from streamtopology.lab.bench.chaos import CHANGES, KILLS, rows_of, run, schedule

pytestmark = pytest.mark.timeout(540)

SEED, KILLED = 19, 4


def test_a_seed_is_a_schedule() -> None:
    events = schedule(7, 60)
    assert events == schedule(7, 60) != schedule(8, 60)
    kinds = [event.what for event in events if event.what not in CHANGES]
    assert len(kinds) == 60
    assert {what: kinds.count(what) for what in KILLS} == {what: 4 * weight for what, weight in KILLS.items()}
    assert set(CHANGES) <= {event.what for event in events}
    assert rows_of(7, 3).equals(rows_of(7, 3))
    assert not rows_of(7, 3).equals(rows_of(8, 3))


@pytest.mark.parametrize("real_time", [False, True])
def test_every_row_counts_once_under_random_kills(real_time: bool) -> None:
    result = run(runs=1, seed=SEED, kills=KILLED, real_time=real_time)
    assert result["check"] == {"lost": 0, "duplicated": 0}
    killed = {row["case"] for row in result["results"] if row["case"].startswith("killed")}
    assert {"killed: driver", "killed: executor", "killed: python"} <= killed
