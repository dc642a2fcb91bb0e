"""`streamtopology.api`: what users' operators import, and what they hear when they import what it replaced."""

from __future__ import annotations

import ast
import doctest
import importlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import yaml
from support.stages import manifest

from streamtopology import api
from streamtopology.jobs.operators import LoadError, load
from streamtopology.jobs.operators.own_modules import former_names
from streamtopology.jobs.runtime.preflight import examine

ROOT = Path(__file__).parents[2]
OWN = [*(ROOT / "examples").rglob("*.py"), *(ROOT / "tests/node/code").glob("*.py")]
PAGES = [ROOT / "README.md", *(page for page in (ROOT / "docs").rglob("*.md") if "decisions" not in page.parts)]


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
    assert set(project_imports(path.read_text())) == {"streamtopology.api"}


def test_documented_code_imports_only_the_api() -> None:
    imported = [name for page in PAGES for block in code_blocks(page) for name in project_imports(block)]
    assert imported
    assert set(imported) == {"streamtopology.api"}


def test_every_name_of_the_api_is_documented() -> None:
    without_example = {name for name in api.__all__ if ">>>" not in (getattr(api, name).__doc__ or "")}
    assert without_example == {"KeyTypeError", "Output", "SetAside", "StateError", "TupleState"}


@pytest.mark.parametrize("module", sorted({getattr(api, name).__module__ for name in api.__all__ if name != "Output"}))
def test_examples_in_docstrings_hold(module: str) -> None:
    names = {**vars(api), "np": np, "pa": pa}
    found = doctest.testmod(importlib.import_module(module), extraglobs=names, optionflags=doctest.ELLIPSIS)
    assert found.attempted
    assert not found.failed


FORMER_MODULES = ["jobs.operators.base", "jobs.operators.options", "jobs.operators", "jobs.keys", "jobs.state"]
FORMER = """import numpy as np
from streamtopology.{module} import Field, Operator as Base, OptionError

class Mine(Base):
    fields = (Field("count", np.int64),)
    wrong = OptionError
"""


@pytest.mark.parametrize("module", FORMER_MODULES)
def test_file_of_a_former_release_is_read_as_from_the_api(module: str, tmp_path: Path) -> None:
    (tmp_path / "former.py").write_text(FORMER.format(module=module))
    mine = load("former.py:Mine", tmp_path)
    assert issubclass(mine, api.Operator)
    assert mine.fields == (api.Field("count", np.dtype(np.int64)),)
    assert former_names(tmp_path / "former.py") == [(2, f"streamtopology.{module}")]


def test_former_import_is_a_warning_of_validate(tmp_path: Path) -> None:
    (tmp_path / "former.py").write_text(FORMER.format(module="jobs.state"))
    own = {"name": "own", "inputs": ["s"], "run": "former.py:Mine", "grouping": {"policy": "fields", "key": "k"}}
    (tmp_path / "t.yaml").write_text(yaml.safe_dump({**manifest([own], {"s": "k BIGINT"})}))
    doubts = [str(doubt) for doubt in examine(tmp_path / "t.yaml").doubts]
    assert any("former.py, line 2 imports from streamtopology.jobs.state" in doubt for doubt in doubts), doubts


@pytest.mark.parametrize(
    "line", ["from streamtopology.jobs.operators import base", "import streamtopology.jobs.operators.options"]
)
def test_former_modules_are_refused_with_their_replacement(line: str, tmp_path: Path) -> None:
    (tmp_path / "former.py").write_text(f"import numpy as np\n{line}\n")
    with pytest.raises(LoadError, match=r"former\.py, line 2 imports streamtopology\.jobs.*import from streamtopology\.api"):
        load("former.py:Mine", tmp_path)


def test_former_imports_of_an_installed_module_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "former_installed.py").write_text("from streamtopology.jobs.state import Field\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(LoadError, match=r"import from streamtopology\.api"):
        load("former_installed:Mine", tmp_path)


def test_former_name_that_the_api_lacks_is_named(tmp_path: Path) -> None:
    (tmp_path / "former.py").write_text("from streamtopology.jobs.operators.base import iterations_for\n")
    with pytest.raises(LoadError, match=r"cannot import name 'iterations_for'.*streamtopology\.api"):
        load("former.py:Mine", tmp_path)


GUARDED = """
import typing
from typing import TYPE_CHECKING
try:
    from streamtopology.api import Operator
except ImportError:
    from streamtopology.jobs.operators.base import Operator
try:
    from streamtopology.api import Field
except (AttributeError, ModuleNotFoundError):
    from streamtopology.jobs.state import Field
if TYPE_CHECKING:
    from streamtopology.jobs.operators.base import Rows
if typing.TYPE_CHECKING:
    from streamtopology.jobs.keys import KeyColumns
class Mine(Operator):
    pass
"""


def test_file_for_this_version_and_the_one_before_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "both.py").write_text(GUARDED)
    assert load("both.py:Mine", tmp_path).__name__ == "Mine"


@pytest.mark.parametrize(
    "code",
    [
        "try:\n    import streamtopology.jobs.operators.base\nexcept ImportError:\n    pass",
        "try:\n    import numpy\nexcept ValueError:\n    import streamtopology.jobs.operators.base",
        "if TYPE_CHECKING:\n    pass\nelse:\n    import streamtopology.jobs.operators.base",
    ],
)
def test_former_import_that_runs_here_is_refused(code: str, tmp_path: Path) -> None:
    (tmp_path / "former.py").write_text(f"from typing import TYPE_CHECKING\n{code}\n")
    with pytest.raises(LoadError, match=r"is internal now; import from streamtopology\.api"):
        load("former.py:Mine", tmp_path)


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
