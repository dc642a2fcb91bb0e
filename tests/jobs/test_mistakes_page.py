"""The mistakes in docs/guide/mistakes.md: `validate` prints for each what the page says, and for several all at once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamtopology.jobs.cli.main import main

_PAGE = (Path(__file__).parents[2] / "docs/guide/mistakes.md").read_text(encoding="utf-8")
_MANIFEST = _PAGE.partition("```yaml\n")[2].partition("```")[0]
_MISTAKE = re.compile(r"^## (\d+)\. [^\n]+\n\n```diff\n(.*?)```\n\n```text\n(.*?)```\n\n\S", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Mistake:
    """A section of the page: the lines of a valid manifest, those in their place, and the lines printed."""

    number: int
    right: str
    wrong: str
    printed: str

    def made_in(self, manifest: str) -> str:
        assert self.right in manifest
        return manifest.replace(self.right, self.wrong, 1)


def paths(printed: str) -> list[str]:
    """The places in the manifest of all findings."""
    return re.findall(r"^  (\S+): ", printed, re.MULTILINE)


def _mistake(section: re.Match[str]) -> Mistake:
    lines = section[2].splitlines(keepends=True)
    right, wrong = ("".join(line[2:] for line in lines if line[0] == sign) for sign in "-+")
    return Mistake(int(section[1]), right, wrong, section[3])


MISTAKES = [_mistake(section) for section in _MISTAKE.finditer(_PAGE)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with the data that the manifest of the page reads."""
    monkeypatch.chdir(tmp_path)
    rides = Path("data/rides")
    rides.mkdir(parents=True)
    now = pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    booked = pa.array([1_767_225_600_000], pa.int64())
    row = pa.table({"driver": ["Ada"], "city": ["Rome"], "fare": [7.5], "booked": booked, "at": now})
    pq.write_table(row, rides / "part-0.parquet")
    return tmp_path


_SEEN = "  source 'rides' sees 1 file, 1 row\n"


def validated(manifest: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and output of `validate`, the current folder named as on the page."""
    Path("trips.yaml").write_text(manifest, encoding="utf-8")
    code = main(["validate", "trips.yaml"])
    printed = capsys.readouterr()
    return code, (printed.err + printed.out).replace(str(Path.cwd()), "/home/you")


def test_page_has_fifteen_mistakes_in_a_valid_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    assert [mistake.number for mistake in MISTAKES] == list(range(1, 16))
    assert validated(_MANIFEST, capsys) == (0, f"trips.yaml: topology 'trips' is valid\n{_SEEN}")


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: str(mistake.number))
def test_validate_prints_what_the_page_says(mistake: Mistake, capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = validated(mistake.made_in(_MANIFEST), capsys)
    assert printed == mistake.printed
    assert code == (0 if "1 warning" in printed else 2)


def test_mistakes_made_together_are_all_named_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    together = [mistake for mistake in MISTAKES if mistake.number in (1, 5, 7, 9, 12, 13, 14, 15)]
    manifest = _MANIFEST
    for mistake in together:
        manifest = mistake.made_in(manifest)
    _, printed = validated(manifest, capsys)
    assert sorted(paths(printed)) == sorted(path for mistake in together for path in paths(mistake.printed))


def test_several_files_are_checked_in_one_command(capsys: pytest.CaptureFixture[str]) -> None:
    Path("wrong.yaml").write_text(MISTAKES[0].made_in(_MANIFEST), encoding="utf-8")
    Path("right.yaml").write_text(_MANIFEST, encoding="utf-8")
    assert main(["validate", "wrong.yaml", "missing.yaml", "right.yaml"]) == 2
    printed = capsys.readouterr()
    assert "wrong.yaml has 1 problem:" in printed.err
    assert "cannot read missing.yaml: No such file or directory" in printed.err
    assert printed.out == f"right.yaml: topology 'trips' is valid\n{_SEEN}"
