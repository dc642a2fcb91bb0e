"""Places in Python code that compare a text written for people: those are rendered at the edge, and no code reads them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

# Last words of names that hold nothing but such a text: no literal is compared with them.
REASONS = ("reason", "why", "verdict", "message", "sentence")
# Last words of names that hold any text, also a file's: a literal of several words is not compared with them.
TEXTS = ("text", "line", "problem", "detail", "str")
_METHODS = {"startswith", "endswith", "removeprefix", "removesuffix", "split", "partition", "find", "index", "count"}
_PASS_ON = {"lower", "upper", "strip", "lstrip", "rstrip", "casefold", "splitlines"}
_SEVERAL_WORDS = re.compile(r"[A-Za-z]{2}[\w'.,:]* | [A-Za-z]{2}")


def compared_texts(source: str, *, of_tests: bool = False) -> Iterator[tuple[int, str]]:
    """Yield line and code of each comparison of such a text with a literal.

    Tests may assert what is printed, and read logs and pages: `of_tests` leaves out what is in an `assert`, and `TEXTS`.
    """
    tree = ast.parse(source)
    literals = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant | ast.Tuple)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in _nodes(tree, not of_tests):
        for text, literal in _comparisons(node):
            if isinstance(literal, ast.Name):
                literal = literals.get(literal.id)
            if literal is not None and _is_compared(
                _last_word(text), literal, node, REASONS if of_tests else (*REASONS, *TEXTS)
            ):
                yield node.lineno, ast.unparse(node)


def _nodes(tree: ast.AST, asserts: bool) -> Iterator[ast.expr]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Assert) and not asserts:
            continue
        if isinstance(node, ast.expr):
            yield node
        yield from _nodes(node, asserts)


def _comparisons(node: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield what is compared at `node`: an expression, and the other, which may be a literal."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        called, owner = node.func.attr, node.func.value
        if called in _METHODS and node.args:
            yield owner, node.args[0]
        if called in ("match", "search", "fullmatch") and ast.unparse(owner) == "re" and len(node.args) > 1:
            yield node.args[1], node.args[0]
    elif isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        for left, right in pairwise(sides):
            yield from ((left, right), (right, left))


def _is_compared(word: str, literal: ast.expr, node: ast.expr, watched: tuple[str, ...]) -> bool:
    texts = list(_texts_of(literal))
    several = any(_SEVERAL_WORDS.search(text) for text in texts)
    if word.endswith(REASONS):
        part = not isinstance(node, ast.Compare) or (isinstance(node.ops[0], ast.In | ast.NotIn) and literal is node.left)
        return any(text.strip() for text in texts) if part else several
    return several and word.removesuffix("s").endswith(watched)


def _texts_of(literal: ast.expr) -> Iterator[str]:
    """Yield the texts in a literal: a string, an f-string, a tuple, list or set of them."""
    if isinstance(literal, ast.Constant) and isinstance(literal.value, str):
        yield literal.value
    elif isinstance(literal, ast.JoinedStr):
        yield "0".join(part.value for part in literal.values if isinstance(part, ast.Constant))
    elif isinstance(literal, ast.Tuple | ast.List | ast.Set):
        for element in literal.elts:
            yield from _texts_of(element)


def _last_word(text: ast.expr) -> str:
    """The name that ends `text`: `problem` for `found.problem.lower()`, `why` for `status["why"]`, `str` for `str(error)`."""
    match text:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(slice=ast.Constant(value=str(key))):
            return key
        case ast.Subscript(value=inner) | ast.NamedExpr(target=inner) | ast.BoolOp(values=[inner, *_]):
            return _last_word(inner)
        case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in _PASS_ON:
            return _last_word(inner)
        case ast.Call(func=ast.Name(id="str")):
            return "str"
    return ""
