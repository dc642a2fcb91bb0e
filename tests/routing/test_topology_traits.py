"""The declared traits of the built-ins are those of the classes that do the work."""

from __future__ import annotations

from streamtopology.jobs.operators import BUILTINS as CLASSES
from streamtopology.topology import BUILTINS


def test_the_same_builtins_are_declared_and_implemented() -> None:
    assert set(BUILTINS) == set(CLASSES)


def test_declared_combinable_operators_can_combine() -> None:
    assert {name: traits.combinable for name, traits in BUILTINS.items()} == {
        name: kind.combinable for name, kind in CLASSES.items()
    }
