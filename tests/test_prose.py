"""`scripts/check_prose.py`: a bad file fails it, a good one passes, and each finding names its line."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from support.scripts import load_script

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "check_prose.py"


@pytest.fixture(scope="module")
def prose() -> ModuleType:
    return load_script("check_prose")


def _findings(prose: ModuleType, folder: Path, name: str, text: str) -> list[tuple[int, str]]:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    vocabulary = prose.read_vocabulary(ROOT / "scripts" / "prose.toml")
    return [(finding.line, finding.text.split(";")[0]) for finding in prose.check(path, name, vocabulary)]


@pytest.mark.parametrize(
    ("name", "text", "line", "word"),
    [
        ("a.py", '"""Rows amid a switch."""\n', 1, "`amid`"),
        ("a.py", "x = 1\n# the instances at work\n", 2, "`at work`"),
        ("a.py", 'raise ValueError("the driver told of it")\n', 1, "`told`"),
        ("a.py", 'raise ValueError(f"{x} is what is there")\n', 1, "`what is there`"),
        ("a.py", "# it is what is\n# there\n", 1, "`what is there`"),
        ("a.py", "def of_whoever() -> None: ...\n", 1, "name `of_whoever`"),
        ("a.py", '"""What a row is."""\n', 1, "docstring opens with `What`"),
        ("a.py", 'X = 1\n"""Whether it runs."""\n', 2, "docstring opens with `Whether`"),
        ("a.py", "def test_what_is_sent_arrives(): ...\n", 1, "test opens with `what`"),
        ("a.py", "x = 1\nasync def test_run_goes_on(): ...\n", 2, "test says `goes on`"),
        ("a.py", f"def test_{'a' * 75}(): ...\n", 1, "name of 80 characters, at most 79"),
        ("a.md", "# A page\n\nThe job goes\non.\n", 3, "`goes on`"),
        ("a.md", "It is fast beside plain Spark.\n", 1, "`beside`"),
        ("a.md", "word " * 30 + "\n", 1, "150 columns"),
        ("a.yaml", "a: 1\n# starts anew\n", 2, "`anew`"),
        ("Makefile", "all: # that is no news\n", 1, "`is no news`"),
        ("a.py", 'x = 1\nraise ValueError("the job goes "\n  "on")\n', 2, "`goes on`"),
        ("a.py", 'raise ValueError(f"the job {x} goes "\n  f"on {y}")\n', 1, "`goes on`"),
        ("a.py", "# the at-work executors\n", 1, "`at-work`"),
        ("a.py", "class RowsAmidSwitch: ...\n", 1, "name `RowsAmidSwitch`"),
        ("a.py", "def executors_at_work() -> None: ...\n", 1, "name `executors_at_work`"),
        ("a.py", 'x = 1\nraise ValueError("anew")\n', 2, "string `anew`"),
        ("a.md", "The job [goes](x.md) on.\n", 1, "`goes on`"),
        ("a.md", "The job [goes][x] **on**.\n", 1, "`goes on`"),
        ("a.properties", "# read anew\n", 1, "`anew`"),
        ("a.svg", "<text>rows amid a switch</text>\n", 1, "`amid`"),
        ("a.css", "a { }\n/* starts anew */\n", 2, "`anew`"),
        ("a.html", "<b>starts anew</b>\n", 1, "`anew`"),
        ("a.go", "// it goes\n// on\n", 1, "`goes on`"),
    ],
)
def test_banned_word_is_found_with_its_line(
    prose: ModuleType, tmp_path: Path, name: str, text: str, line: int, word: str
) -> None:
    assert (line, word) in _findings(prose, tmp_path, name, text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", '"""Return the rows of the batch."""\nposition = stream.tell()\ncounts["told"] = 1\n'),
        ("a.py", 'x = f"{told} rows"\n'),
        ("a.py", "# the file beside it\n"),
        ("a.py", 'x = ["it goes ", "on"]\ny = "at" + "work"\n'),
        ("a.py", f"def test_{'a' * 74}(): ...\ndef what_goes_on(): ...\n"),
        ("a.py", "def test_image_runs_beside_another(): ...\n"),
        ("a.py", '"""Somewhat large, whatever its size."""\n'),
        ("a.md", "The key `told` of [the page](said.md) stays.\n"),
        ("a.md", "| " + "cell " * 40 + "|\n\n```\n" + "code " * 40 + "\n```\n"),
        ("a.bin", "amid"),
    ],
)
def test_good_file_has_no_findings(prose: ModuleType, tmp_path: Path, name: str, text: str) -> None:
    assert _findings(prose, tmp_path, name, text) == []


def test_command_fails_on_a_bad_file_and_on_a_missing_one() -> None:
    bad = subprocess.run([sys.executable, SCRIPT, ROOT / "tests" / "no-such-folder"], capture_output=True, text=True)
    assert bad.returncode == 2
    assert "no such file or folder" in bad.stderr


def test_folders_to_be_rewritten_exist(prose: ModuleType) -> None:
    vocabulary = prose.read_vocabulary(ROOT / "scripts" / "prose.toml")
    assert [folder for folder in vocabulary.not_yet if not (ROOT / folder).exists()] == []
