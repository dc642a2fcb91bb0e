"""What the README shows is true: its manifest is valid, its commands exist, its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from streamtopology.jobs.cli import main
from streamtopology.routing.topology import parse

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_manifest_is_valid():
    manifest = re.search(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert manifest is not None
    topology = parse(yaml.safe_load(manifest[1]))
    assert topology.name == "flights"


@pytest.mark.parametrize("command", sorted(set(re.findall(r"^\| `streamtopology (\w+)", README, re.MULTILINE))))
def test_every_command_of_the_table_explains_itself(command: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"streamtopology {command}" in capsys.readouterr().out


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_lead_to_files_of_the_repository(page: str):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", (ROOT / page).read_text())
    missing = [link for link in links if not (ROOT / link).exists()]
    assert missing == []
