"""A manifest that is edited while its topology runs: what the watcher applies, what it says, and that it never ends early."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.manifests import counting, files, manifest, memory_sink
from support.waiting import eventually

from streamtopology.jobs.checkpoint import CheckpointError
from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.local.manifest_watch import version_of, watching
from streamtopology.topology import load


class Edited:
    """A manifest's file under watch. What is applied is read as a run reads it; `failing`: what the next one raises then."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "edited.yaml"
        self.reported: list[str] = []
        self.failing: list[Exception] = []
        self.write(0.1)

    def write(self, tolerance: float, file: Path | None = None) -> None:
        rebalance = {"tolerance": tolerance}
        given = manifest("edited", [files(Path("rows"))], [counting()], [memory_sink("out", "counts")], rebalance=rebalance)
        (file or self.file).write_text(yaml.safe_dump(given))

    def apply(self, path: str) -> str:
        topology = load(path)
        if self.failing:
            raise self.failing.pop()
        return f"tolerance {topology.rebalance.tolerance}"

    def tells(self, *wanted: str) -> None:
        """Wait until exactly this has been reported, and clear it."""
        eventually(lambda: len(self.reported) >= len(wanted))
        for text, part in zip(self.reported, wanted, strict=True):
            assert text.startswith(f"{self.file} changed")
            assert part in text
        self.reported.clear()


@pytest.fixture
def edited(tmp_path: Path) -> Iterator[Edited]:
    edited = Edited(tmp_path)
    with watching(edited.apply, edited.file, edited.reported.append):
        yield edited


def test_an_edit_is_applied_and_a_broken_one_reported_until_it_is_mended(edited: Edited) -> None:
    edited.write(0.2)
    edited.tells("changed: tolerance 0.2")
    edited.file.write_text("spec: [")
    edited.tells("changed but is not applied: ")
    edited.write(-1)
    edited.tells("spec.rebalance.tolerance")
    edited.write(0.3)
    edited.tells("changed: tolerance 0.3")


def test_a_file_that_another_takes_the_place_of_is_applied_whatever_its_time(edited: Edited) -> None:
    times = edited.file.stat()
    draft = edited.file.with_suffix(".draft")
    edited.write(0.4, draft)
    os.utime(draft, ns=(times.st_atime_ns, times.st_mtime_ns))
    draft.rename(edited.file)
    edited.tells("changed: tolerance 0.4")


def test_an_edit_while_the_topology_starts_is_applied_once_it_runs(tmp_path: Path) -> None:
    edited = Edited(tmp_path)
    read = version_of(edited.file)
    edited.write(0.45, draft := edited.file.with_suffix(".draft"))
    draft.rename(edited.file)
    with watching(edited.apply, edited.file, edited.reported.append, read):
        edited.tells("changed: tolerance 0.45")


def test_a_file_that_goes_away_is_applied_when_it_comes_back(edited: Edited) -> None:
    away = edited.file.with_suffix(".away")
    edited.file.rename(away)
    edited.write(0.5, away)
    away.rename(edited.file)
    edited.tells("changed: tolerance 0.5")
    edited.file.unlink()
    edited.file.mkdir()  # not a file at all
    edited.tells("changed but is not applied: ")
    shutil.rmtree(edited.file)
    edited.write(0.6)
    edited.tells("changed: tolerance 0.6")


@pytest.mark.parametrize(
    "failure", [CheckpointError("the disk is full"), TopologyFailed("it would lose tuples"), OSError("no more processes")]
)
def test_a_run_that_cannot_take_an_edit_says_why_and_takes_the_next(edited: Edited, failure: Exception) -> None:
    edited.failing = [failure]
    edited.write(0.7)
    edited.tells(f"changed but is not applied: {failure}")
    edited.write(0.8)
    edited.tells("changed: tolerance 0.8")
