"""Simulated lives (docs/internals/testing.md) from the commit's own seed: ten minutes of CPU."""

from __future__ import annotations

import pytest
from support.lives import play
from support.seeds import seed_of_commit


@pytest.mark.long
@pytest.mark.timeout(3600)  # minutes of CPU take longer along with other tests
@pytest.mark.parametrize("how", [[], ["--real-time"]], ids=["Spark's jobs", "real time"])
def test_ten_minutes_of_lives_from_a_new_seed_lose_and_repeat_nothing(how: list[str]) -> None:
    play("--seed", str(seed_of_commit()), "--hours", "0.17", *how)
