"""Test files that run side by side: every failure counts, also of a process that ends without a result."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.side_by_side import run_all, run_file, slowest

PASSES = "import time\n\ndef test_quick():\n    pass\n\ndef test_slow():\n    time.sleep(0.2)\n"
FAILS = "def test_good():\n    pass\n\ndef test_bad():\n    raise AssertionError('wrong')\n"
DIES = "import os\n\ndef test_dies():\n    os._exit(0)\n"
EMPTY = "x = 1\n"
BROKEN = "import no_such_package\n"


@pytest.mark.parametrize(
    ("text", "passed", "failed"),
    [(PASSES, 2, 0), (FAILS, 1, 1), (DIES, 0, 1), (EMPTY, 0, 1), (BROKEN, 0, 1)],
    ids=["passes", "fails", "dies", "empty", "broken"],
)
def test_every_failure_counts(tmp_path: Path, text: str, passed: int, failed: int):
    file = tmp_path / "test_it.py"
    file.write_text(text)
    ended = run_file(str(file), ["-p", "no:cacheprovider"], tmp_path, tmp_path)
    assert (ended.passed, ended.failed) == (passed, failed), ended.output


def test_slowest_tests_are_listed_first(tmp_path: Path):
    file = tmp_path / "test_it.py"
    file.write_text(PASSES)
    run_file(str(file), ["-p", "no:cacheprovider"], tmp_path, tmp_path)
    assert [test.split("::")[1] for _, test in slowest(tmp_path, 1)] == ["test_slow"]


def test_all_files_are_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    files = [tmp_path / f"test_{name}.py" for name in ("a", "b", "c")]
    for file in files:
        file.write_text(PASSES)
    ended = run_all([str(file) for file in files], 2, ["-p", "no:cacheprovider"], tmp_path, tmp_path)
    assert sorted(one.file for one in ended) == [str(file) for file in files]
    assert capsys.readouterr().out.count("2 passed, 0 failed") == 3
