"""Every test has a level, by which it gates or does not."""

from __future__ import annotations

import pytest
from support.levels import Level, level_of


@pytest.mark.parametrize(
    ("folder", "fixtures", "marks", "level"),
    [
        ("routing", (), (), Level.GATE),
        ("jobs", ("tmp_path",), ("parametrize", "timeout"), Level.GATE),
        ("jobs", ("spark", "cluster"), (), Level.CLUSTERS),
        ("jobs", (), ("clusters",), Level.CLUSTERS),
        ("runs", (), (), Level.CLUSTERS),
        ("runs", (), ("smoke", "clusters"), Level.GATE),
        ("kubernetes", (), (), Level.KUBERNETES),
        ("jobs", ("api_server",), ("clusters",), Level.KUBERNETES),
        ("node", ("node",), (), Level.NODE),
        ("kubernetes", ("api_server",), ("long",), Level.LONG),
    ],
)
def test_level_is_the_highest_that_folder_fixtures_and_marks_ask_for(
    folder: str, fixtures: tuple[str, ...], marks: tuple[str, ...], level: Level
) -> None:
    assert level_of(folder, fixtures, marks) is level
