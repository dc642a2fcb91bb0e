"""The README is true: its manifest is valid, its commands exist, its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamtopology.jobs.cli.main import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_manifest_is_the_example_of_the_tour():
    manifest = re.search(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert manifest is not None
    comment, _, example = (ROOT / "examples" / "tour.yaml").read_text().partition("apiVersion")
    assert manifest[1] == "apiVersion" + example
    assert all(line.startswith("#") for line in comment.splitlines())


def test_readme_is_short_and_has_few_figures():
    assert README.count("\n") <= 110
    prose = re.sub(r"```.*?```|`[^`\n]*`|\]\([^)]*\)", "", README, flags=re.DOTALL)
    assert len(re.findall(r"\d[\d.,]*", prose)) <= 10


@pytest.mark.parametrize("command", ["apply", "resize", "scale", "stop", "top", "plan", "validate", "simulate", "state"])
def test_every_command_named_explains_itself(command: str, capsys: pytest.CaptureFixture[str]):
    assert f"`{command}`" in README
    assert main([command, "--help"]) == 0
    assert f"streamtopology {command}" in capsys.readouterr().out


def test_readme_names_the_pinned_pyspark():
    pinned = re.search(r"pyspark==(\d+\.\d+)", (ROOT / "spark-jobs" / "pyproject.toml").read_text())
    assert pinned is not None
    assert f"PySpark {pinned[1]}" in README


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_lead_to_files_of_the_repository(page: str):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / page).read_text())
    missing = [link for link in links if not (ROOT / link).exists()]
    assert missing == []
