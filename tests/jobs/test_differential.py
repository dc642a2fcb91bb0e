"""Random topologies over random streams, under re-routings, rescalings, restarts and losses, compared with SQL.

A failing case is made small and written to build/differential. `--seed N` plays the case of that seed alone.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from support.differential.case import Case
from support.differential.draw import draw
from support.differential.play import differences
from support.differential.record import record
from support.differential.shrink import shrunk
from support.real_time import on_processes
from support.seeds import seed_of_commit

FOLDER = Path("build/differential")
# Cases of a test: about eight seconds.
EACH = 10
MANY = 60
FEW = 3


def play(seed: int, real_time: bool = False) -> None:
    """Play the case of a seed. AssertionError: it differs, and where to read about it."""

    def differ(case: Case) -> list[str]:
        with on_processes() if real_time else nullcontext() as processes:
            return differences(case, processes)

    case = draw(seed)
    if not differ(case):
        return
    small = shrunk(case, differ)
    found = differ(small)
    where = record(small, found, FOLDER)
    text = "\n  ".join(found)
    raise AssertionError(f"seed {seed} differs, in short:\n  {text}\nStory, manifest and rows: {where}; replay: --seed {seed}")


@pytest.mark.parametrize("part", range(4))
def test_sinks_hold_what_sql_gives_over_the_whole_input(part: int, request: pytest.FixtureRequest) -> None:
    given = request.config.getoption("--seed")
    for seed in range(part * EACH, (part + 1) * EACH) if given is None else [given]:
        play(seed)


def test_sinks_hold_what_sql_gives_over_the_whole_input_in_real_time(request: pytest.FixtureRequest) -> None:
    given = request.config.getoption("--seed")
    for seed in range(FEW) if given is None else [given]:
        play(seed, real_time=True)


@pytest.mark.parametrize("seed", [357535370941])  # a join whose key has the name that it gives another column
def test_case_that_was_red_stays_right(seed: int) -> None:
    play(seed)


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
def test_sinks_hold_what_sql_gives_for_new_seeds(part: int, request: pytest.FixtureRequest) -> None:
    given = request.config.getoption("--seed")
    first = seed_of_commit() + part * MANY
    print(f"seeds {first} to {first + MANY - 1}")
    for seed in range(first, first + MANY) if given is None else [given]:
        play(seed)
        if seed % 4 == 0:
            play(seed, real_time=True)
