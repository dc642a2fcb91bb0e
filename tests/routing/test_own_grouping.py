"""Policies of other packages: installed, named by a manifest, routed by; and every defect of theirs names the package."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "examples" / "own-grouping"
PAGE = (ROOT / "docs" / "guide" / "own-grouping.md").read_text(encoding="utf-8")

_JUDGE = """
import json, sys
from streamtopology.topology import ManifestError, parse

operator = {"name": "passing", "inputs": ["lines"], "run": "map", "with": {"select": ["value"]}, "parallelism": 3}
manifest = {
    "apiVersion": "streamtopology.dev/v1alpha1", "kind": "StreamTopology", "metadata": {"name": "t"},
    "spec": {
        "sources": [{"name": "lines", "format": "text", "options": {"path": "x"}}],
        "operators": [{**operator, "grouping": json.loads(sys.argv[1])}],
        "sinks": [{"name": "out", "input": "passing", "format": "memory"}],
        "executors": [{"name": "any", "replicas": 1, "cpu": 1}],
    },
}
try:
    print(parse(manifest).operators[0].grouping.policy)
except ManifestError as refused:
    print(refused)
assert "numba" not in sys.modules
"""

_ROUTE = """
import numpy as np
from streamtopology.routing.groupings import make_chooser
from streamtopology.topology.groupings import get

options = get("blocks").check_options({"rows": 4, "capacities": [1, 1, 0, 2]})
chooser = make_chooser("blocks", np.arange(4, dtype=np.int32), np.zeros(4), 7, options)
print(*[instance for n in (3, 400, 397, 0) for instance in chooser.choose(None, n).tolist()])
"""


def installed(folder: Path, name: str, points: dict[str, str], code: str = "") -> Path:
    """A folder for the path on which a package is installed, with these entry points and its one module."""
    about = folder / name / f"{name.replace('-', '_')}-1.0.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0.0\n", encoding="utf-8")
    lines = ["[streamtopology.groupings]", *(f"{policy} = {where}" for policy, where in points.items())]
    (about / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    (folder / name / f"{name.replace('-', '_')}_code.py").write_text(code, encoding="utf-8")
    return folder / name


def answer(script: str, *arguments: str, paths: list[Path]) -> str:
    """The output of a Python with these folders on its path."""
    before = f"import sys; sys.path[:0] = {[str(path) for path in paths]!r}\n"
    done = subprocess.run([sys.executable, "-c", before + script, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def judged(policy: str, *paths: Path, **options: object) -> str:
    return answer(_JUDGE, json.dumps({"policy": policy, "options": options}), paths=list(paths))


@pytest.fixture
def example(tmp_path: Path) -> list[Path]:
    """The path with the package of the documentation."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = project["entry-points"]["streamtopology.groupings"]
    return [PACKAGE, installed(tmp_path, project["name"], points)]


def test_a_manifest_names_the_policy_of_an_installed_package(example: list[Path]) -> None:
    assert judged("blocks", *example, rows=32) == "blocks\n"
    refused = judged("blocks", *example, rows=0, size=1)
    assert "options.rows: found 0" in refused
    assert "options.size: is no option of the grouping 'blocks'; allowed: rows, capacities" in refused


def test_tuples_are_routed_by_the_policy_of_an_installed_package(example: list[Path]) -> None:
    routed = [int(instance) for instance in answer(_ROUTE, paths=example).split()]
    blocks = [routed[start : start + 4] for start in range(0, 800, 4)]
    assert all(len(set(block)) == 1 for block in blocks)
    shares = [sum(block[0] == instance for block in blocks) / 200 for instance in range(4)]
    assert shares == pytest.approx([0.25, 0.25, 0, 0.5], abs=0.02)


def test_an_unknown_policy_is_refused_with_those_installed(example: list[Path]) -> None:
    assert "found 'block', installed: auto, shuffle, fields, " in judged("block", *example)
    assert "blocks" in judged("block", *example).partition("; did you mean")[0]
    assert "did you mean 'blocks'?" in judged("block", *example)
    assert "blocks" not in judged("block")


