"""The picture of a run is a real PNG or SVG that shows each instance, the re-routings, both runs and the bound."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.image import imread
from support.histories import HASHED, SLOTS, outcome, reconfiguration, run

from streamtopology.jobs.history import History
from streamtopology.jobs.picture import PictureError, draw_run


def svg_texts(path: Path) -> list[str]:
    """The labels of an SVG; matplotlib draws letters as shapes and leaves the text itself in comments."""
    return re.findall(r"<!-- (.*?) -->", path.read_text())


def test_png_has_the_colours_of_the_classes_and_both_runs(tmp_path: Path):
    path = tmp_path / "run.png"
    draw_run(run(20, reroute_at=6, noise=0.05), run(20, policy="fields"), path, bound=132_000.0)
    pixels = np.unique((imread(path)[..., :3] * 255).round().astype(int).reshape(-1, 3), axis=0)
    for color in ("1b6ca8", "e8710a", "2a9d5c", "8d99a6"):
        assert (pixels == [int(color[i : i + 2], 16) for i in (0, 2, 4)]).all(axis=1).any(), color


def test_svg_says_what_was_measured(tmp_path: Path):
    path = tmp_path / "run.svg"
    draw_run(run(20, reroute_at=6), run(20, policy="fields"), path, bound=132_000.0)
    ElementTree.parse(path)
    texts = " | ".join(svg_texts(path))
    assert "tail: busy time of each instance" in texts
    assert "epoch 2: tail moved 412 keys, 1.20 MB" in texts
    assert "large executor" in texts
    assert "small executor" in texts
    assert "fixed routing" in texts
    assert "capacity bound: 132 k rows/s" in texts


def test_without_baseline_bound_or_rerouting_their_marks_are_left_out(tmp_path: Path):
    path = tmp_path / "run.svg"
    draw_run(run(20), None, path)
    texts = " | ".join(svg_texts(path))
    assert "epoch" not in texts
    assert "fixed routing" not in texts
    assert "capacity bound" not in texts


def test_the_same_run_makes_the_same_svg(tmp_path: Path):
    paths = [tmp_path / "one.svg", tmp_path / "two.svg"]
    for path in paths:
        draw_run(run(8, reroute_at=3), None, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize("batches", [1, 2])
def test_the_shortest_runs_and_many_reroutings_can_be_drawn(tmp_path: Path, batches: int):
    history = run(batches, reroute_at=0)
    for epoch in range(3, 12):
        history.rerouted(reconfiguration(epoch=epoch, batch=0))
    draw_run(history, History("flights", SLOTS, {}), tmp_path / "run.png")
    assert imread(tmp_path / "run.png").std() > 0


def test_what_cannot_be_drawn_is_said(tmp_path: Path):
    with pytest.raises(PictureError, match=r"must end in \.png or \.svg"):
        draw_run(run(3), None, tmp_path / "run.gif")
    with pytest.raises(PictureError, match="no batch of 'flights' was committed"):
        draw_run(run(0), None, tmp_path / "run.png")


def test_a_run_whose_executors_came_and_went_is_drawn(tmp_path: Path) -> None:
    history = run(4)
    history.slots_are([*SLOTS[:3], replace(SLOTS[3], present=False)])
    for number in range(4, 8):
        history.batch_done(outcome(number, {"tail": HASHED[:3]}, at=1_700_000_000.0 + number))
    draw_run(history, None, tmp_path / "run.svg")
    assert "small executor" in (tmp_path / "run.svg").read_text()
