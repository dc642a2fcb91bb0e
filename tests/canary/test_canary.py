"""The canary: lives of a data plane with a known fault, which must be red. `make test-long` fails where this passes.

A tier that is green although something is wrong looks like one that is green because nothing is wrong. This test takes
the way of all others (command, pytest, result file, count); when it is not counted as failed, that way is broken.
"""

from __future__ import annotations

from pathlib import Path

from support.lives import play

MUTANT = Path(__file__).parents[1] / "mutants" / "offsets-off-by-one.toml"


def test_lives_with_a_known_fault_lose_and_repeat_nothing() -> None:
    play("--seed", "4315", "--histories", "3", "--mutant", str(MUTANT))
