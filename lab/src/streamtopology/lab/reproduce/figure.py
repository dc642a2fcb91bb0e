"""A figure of a paper as we measured it, the paper's own points next to ours: SVG text, for a page or a file."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from streamtopology.contract import formatting
from streamtopology.lab.palette import BACKGROUND, COLORS, GRID, INK, MUTED
from streamtopology.lab.reproduce.experiment import ExperimentError, Plot, Row

_MOST_MARKED_POINTS = 40
_MOST_TICKS = 10
_LineStyle = Literal["-", "--", ":", "-."]
_LINE_STYLES: tuple[_LineStyle, ...] = ("-", "--", ":", "-.")
_Points = dict[str, tuple[np.ndarray, list[np.ndarray]]]


@dataclass(frozen=True)
class Figure:
    """A plot drawn: `svg` is a whole SVG document; where it cannot be drawn it is empty and `problem` says why."""

    title: str
    svg: str
    problem: str = ""


def draw(plot: Plot, series: Sequence[Row]) -> Figure:
    """Draw `plot` of the measured `series`.

    A line for each value of the plot's `line`; where it has several rows at one x, their mean, and a band from the
    least to the greatest. The paper's points are hollow, in the colour of the line of the same name.
    """
    try:
        rows = plot.rows(series)
    except ExperimentError as error:
        return Figure(plot.title, "", str(error))
    with matplotlib.rc_context({"font.family": "sans-serif", "svg.fonttype": "none", "svg.hashsalt": plot.title}):
        canvas = Canvas(figsize=(6.4, 4.0), layout=ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08), facecolor=BACKGROUND)
        FigureCanvasSVG(canvas)
        panel = canvas.add_subplot()
        ours, papers = _lines(plot, rows), _lines(plot, plot.paper)
        looks = _looks([*ours, *papers])
        places = _categories(plot, [*rows, *plot.paper])
        for name, points in ours.items():
            _draw_ours(panel, points, looks[name], places)
        for name, points in papers.items():
            _draw_papers(panel, points, looks[name][0], places)
        _style(panel, plot, places, sorted({x for xs, _ in ours.values() for x in xs.tolist()}))
        _legend(canvas, ours, papers, looks)
        text = io.StringIO()
        canvas.savefig(text, format="svg", metadata={"Date": None})
    return Figure(plot.title, text.getvalue())


def _lines(plot: Plot, rows: Sequence[Row]) -> _Points:
    """Line -> (its x values in order, the y values at each); a y that was not measured (None) leaves a gap."""
    found: dict[str, dict[Any, list[float]]] = {}
    for row in rows:
        name = row[plot.line]
        label = name if isinstance(name, str) else f"{_words(plot.line)} {formatting.figure(name)}"
        at = found.setdefault(label, {}).setdefault(row[plot.x], [])
        y: Any = row[plot.y]
        at.append(np.nan if y is None else float(y))
    lines: _Points = {}
    for name, by_x in found.items():
        xs = list(by_x) if any(isinstance(x, str) for x in by_x) else sorted(by_x)
        lines[name] = (np.array(xs), [np.array(by_x[x]) for x in xs])
    return lines


def _looks(names: Sequence[str]) -> dict[str, tuple[str, _LineStyle]]:
    """Line -> (colour, style), the same for ours and the paper's of one name; a style for each round of the colours."""
    distinct = list(dict.fromkeys(names))
    return {
        name: (COLORS[index % len(COLORS)], _LINE_STYLES[index // len(COLORS) % len(_LINE_STYLES)])
        for index, name in enumerate(distinct)
    }


def _categories(plot: Plot, rows: Sequence[Row]) -> dict[str, int]:
    """The place of each word on the x axis, in the order of the rows; empty for an axis of numbers."""
    values = [row[plot.x] for row in rows]
    if not any(isinstance(value, str) for value in values):
        return {}
    return {word: place for place, word in enumerate(dict.fromkeys(str(value) for value in values))}


def _at(xs: np.ndarray, places: Mapping[str, int]) -> np.ndarray:
    return np.array([places[str(x)] for x in xs]) if places else xs.astype(np.float64)


def _draw_ours(
    panel: Axes, points: tuple[np.ndarray, list[np.ndarray]], look: tuple[str, _LineStyle], places: Mapping[str, int]
) -> None:
    at, (color, style) = _at(points[0], places), look
    measured = [values[np.isfinite(values)] for values in points[1]]
    mean = np.array([values.mean() if len(values) else np.nan for values in measured])
    marker = "o" if len(at) <= _MOST_MARKED_POINTS else ""
    panel.plot(at, mean, color=color, linestyle=style, linewidth=1.9, marker=marker, markersize=3.6)
    if any(len(values) > 1 for values in measured):
        low = [values.min(initial=np.inf) if len(values) else np.nan for values in measured]
        high = [values.max(initial=-np.inf) if len(values) else np.nan for values in measured]
        panel.fill_between(at, low, high, color=color, alpha=0.14, linewidth=0)


def _draw_papers(panel: Axes, points: tuple[np.ndarray, list[np.ndarray]], color: str, places: Mapping[str, int]) -> None:
    at = np.repeat(_at(points[0], places), [len(values) for values in points[1]])
    panel.plot(
        at,
        np.concatenate(points[1]),
        color=color,
        linestyle=(0, (1.5, 2.5)),
        linewidth=1.1,
        marker="D",
        markersize=6.5,
        markerfacecolor="none",
        markeredgewidth=1.4,
        zorder=3,
    )


def _style(panel: Axes, plot: Plot, places: Mapping[str, int], xs: Sequence[Any]) -> None:
    panel.set_title(plot.title, loc="left", fontsize=11.5, color=INK, wrap=True)
    panel.set_xlabel(plot.x_label or _words(plot.x), color=MUTED)
    panel.set_ylabel(plot.y_label or _words(plot.y), color=MUTED)
    if places:
        panel.set_xticks(list(places.values()), list(places), rotation=25 if len(places) > 6 else 0)
    elif plot.log_x:
        panel.set_xscale("log")
        if len(xs) <= _MOST_TICKS:
            panel.set_xticks(xs)
    if plot.log_y:
        panel.set_yscale("log")
    for axis, is_words in ((panel.xaxis, bool(places)), (panel.yaxis, False)):
        if not is_words:
            axis.set_major_formatter(FuncFormatter(lambda value, _: formatting.tick(value)))
            axis.set_minor_formatter(NullFormatter())
    panel.tick_params(colors=MUTED, length=0, which="both")
    panel.grid(color=GRID, linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.spines["bottom"].set_color(MUTED)


def _words(column: str) -> str:
    """The label of a column on an axis; none for x and y."""
    return "" if column in ("x", "y") else column.replace("_", " ")


def _legend(canvas: Canvas, ours: _Points, papers: _Points, looks: Mapping[str, tuple[str, _LineStyle]]) -> None:
    """Below the panel, where no line can run through it."""
    entries: list[Line2D] = []
    for name, (color, style) in looks.items():
        if name in ours:
            entries.append(Line2D([], [], color=color, linestyle=style, linewidth=2.2, label=name))
        else:
            entries.append(_hollow(color, name))
    if papers:
        entries.append(_hollow(MUTED, "hollow: the paper"))
    longest = max(len(str(entry.get_label())) for entry in entries)
    canvas.legend(
        handles=entries,
        loc="outside lower left",
        ncols=max(1, min(len(entries), 84 // (longest + 8))),
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        handlelength=1.8,
    )


def _hollow(color: str, label: str) -> Line2D:
    return Line2D([], [], color=color, linestyle="", marker="D", markerfacecolor="none", markersize=6.5, label=label)
