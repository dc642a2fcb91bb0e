"""The shape of the code: functions fit a screen, modules fit in a head, heads of blocks are formatted, a class's
name says which one it is, no test mocks."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("routing", "spark-jobs", "operator", "lab")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package / "src").rglob("*.py"))
PYTHON = [*SOURCES, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "scripts").glob("*.py"))]
LONGEST_FUNCTION = 60
LONGEST_MODULE = 600
# Function -> the reason for which it is longer.
LONG = {"upsert": "the kernel that takes every row: a helper for a new key would need all of its 19 arrays and counters"}
# The parameters of its kernels are a table: each row is a row of their types.
KERNELS = ROOT / "spark-jobs/src/streamtopology/jobs/state/kernels.py"
# Where a head may be unformatted. Most files have none of them, and need not be read word by word.
_FORMAT_KEPT = re.compile(r":[ \t]*# fmt: skip")


def long_functions(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > LONGEST_FUNCTION:
                yield node.name


def unformatted_heads(text: str) -> Iterator[int]:
    """The lines at which `# fmt: skip` keeps the format of a head: of a function, a class, or a block."""
    if not _FORMAT_KEPT.search(text):
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        before = token.line[: token.start[1]].rstrip()
        if token.type == tokenize.COMMENT and token.string == "# fmt: skip" and before.endswith(":"):
            yield token.start[0]


def test_functions_fit_a_screen() -> None:
    assert {name for path in SOURCES for name in long_functions(path.read_text(encoding="utf-8"))} == LONG.keys()


def test_modules_fit_in_a_head() -> None:
    lines = {path: path.read_text(encoding="utf-8").count("\n") for path in SOURCES}
    assert {path: count for path, count in lines.items() if count > LONGEST_MODULE} == {}


def test_no_public_class_has_the_name_of_another() -> None:
    places: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and "lab" not in path.relative_to(ROOT).parts:
                places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_a_script_begins_when_all_of_it_is_there() -> None:
    """What stands below `if __name__ == "__main__"` is not defined yet as it runs."""
    for path in PYTHON:
        text = path.read_text(encoding="utf-8")
        if "__main__" in text:
            blocks = [ast.unparse(node.test) for node in ast.parse(text).body[:-1] if isinstance(node, ast.If)]
            assert "__name__ == '__main__'" not in blocks, path


def test_heads_of_functions_and_blocks_are_formatted() -> None:
    found = {path: list(unformatted_heads(path.read_text(encoding="utf-8"))) for path in PYTHON if path != KERNELS}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_no_test_mocks() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")}
    imported = {
        (path, name)
        for path, text in texts.items()
        if "mock" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (getattr(node, "module", None) or "", *(alias.name for alias in node.names))
    }
    assert {path for path, name in imported if "mock" in name} == set()


def test_long_function_and_unformatted_head_are_found() -> None:
    body = "    x = 1\n" * LONGEST_FUNCTION
    assert list(long_functions(f"def long():\n{body}def short(): ...\n")) == ["long"]
    assert list(unformatted_heads("def f(\n    a, b,\n):  # fmt: skip\n    x = [\n        1,\n    ]  # fmt: skip\n")) == [3]
