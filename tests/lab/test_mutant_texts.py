"""Mutants quote the code that they change: each still fits it. tests/lab/test_mutants.py plays them."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from streamtopology.lab.faults.mutants import Mutant, MutantError

MUTANTS = {path.stem: Mutant.read(path) for path in sorted((Path(__file__).parents[1] / "mutants").glob("*.toml"))}


def test_there_are_more_than_twenty_mutants() -> None:
    assert len(MUTANTS) > 20


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_fits_the_code_and_changes_it(name: str) -> None:
    mutant = MUTANTS[name]
    spec = importlib.util.find_spec(mutant.module)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin).read_text(encoding="utf-8")
    changed = mutant.applied(source)
    compile(changed, mutant.module, "exec")
    assert changed != source


def test_a_mutant_that_no_longer_fits_is_named() -> None:
    mutant = next(iter(MUTANTS.values()))
    with pytest.raises(MutantError, match=f"mutant {mutant.name}: its text stands 0 times in {mutant.module}"):
        mutant.applied("x = 1\n")


@pytest.mark.parametrize("page", ["trust/guarantees.md", "internals/testing.md"])
def test_mutants_that_the_pages_name_exist(page: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z]+(?:-[a-z]+){2,})`", text))
    assert named
    assert named <= MUTANTS.keys()
