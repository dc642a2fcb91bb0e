"""A path is spelt the same by Python and by JVMs, or one sentence says which locale cannot spell it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.stages import manifest

from streamtopology.jobs.local.spelling import spelling


@pytest.mark.parametrize("variables", [{}, {"LC_ALL": "C"}, {"LANG": "POSIX"}, {"LC_ALL": "C", "LANG": "de_DE.UTF-8"}])
def test_jvm_in_the_locale_c_is_given_one_that_spells_all_paths(variables: dict[str, str]) -> None:
    assert spelling(variables, "utf-8") == {"LC_ALL": "C.UTF-8"}


@pytest.mark.parametrize("variables", [{"LANG": "de_DE.UTF-8"}, {"LC_ALL": "C.utf8"}, {"LC_CTYPE": "C.UTF-8", "LANG": "C"}])
def test_locale_that_spells_all_paths_is_kept(variables: dict[str, str]) -> None:
    assert spelling(variables, "utf-8") == {}


def test_locale_that_python_keeps_to_is_kept() -> None:
    assert spelling({"LC_ALL": "de_DE.ISO-8859-1"}, "iso8859-1") == {}


def test_locale_that_cannot_spell_a_path_is_named(tmp_path: Path) -> None:
    passing = {"name": "all", "inputs": ["s"], "run": "filter", "with": {"where": "true"}}
    sink = {"name": "out", "input": "all", "format": "parquet", "options": {"path": str(tmp_path / "öut")}}
    (tmp_path / "t.yaml").write_text(yaml.safe_dump(manifest([passing], {"s": "v BIGINT"}, sinks=[sink])), encoding="utf-8")
    ascii_alone = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    done = subprocess.run(
        [sys.executable, "-m", "streamtopology.jobs.cli.main", "validate", str(tmp_path / "t.yaml")],
        env={**os.environ, **ascii_alone},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("streamtopology: the locale (LC_ALL=C, encoding ascii) cannot spell ")
    assert r"\xf6ut': set LC_ALL=C.UTF-8" in done.stderr
    assert done.stderr.count("\n") == 1
