"""`streamtopology.api`: what users' operators import, and what they hear when they import what is not there."""

from __future__ import annotations

import ast
import doctest
import importlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from streamtopology import api
from streamtopology.jobs.operators import LoadError, load

ROOT = Path(__file__).parents[2]
# A grouping is no operator: it stands on routing, which is not held as the API is (docs/guide/own-grouping.md).
GROUPING = ROOT / "examples/own-grouping"
EXAMPLES = [path for path in (ROOT / "examples").rglob("*.py") if GROUPING not in path.parents]
OWN = [*EXAMPLES, *(ROOT / "tests/node/code").glob("*.py")]
# Operators of one's own, and `Topology`.
PUBLIC = {"streamtopology", "streamtopology.api"}
OTHER_PAGES = (ROOT / "docs/guide/own-grouping.md",)
PAGES = [
    ROOT / "README.md",
    *(page for page in (ROOT / "docs").rglob("*.md") if "decisions" not in page.parts and page not in OTHER_PAGES),
]


def project_imports(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("streamtopology"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("streamtopology"):
            yield str(node.module)


def code_blocks(page: Path) -> list[str]:
    return [block.split("```")[0] for block in page.read_text().split("```python\n")[1:]]


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_examples_import_only_the_api(path: Path) -> None:
    assert set(project_imports(path.read_text())) <= PUBLIC


def test_documented_code_imports_only_the_api() -> None:
    imported = [name for page in PAGES for block in code_blocks(page) for name in project_imports(block)]
    assert set(imported) == PUBLIC


def test_every_name_of_the_api_is_documented() -> None:
    without_example = {name for name in api.__all__ if ">>>" not in (getattr(api, name).__doc__ or "")}
    assert without_example == {"KeyTypeError", "Output", "SetAside", "StateError", "TupleState"}


@pytest.mark.parametrize("module", sorted({getattr(api, name).__module__ for name in api.__all__ if name != "Output"}))
def test_examples_in_docstrings_hold(module: str) -> None:
    names = {**vars(api), "np": np, "pa": pa}
    found = doctest.testmod(importlib.import_module(module), extraglobs=names, optionflags=doctest.ELLIPSIS)
    assert found.attempted
    assert not found.failed


def test_imports_of_missing_internals_name_the_api(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("")
    (tmp_path / "mine.py").write_text("from streamtopology.jobs.work import burn\n")
    with pytest.raises(LoadError, match=r"does not have \(No module named 'streamtopology.jobs.work'\).*streamtopology\.api"):
        load("mine.py:Mine", tmp_path)
    (tmp_path / "mine.py").write_text("from streamtopology.api import Operatr\n")
    with pytest.raises(LoadError, match=r"cannot import name 'Operatr'.*streamtopology\.api"):
        load("mine.py:Mine", tmp_path)


def test_run_strings_of_moved_modules_name_the_short_names(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"no module streamtopology\.jobs\.counting; .* by its short name, such as count"):
        load("streamtopology.jobs.counting:Count", tmp_path)
