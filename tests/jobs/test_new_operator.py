"""`streamtopology new-operator`: both files pass as written, run in a manifest, and hide or overwrite nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from streamtopology.jobs.cli.main import main
from streamtopology.jobs.runtime.preflight.checks import check_before_start
from streamtopology.topology import load

MANIFEST = """
apiVersion: streamtopology.dev/v1alpha1
kind: StreamTopology
metadata: {name: made}
spec:
  sources:
    - {name: readings, format: csv, schema: "sensor STRING, celsius DOUBLE", options: {path: data, header: true}}
  operators:
"""


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    before = sorted(Path().iterdir())
    assert main(["new-operator", *arguments]) == 2
    assert sorted(Path().iterdir()) == before
    return capsys.readouterr().err


def test_class_and_test_pass_as_written(capsys: pytest.CaptureFixture[str]):
    assert main(["new-operator", "HTTPSessionLength"]) == 0
    assert "python -m pytest test_http_session_length.py" in capsys.readouterr().out
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_http_session_length.py"]
    assert "2 passed" in subprocess.run(command, check=True, capture_output=True, text=True).stdout
    imported = {
        node.module.split(".")[0] + "." + node.module.partition(".")[2]
        for file in Path().glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("streamtopology")
    }
    assert imported == {"streamtopology.api"}
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E,F,B,UP", "--line-length", "128", "."]
    subprocess.run(ruff, check=True)


def test_printed_operator_is_valid_in_a_manifest(capsys: pytest.CaptureFixture[str]):
    assert main(["new-operator", "Hot"]) == 0
    printed = capsys.readouterr().out.partition("same folder:\n\n")[2]
    operator = "\n".join("  " + line for line in printed.rstrip().splitlines())
    Path("made.yaml").write_text(f"{MANIFEST}{operator}\n  sinks: []\n  executors: [{{name: one}}]\n")
    Path("data").mkdir()
    check_before_start(load(Path("made.yaml")), Path())


def test_existing_files_are_not_overwritten(capsys: pytest.CaptureFixture[str]):
    Path("test_hot.py").write_text("mine")
    assert "test_hot.py exists and is not overwritten" in refused(capsys, "Hot")
    assert Path("test_hot.py").read_text() == "mine"
    assert "no folder other" in refused(capsys, "Hot", "--to", "other")
    Path("other").mkdir()
    assert main(["new-operator", "Hot", "--to", "other"]) == 0
    assert sorted(path.name for path in Path("other").iterdir()) == ["hot.py", "test_hot.py"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("session-length", "did you mean SessionLength?"),
        ("hot", "did you mean Hot?"),
        ("my module", "did you mean MyModule?"),
        ("3hot", "as in SessionLength"),
        ("None", "no name of a class"),
        ("../Hot", "did you mean Hot?"),
        ("", "no name of a class"),
        ("Größe", "no name of a class"),
        ("Random", "random.py would hide the Python module random"),
        ("Numpy", "numpy.py would hide the Python module numpy"),
        ("Class", "class.py would hide"),
    ],
)
def test_bad_names_are_refused(name: str, hint: str, capsys: pytest.CaptureFixture[str]):
    assert hint in refused(capsys, name)
