"""The chart's values, its schema of them and its README are of one mind. (tests/kubernetes/test_chart.py renders it.)"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "streamtopology"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
# Helm hands it to every chart of a release: others have further values in it.
OF_HELM = {"global"}


@pytest.fixture(scope="module")
def chart_reference() -> ModuleType:
    path = ROOT / "scripts" / "chart_reference.py"
    spec = util.spec_from_file_location("chart_reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules["chart_reference"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def of_schema(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Paths of the values that the schema names; below an object that takes any key there are none."""
    for name, inner in schema.get("properties", {}).items():
        below = list(of_schema(inner, f"{path}{name}."))
        yield from below or [f"{path}{name}"]


def of_values(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, value in values.items():
        inner = schema.get("properties", {}).get(name, {})
        if isinstance(value, dict) and inner.get("properties"):
            yield from of_values(value, inner, f"{path}{name}.")
        else:
            yield f"{path}{name}"


def test_schema_and_values_name_the_same():
    without_default = {"strategy.type", "strategy.rollingUpdate", "resources.claims"}  # of Kubernetes
    schema = set(of_schema(SCHEMA)) - without_default
    assert schema == set(of_values(VALUES, SCHEMA))


def test_no_unknown_value_passes_the_schema():
    open_objects = [name for name, inner in SCHEMA["properties"].items() if "properties" in inner and _open(inner)]
    assert set(open_objects) == OF_HELM
    assert not _open(SCHEMA)


def _open(schema: dict[str, Any]) -> bool:
    return schema.get("additionalProperties") is not False


def test_every_value_has_a_comment(chart_reference: ModuleType):
    documented = {value.path for value in chart_reference.documented((CHART / "values.yaml").read_text())}
    bare = [path for path in of_values(VALUES, SCHEMA) if not any(f"{path}.".startswith(f"{one}.") for one in documented)]
    assert bare == []


def test_readme_of_the_chart_is_current(chart_reference: ModuleType):
    assert (CHART / "README.md").read_text() == chart_reference.readme(), "run `make reference`"


def test_defaults_are_read_at_the_paths_of_their_comments(chart_reference: ModuleType):
    text = "a:\n  # -- Of b,\n  # in two lines.\n  b: {c: 1}\n# not documented\nd: 2\n# -- Of e.\ne: []\n"
    found = [(value.path, value.comment, value.default) for value in chart_reference.documented(text)]
    assert found == [("a.b", "Of b, in two lines.", {"c": 1}), ("e", "Of e.", [])]
