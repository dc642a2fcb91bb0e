"""`scripts/check_unstable.py`: unstable tests are few, say why, and do not stay."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path
from types import ModuleType

import pytest
from support.scripts import load_script

ROOT = Path(__file__).parents[1]
TODAY = date(2026, 11, 25)


@pytest.fixture(scope="module")
def unstable() -> ModuleType:
    return load_script("check_unstable")


def findings(unstable: ModuleType, text: str) -> list[str]:
    return list(unstable.findings(list(unstable.marks("tests/test_x.py", text)), TODAY))


@pytest.mark.parametrize(
    ("mark", "found"),
    [
        ('@pytest.mark.unstable("port taken", since="2026-11-11")', []),
        (
            '@pytest.mark.unstable("port taken", since="2026-11-10")',
            ["tests/test_x.py:1: unstable for 15 days, at most 14: mend it or take it out (port taken)"],
        ),
        (
            "@pytest.mark.unstable",
            ['tests/test_x.py:1: say why and since when: @pytest.mark.unstable("symptom", since="2026-11-25")'],
        ),
        (
            '@pytest.mark.unstable("port taken")',
            ['tests/test_x.py:1: say why and since when: @pytest.mark.unstable("symptom", since="2026-11-25")'],
        ),
        (
            '@pytest.mark.unstable("port taken", since="last week")',
            ["tests/test_x.py:1: since='last week' is no date like 2026-11-25"],
        ),
        ("@pytest.mark.clusters", []),
    ],
)
def test_mark_is_checked(unstable: ModuleType, mark: str, found: list[str]) -> None:
    assert findings(unstable, f"{mark}\ndef test_y(): ...\n") == found


def test_more_than_ten_are_refused(unstable: ModuleType) -> None:
    text = '@pytest.mark.unstable("hopes", since="2026-11-25")\ndef test_y(): ...\n' * 11
    assert findings(unstable, text) == ["11 tests are marked unstable, at most 10 may be: mend one first"]


def test_repository_has_no_findings() -> None:
    done = subprocess.run([sys.executable, ROOT / "scripts" / "check_unstable.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
