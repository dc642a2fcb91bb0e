"""Simulated histories: they lose nothing, replay bit by bit, and shrink."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner

from streamtopology.jobs.errors import WrongUse
from streamtopology.lab.commands import simulate_faults
from streamtopology.lab.faults.record import Record
from streamtopology.lab.faults.shrink import shrunk
from streamtopology.lab.faults.story import Story
from streamtopology.lab.faults.verdict import play

# Half a minute of CPU, with those in real time.
HISTORIES = 8

TRACE = """
from streamtopology.lab.faults.story import Story
from streamtopology.lab.faults.verdict import play
print(play(Story.draw(9))[0].trace)
"""


@pytest.mark.parametrize("how", [[], ["--real-time"]], ids=["Spark's jobs", "real time"])
def test_histories_with_faults_lose_nothing_and_repeat_nothing(how: list[str]) -> None:
    options = ["--seed", "1", "--histories", str(HISTORIES), *how]
    answer = CliRunner().invoke(simulate_faults, options, standalone_mode=False)
    print(answer.output)
    assert answer.exception is None
    assert answer.return_value == 0, answer.output
    assert f"0 wrong: {HISTORIES} histories" in answer.output


def test_a_seed_replays_bit_by_bit_in_another_process_and_another_seed_does_not() -> None:
    command, environment = [sys.executable, "-c", TRACE], {**os.environ, "PYTHONHASHSEED": "1"}
    there = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert there.strip() == play(Story.draw(9))[0].trace != play(Story.draw(3))[0].trace


@pytest.mark.parametrize("culprit", [0, 3])
def test_a_story_shrinks_to_what_it_takes_to_fail(culprit: int) -> None:
    story = next(story for story in map(Story.draw, count()) if len(story.faults) > 3)
    needed = story.faults[culprit]
    short = shrunk(story, lambda shorter: needed in shorter.faults and len(shorter.files) > 2)
    assert (short.faults, short.events, len(short.shape.operators), len(short.files)) == ((needed,), (), 1, 3)


def test_record_is_continued_and_adds_up(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    first = run_with_record(file, "--seed", "7", "--histories", "1")
    assert first.splitlines()[0] == "seed 7"
    second = run_with_record(file, "--histories", "1")
    assert second.splitlines()[0] == "seed 8"
    assert "in all, from seed 7: 2 histories" in second
    whole = run_with_record(tmp_path / "whole.json", "--seed", "7", "--histories", "2")
    assert counts(file) == counts(tmp_path / "whole.json")
    assert len(whole.splitlines()) > 3


def test_record_of_other_code_is_refused_and_kept(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    Record("other", 7, 5).write(file)
    before = file.read_text()
    with pytest.raises(WrongUse, match="counts histories of another state of the code: name another file to begin at 0"):
        run_with_record(file, "--histories", "1")
    assert file.read_text() == before
    file.write_text("[]")
    with pytest.raises(WrongUse, match="is no record of simulated histories"):
        run_with_record(file, "--histories", "1")


def run_with_record(file: Path, *options: str) -> str:
    """Output of the command. Raises what it raises."""
    answer = CliRunner().invoke(simulate_faults, ["--record", str(file), *options], standalone_mode=False)
    if answer.exception is not None:
        raise answer.exception
    assert answer.return_value == 0, answer.output
    return answer.output


def counts(file: Path) -> tuple[int, int, int, int]:
    record = json.loads(file.read_text())
    return record["histories"], record["batches"], record["lives"], record["faults"]