@pytest.mark.parametrize(
    ("points", "code", "sentence"),
    [
        ({"mine": "no_such_module:SPEC"}, "", "cannot be loaded from 'no_such_module:SPEC' (ModuleNotFoundError: No module"),
        ({"mine": "their_package_code:SPEC"}, "", "cannot be loaded from 'their_package_code:SPEC' (AttributeError: module"),
        ({"mine": "their_package_code:SPEC"}, "1 / 0", "(ZeroDivisionError: division by zero); repair or uninstall it"),
        ({"mine": "their_package_code:SPEC"}, "SPEC = 3", "found a int in their_package_code:SPEC, expected its GroupingSpec"),
        (
            {"mine": "their_package_code:SPEC"},
            "from streamtopology.topology.groupings import BUILT_IN\nSPEC = BUILT_IN['fields']",
            "found the GroupingSpec of 'fields' in their_package_code:SPEC, expected its GroupingSpec",
        ),
        (
            {"mine": "their_package_code:SPEC"},
            "from streamtopology.topology.groupings import GroupingSpec as S\nSPEC = S('mine', 'chooser', True, True, '')",
            "grouping 'mine': one of kind 'chooser' needs a chooser",
        ),
    ],
)
def test_a_policy_that_cannot_be_used_is_refused_with_its_package(
    tmp_path: Path, points: dict[str, str], code: str, sentence: str
) -> None:
    theirs = installed(tmp_path, "their-package", points, code)
    refused = judged("mine", theirs)
    assert "spec.operators[0].grouping.policy: the policy 'mine' of the package their-package" in refused
    assert sentence in refused
    assert judged("shuffle", theirs) == "shuffle\n"  # which nobody has to pay for who names another
    assert "mine" not in judged("min", theirs)  # is none of those installed


@pytest.mark.parametrize(
    ("chooser", "sentence"),
    [
        ("their_package_code:Nothing", "a grouping's code cannot be loaded from 'their_package_code:Nothing' (AttributeError"),
        ("their_package_code:S", "the grouping 'mine': their_package_code:S is no class that derives from Chooser"),
    ],
)
def test_a_policy_whose_code_cannot_be_used_is_refused(tmp_path: Path, chooser: str, sentence: str) -> None:
    code = "from streamtopology.topology.groupings import GroupingSpec as S\n"
    code += f"SPEC = S('mine', 'chooser', True, True, '', chooser={chooser!r})"
    theirs = installed(tmp_path, "their-package", {"mine": "their_package_code:SPEC"}, code)
    script = """
from streamtopology.routing.groupings import learning_of
from streamtopology.topology.groupings import GroupingError

try:
    learning_of("mine")
except GroupingError as refused:
    print(refused)
"""
    assert sentence in answer(script, paths=[theirs])


def test_a_built_in_policy_has_one_owner(tmp_path: Path) -> None:
    theirs = installed(tmp_path, "their-package", {"shuffle": "their_package_code:SPEC"})
    assert "the package their-package adds a policy 'shuffle', which is built in; rename" in judged("shuffle", theirs)


def test_two_packages_with_one_policy_are_refused(tmp_path: Path) -> None:
    both = [installed(tmp_path, name, {"mine": "their_package_code:SPEC"}) for name in ("b-package", "a-package")]
    refused = judged("mine", *both)
    assert "the package a-package and the package b-package add a policy 'mine' each; uninstall all of them but one" in refused


def test_a_policy_has_a_name_that_the_crd_takes(tmp_path: Path) -> None:
    code = "from streamtopology.topology.groupings import GroupingSpec as S\nSPEC = S('My_One', 'table', False, True, '')"
    theirs = installed(tmp_path, "their-package", {"My_One": "their_package_code:SPEC"}, code)
    assert "found the name 'My_One', expected a name of lower-case letters" in judged("My_One", theirs)


@pytest.mark.parametrize("file", ["pyproject.toml", "blocks/__init__.py", "blocks/chooser.py"])
def test_the_page_shows_the_example(file: str) -> None:
    language = "toml" if file.endswith(".toml") else "python"
    text = (PACKAGE / file).read_text(encoding="utf-8")
    assert f"```{language}\n{text}```" in PAGE


def test_the_test_on_the_page_passes(example: list[Path]) -> None:
    shown = PAGE.partition("## Test it without Spark")[2].partition("```python\n")[2].partition("```")[0]
    assert "make_chooser" in shown
    assert answer(shown, paths=example) == ""
