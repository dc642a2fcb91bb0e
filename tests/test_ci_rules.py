"""In CI a test that did not run has failed: shown with real pytest runs under this checkout's conftest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CASES = """
import pytest

def test_that_runs():
    pass

@pytest.mark.skip(reason="no broker")
def test_marked():
    pass

def test_that_skips_itself():
    pytest.skip("no Java")

@pytest.mark.xfail(reason="known", strict=True)
def test_expected_failure():
    raise AssertionError
"""
SKIPPED_MODULE = "import pytest\npytest.importorskip('no_such_package')\n\ndef test_hidden():\n    pass\n"


def outcomes(folder: Path, ci: str) -> dict[str, int]:
    (folder / "conftest.py").write_text((Path(__file__).parent / "conftest.py").read_text())
    (folder / "test_cases.py").write_text(CASES)
    (folder / "test_module.py").write_text(SKIPPED_MODULE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--continue-on-collection-errors", "-p", "no:cacheprovider", str(folder)],
        capture_output=True,
        text=True,
        env={**os.environ, "CI": ci, "PYTHONPATH": str(Path(__file__).parent)},
        check=False,
        timeout=120,
    )
    summary = done.stdout.strip().splitlines()[-1]
    return {kind: int(number) for number, kind in re.findall(r"(\d+) (passed|failed|skipped|xfailed|error)", summary)}


@pytest.mark.parametrize(
    ("ci", "expected"),
    [
        ("", {"passed": 1, "skipped": 3, "xfailed": 1}),
        ("true", {"passed": 1, "failed": 1, "xfailed": 1, "error": 2}),
    ],
)
def test_skips(tmp_path: Path, ci: str, expected: dict[str, int]):
    assert outcomes(tmp_path, ci) == expected
