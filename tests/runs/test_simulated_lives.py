"""Simulated lives (docs/internals/testing.md) from the commit's own seed: ten minutes of CPU."""

from __future__ import annotations

import pytest
from support.lives import play
from support.seeds import seed_of_commit


@pytest.mark.long
@pytest.mark.timeout(3600)  # minutes of CPU take longer along with other tests
def test_ten_minutes_of_lives_from_a_new_seed_lose_and_repeat_nothing() -> None:
    play("--seed", str(seed_of_commit()), "--hours", "0.17")
