"""Every test has a level, by which it gates or does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import depth
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
        ("kubernetes", ("node", "api_server"), (), Level.KUBERNETES),
        ("kubernetes", ("api_server",), ("long",), Level.LONG),
    ],
)
def test_level_is_the_highest_that_folder_fixtures_and_marks_ask_for(
    folder: str, fixtures: tuple[str, ...], marks: tuple[str, ...], level: Level
) -> None:
    assert level_of(folder, fixtures, marks) is level


@pytest.mark.parametrize(("is_long", "played"), [(False, 2), (True, 5)])
def test_deep_property_plays_all_its_examples_in_the_long_level(
    monkeypatch: pytest.MonkeyPatch, is_long: bool, played: int
) -> None:
    monkeypatch.setattr(depth, "is_long", is_long)
    seen: list[int] = []

    @depth.deep(gate=2, long=5)
    @given(st.integers())
    def any_property(number: int) -> None:
        seen.append(number)

    any_property()
    assert len(seen) == played
