"""The exceptions of the project are one tree, and docs/reference/errors.md prints it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import streamtopology
from streamtopology.contract.errors import StreamTopologyError
from streamtopology.jobs.errors import RowFailed, WrongUse
from streamtopology.topology import ManifestError, Problem

PAGE = Path(__file__).parents[2] / "docs/reference/errors.md"
PLAIN = {
    "BlobCountError",  # a stage was built wrongly
    "MutantError",  # a mutant that tests the simulator does not fit the code
    "ProtocolError",  # a simulated protocol broke its promise
    "RemainsError",  # local.cleanup has the standard library alone; local.standalone raises it as ClusterError
    "StateError",  # an operator declares or uses its state in a way that cannot work
    "Stopped",  # control flow: the process is asked to end
}


@pytest.fixture(scope="module")
def modules() -> list[str]:
    names = [module.name for module in pkgutil.walk_packages(streamtopology.__path__, "streamtopology.")]
    for name in names:
        if not name.endswith("__main__"):
            importlib.import_module(name)
    return names


def test_page_prints_the_tree(modules: list[str]) -> None:
    _, printed, _ = PAGE.read_text().split("```\n", 2)
    assert printed.splitlines() == list(tree(StreamTopologyError))


def test_other_exceptions_are_programming_errors(modules: list[str]) -> None:
    outside = {
        kind.__name__
        for kind in below(Exception)
        if kind.__module__.startswith("streamtopology.") and not issubclass(kind, StreamTopologyError)
    }
    assert {name for name in outside if not name.startswith("_")} <= PLAIN


def test_usage_errors_exit_with_2_and_others_with_1() -> None:
    assert WrongUse("").exit_code == 2
    assert ManifestError([Problem("spec", "wrong")]).exit_code == 2
    assert RowFailed("source", 1, {}, "why").exit_code == 1


def tree(kind: type, depth: int = 0) -> Iterator[str]:
    """A line for each class, children in the order of their names below their parent."""
    yield f"{'  ' * depth}{kind.__name__}"
    ours = [child for child in kind.__subclasses__() if child.__module__.startswith("streamtopology.")]
    own = [child for child in ours if not child.__name__.startswith("_")]
    for child in sorted(own, key=lambda child: (child.__name__, child.__module__)):
        yield from tree(child, depth + 1)


def below(kind: type) -> Iterator[type]:
    for child in kind.__subclasses__():
        yield child
        yield from below(child)
