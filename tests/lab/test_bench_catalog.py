"""The benchmarks that the command lists are those that there are, with the options that they take."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest

from streamtopology.lab import bench
from streamtopology.lab.bench.catalog import BENCHMARKS, OPTIONS


@pytest.mark.parametrize("name", BENCHMARKS)
def test_options_and_defaults_are_those_of_the_benchmark(name: str):
    parameters = inspect.signature(importlib.import_module(f"streamtopology.lab.bench.{name}").run).parameters
    taken = {option: parameter.default for option, parameter in parameters.items() if option in OPTIONS}
    assert taken == BENCHMARKS[name].options


def test_every_benchmark_is_listed():
    modules = [path for path in Path(bench.__path__[0]).glob("*.py") if "\ndef run(" in path.read_text()]
    assert {path.stem for path in modules} == BENCHMARKS.keys()
