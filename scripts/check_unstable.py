"""Check the tests marked unstable: at most ten, each with a symptom and a date, none for more than 14 days (CONTRIBUTING.md).

Exit codes: 0 no finding, 1 findings. Standard library only.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST = 10
LONGEST_DAYS = 14


@dataclass(frozen=True)
class Unstable:
    """One mark, `@pytest.mark.unstable("symptom", since="2026-11-25")`; None: not given, or not a text."""

    place: str
    symptom: str | None
    since: str | None


def marks(path: str, text: str) -> Iterator[Unstable]:
    """The unstable marks of a test file, with parentheses or without."""
    tree = ast.parse(text)
    called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "unstable" and ast.unparse(node.value).endswith("mark"):
            call = called.get(id(node))
            symptom = _text(call.args[0]) if call and call.args else None
            since = next((_text(word.value) for word in call.keywords if word.arg == "since"), None) if call else None
            yield Unstable(f"{path}:{node.lineno}", symptom, since)


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def findings(found: list[Unstable], today: date) -> Iterator[str]:
    """Yield a line for each thing that is wrong with them."""
    if len(found) > MOST:
        yield f"{len(found)} tests are marked unstable, at most {MOST} may be: mend one first"
    for mark in found:
        if not mark.symptom or not mark.since:
            yield f'{mark.place}: say why and since when: @pytest.mark.unstable("symptom", since="{today}")'
            continue
        try:
            days = (today - date.fromisoformat(mark.since)).days
        except ValueError:
            yield f"{mark.place}: since={mark.since!r} is no date like {today}"
            continue
        if not -1 <= days <= LONGEST_DAYS:  # today may be tomorrow elsewhere
            yield f"{mark.place}: unstable for {days} days, at most {LONGEST_DAYS}: mend it or take it out ({mark.symptom})"


def main() -> int:
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    found = [mark for file in files for mark in marks(str(file.relative_to(ROOT)), file.read_text(encoding="utf-8"))]
    lines = list(findings(found, datetime.now(UTC).date()))
    print("\n".join(lines) if lines else f"{len(found)} of at most {MOST} tests are marked unstable")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
