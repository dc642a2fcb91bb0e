"""Random lives of a source's folder, by what plain Python knows was written there; `--seed N` plays that seed alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.differential.folders import FolderLife
from support.seeds import seed_of_commit

EACH = 40
MANY = 400
STEPS = 12
IN_SPARK = 40


def play(seed: int, here: Path) -> None:
    """Live through the steps of a seed. AssertionError: it differs, with its story."""
    life = FolderLife(seed, here)
    for _ in range(STEPS):
        life.step()
        if found := life.differences():
            story = "\n  ".join([*life.story, "", *found])
            raise AssertionError(f"seed {seed} differs:\n  {story}")


@pytest.mark.parametrize("part", range(4))
def test_each_file_of_a_folder_is_read_once_and_whole(part: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    given = request.config.getoption("--seed")
    for seed in range(part * EACH, (part + 1) * EACH) if given is None else [given]:
        play(seed, tmp_path / str(seed))


def test_reference_reads_a_folder_as_spark_does(spark: SparkSession, tmp_path: Path) -> None:
    compared = 0
    for seed in range(IN_SPARK):
        life = FolderLife(seed, tmp_path / str(seed))
        for _ in range(STEPS):
            life.step()
        if (in_spark := life.rows_in_spark(spark)) is not None:
            compared += 1
            assert in_spark == life.rows_now(), "\n  ".join(life.story)
    assert compared > IN_SPARK / 2


@pytest.mark.long
def test_each_file_is_read_once_for_new_seeds(tmp_path: Path) -> None:
    first = seed_of_commit()
    print(f"seeds {first} to {first + MANY - 1}")
    for seed in range(first, first + MANY):
        play(seed, tmp_path / str(seed))
