"""Every deletion in the product is in the table of docs/trust/deletions.md, with what proves that it is ours."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/trust/deletions.md"
SOURCES = sorted(
    path for package in ("routing", "spark-jobs", "operator", "lab") for path in (ROOT / package / "src").rglob("*.py")
)
VERBS = {"unlink", "rmtree", "rmdir", "removedirs", "delete", "delete_all"}
# The owners of keys, slots and elements of arrays: nothing of it is in storage.
IN_MEMORY = {"np", "state", "self", "self._index", "kernels"}
PLACE = re.compile(r"`([\w/]+\.py:[\w.]+)`")


def deletions(text: str) -> Iterator[str]:
    """The functions, with their classes, in which anything is deleted."""

    def below(node: ast.AST, names: tuple[str, ...]) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            is_named = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            yield from below(child, (*names, child.name) if is_named else names)
            if isinstance(child, ast.Call) and is_deletion(child.func):
                yield ".".join(names)

    return below(ast.parse(text), ())


def is_deletion(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id in VERBS
    if not isinstance(function, ast.Attribute):
        return False
    receiver = ast.unparse(function.value)
    return (function.attr in VERBS and receiver not in IN_MEMORY) or (function.attr == "remove" and receiver == "os")


def in_code() -> set[str]:
    return {
        f"{path.as_posix().rpartition('/src/streamtopology/')[2]}:{function}"
        for path in SOURCES
        for function in deletions(path.read_text(encoding="utf-8"))
    }


def in_table() -> list[str]:
    rows = [line.split("|") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert all(len(row) == 5 and row[2].strip() and row[3].strip() for row in rows)
    return [place for row in rows for place in PLACE.findall(row[1])]


def test_each_deletion_has_its_proof_in_the_docs() -> None:
    listed = in_table()
    assert sorted(listed) == sorted(in_code())


def test_deletion_in_any_form_is_found() -> None:
    text = """
class A:
    def b(self):
        self._store.delete("x")
def c():
    os.remove("y")
    shutil.rmtree("z")
async def d(api):
    await api.delete(1)
def e(state):
    state.delete(1)
    names.remove(2)
def f():
    unlink("x")
"""
    assert list(deletions(text)) == ["A.b", "c", "c", "d", "f"]
