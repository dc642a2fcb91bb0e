"""The test of the tester: faults put into exactly-once code are found by simulated histories.

`make test` plays some of them; the whole list takes long, and runs with STREAMTOPOLOGY_MUTANTS=all. That each still fits the
code is tested in test_mutant_texts.py.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from streamtopology.lab.faults.mutants import Mutant

FOLDER = Path(__file__).parents[1] / "mutants"
SEED = 1000
QUICK = ("moved-state-not-evicted", "retention-deletes-a-named-file", "answer-of-an-old-order-taken")
PLAY = """
import sys
from pathlib import Path
from streamtopology.lab.faults.mutants import Mutant
mutant = Mutant.read(Path(sys.argv[1]))
mutant.install()
from streamtopology.lab.faults.runner import Amount, first_wrong, stories
from streamtopology.lab.faults.tally import Tally
tally = Tally()
played = filter(mutant.concerns, stories(int(sys.argv[2]), mutant.real_time))
found = first_wrong(played, Amount(mutant.histories, None), tally, lambda: print(tally.line()))
print(tally.line(), found and found[1])
sys.exit(found is not None)
"""
# A seed with a small story.
FOUND_AT_ONCE = 4315
KILLS = """
import sys
from dataclasses import replace
from pathlib import Path
from streamtopology.lab.faults.mutants import Mutant
Mutant.read(Path(sys.argv[1])).install()
from random import Random
from streamtopology.lab.faults.rows import draw_files
from streamtopology.lab.faults.runner import show_story
from streamtopology.lab.faults.story import Fault, Story
story, files = Story.draw(1), draw_files(Random(1), 8, ("s",))
shape = replace(story.shape, operators=("counts",), formats=("json",), files_per_batch=1, pods=False, bucket=False)
faults = tuple(Fault(batch, "driver", batch, "kill", 0) for batch in range(1, 8))
show_story(replace(story, shape=shape, files=files, faults=faults, events=(), switching=0.0), print)
"""
ALL = sorted(path.stem for path in FOLDER.glob("*.toml"))
PLAYED = ALL if os.environ.get("STREAMTOPOLOGY_MUTANTS") == "all" else QUICK


@pytest.mark.parametrize("name", PLAYED)
def test_a_mutant_is_found_within_its_histories(name: str) -> None:
    file = FOLDER / f"{name}.toml"
    found = subprocess.run([sys.executable, "-c", PLAY, str(file), str(SEED)], capture_output=True, text=True)
    print(found.stdout)
    assert found.returncode == 1, f"{Mutant.read(file).breaks} Nothing was found:\n{found.stdout}{found.stderr}"


def test_the_command_shows_the_story_of_a_mutant() -> None:
    command = [sys.executable, "-m", "streamtopology.jobs.cli.main", "simulate-faults"]
    limits = ["--seed", str(FOUND_AT_ONCE), "--histories", "3"]
    mutant = FOLDER / "offsets-off-by-one.toml"
    found = subprocess.run([*command, *limits, "--mutant", str(mutant)], capture_output=True, text=True)
    assert found.returncode == 1, found.stdout + found.stderr
    assert re.search(
        r"the story: .* 0 faults, 0 events\n(.*\n)*  in the end: .+\nagain: .* --seed \d+ --histories 1", found.stdout
    )


@pytest.mark.long
def test_a_story_ends_with_the_kill_that_shows_a_mutant() -> None:
    mutant = FOLDER / "manifest-before-its-file.toml"
    found = subprocess.run([sys.executable, "-c", KILLS, str(mutant)], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    ending = (
        r"the story: counts on .* faults, 0 events\n(  batch .*\n)*  batch \d+.*: driver \d+ is killed before sink.placed\n"
        r"  in the end"
    )
    assert re.match(ending, found.stdout), found.stdout
