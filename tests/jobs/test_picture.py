"""The picture of a run is a real PNG or SVG that shows each instance, the re-routings, both runs and the bound."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text
from support.histories import HASHED, SLOTS, outcome, reconfiguration, run

from streamtopology.jobs.observe.history import History
from streamtopology.jobs.view import plot
from streamtopology.jobs.view.plot import PictureError, draw_run
from streamtopology.jobs.view.plot_labels import separate


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


def test_the_title_answers_whether_rerouting_helped(tmp_path: Path):
    path = tmp_path / "run.svg"
    for history, baseline, title in (
        (run(20, reroute_at=6), run(20, policy="fields"), r"re-routing helped: 1\.\dx the throughput of fixed routing"),
        (run(20, reroute_at=6), run(20, reroute_at=0), r"re-routing did not help: 0\.\d\dx the throughput of fixed"),
        (run(20, reroute_at=6), run(20, reroute_at=6), r"re-routing made no difference: 1\.00x"),
        (run(20, reroute_at=6), None, r"imbalance 142 % -> 0 %; re-routing helped: 1\.9x the rows/s of before"),
        (
            run(20, reroute_at=6, slower_from=0),
            run(20, policy="fields"),
            r"the machine got slower \(0\.33x\); at the same speed re-routing helped: 1\.\dx the throughput of fixed",
        ),
        (
            run(20, reroute_at=6, slower_from=6),
            None,
            r"imbalance 142 % -> 0 %; the machine got slower \(0\.33x\); at the same speed re-routing helped: 1\.9x the rows/s",
        ),
        (run(20), None, r"nothing was re-routed: imbalance 142 %"),
        (run(20, rows=4), None, r"nothing was re-routed: too few rows to judge"),
    ):
        draw_run(history, baseline, path)
        assert any(re.match(f"flights: {title}", text.replace("&gt;", ">")) for text in svg_texts(path)), title


def test_a_bound_far_above_is_named_but_does_not_squash_the_curve(tmp_path: Path):
    path = tmp_path / "run.svg"
    draw_run(run(20), None, path, bound=900_000.0)
    texts = svg_texts(path)
    assert "capacity bound: 900 k rows/s, above the picture" in texts
    assert "800 k" not in texts


def test_bound_is_drawn_as_it_was_after_each_batch(tmp_path: Path):
    history = History("flights", SLOTS, {"tail": "mixed"})
    for number, bound in enumerate((0.0, 90_000.0, 80_000.0, 60_000.0)):
        history.batch_done(replace(outcome(number, {"tail": HASHED}, at=float(number)), bound=bound))
    panel = Figure().subplots()
    plot._draw_bound(panel, history, 60_000.0)
    assert list(np.asarray(panel.lines[0].get_ydata())) == [90_000.0, 80_000.0, 60_000.0]
    draw_run(history, None, tmp_path / "run.svg", bound=60_000.0)
    assert "capacity bound: 60.0 k rows/s" in svg_texts(tmp_path / "run.svg")


def test_of_many_operators_those_that_lose_most_are_drawn_with_a_note(tmp_path: Path):
    path = tmp_path / "run.svg"
    draw_run(run(6, operators=("a", "b", "c", "d", "e", "f.partial")), None, path)
    texts = " | ".join(svg_texts(path))
    assert "4 of 6 operators: those that lose most time by imbalance" in texts
    assert texts.count("busy time of each instance") == 4
    draw_run(run(6, operators=("a", "b.partial")), None, path)
    texts = " | ".join(svg_texts(path))
    assert "b (parts of keys): busy time of each instance" in texts
    assert "operators:" not in texts


@settings(max_examples=15)
@given(epochs=st.lists(st.tuples(st.floats(0, 39), st.integers(1, 40)), max_size=12))
def test_labels_of_reroutings_never_overlap(epochs: list[tuple[float, int]]):
    figure = Figure(figsize=(8, 3))
    renderer = FigureCanvasAgg(figure).get_renderer()
    panel = figure.subplots()
    panel.set_xlim(0, 39)
    labels = [panel.text(at, 0.9, "x" * length, va="top") for at, length in epochs]
    separate(labels, renderer, rows=3, gap=4)
    boxes = [label.get_window_extent(renderer) for label in labels if label.get_visible()]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    hidden = len(labels) - len(boxes)
    notes = [text.get_text() for text in panel.texts if "without a label" in text.get_text()]
    assert [note.split()[0] for note in notes] == ([str(hidden)] if hidden else [])


def test_legends_leave_the_titles_readable():
    bounds = (126_000.0, 9_000_000.0)
    for bound in bounds:
        figure = plot._figure_of(run(20, reroute_at=6), run(20, policy="fields"), bound)
        canvas = figure.canvas
        assert isinstance(canvas, FigureCanvasAgg)
        for panel in figure.axes:
            legend, title = panel.get_legend(), panel.get_title(loc="left")
            assert legend is not None
            (drawn,) = (text for text in panel.findobj(Text) if isinstance(text, Text) and text.get_text() == title)
            boxes = [each.get_window_extent(canvas.get_renderer()) for each in (legend, drawn)]
            assert not boxes[0].overlaps(boxes[1]), f"{title} with a bound of {bound}"


def test_labels_point_to_their_own_line():
    panel = Figure().subplots()
    panel.set_xlim(0, 39)
    labels = plot._mark_reroutings(panel, [reconfiguration(epoch=2, batch=5), reconfiguration(epoch=3, batch=35)])
    assert labels[0].get_text().startswith("\N{BLACK LEFT-POINTING SMALL TRIANGLE} epoch 2")
    assert labels[1].get_text().endswith("\N{BLACK RIGHT-POINTING SMALL TRIANGLE}")


def test_class_with_the_most_cpu_has_the_same_colour_in_any_order():
    one, other = (plot._class_colors(History("flights", slots, {})) for slots in (SLOTS, tuple(reversed(SLOTS))))
    assert one == other
    assert next(iter(one)) == "large"


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


def test_undrawable_picture_is_refused_with_the_reason(tmp_path: Path):
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


def test_a_run_without_a_row_is_drawn_and_an_empty_last_batch_is_not(tmp_path: Path):
    path = tmp_path / "run.svg"
    draw_run(run(1, rows=0), None, path)
    assert "flights: nothing was re-routed: too few rows to judge" in svg_texts(path)
    history = History("flights", SLOTS, {"tail": "mixed"})
    for number in range(3):
        history.batch_done(outcome(number, {"tail": HASHED}, at=float(number)))
    history.batch_done(replace(outcome(3, {}, at=3.0), rows=0))
    assert [batch.number for batch in plot._with_rows(history)] == [0, 1, 2]
