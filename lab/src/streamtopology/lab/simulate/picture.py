"""The picture of a comparison: for each operator what every policy reaches of the bound, and how it gets there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator

from streamtopology.contract import formatting
from streamtopology.lab.palette import COLORS, GRID, INK, MUTED
from streamtopology.lab.simulate.comparison import Compared, Result

_LINE_STYLES = ("-", "--", ":")
_BAR_INCHES, _OTHER_INCHES = 0.3, 1.6


def draw_comparison(topology: str, compared: Sequence[Compared], path: Path) -> None:
    """Draw into `path`, `.png` or `.svg`: a row of two panels for each operator, the policies in one order in both."""
    heights = [_OTHER_INCHES + _BAR_INCHES * max(3, len(one.results)) for one in compared]
    with matplotlib.rc_context({"font.size": 10, "svg.hashsalt": topology}):
        layout = ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.12)
        figure = Figure(figsize=(12, 0.6 + sum(heights)), layout=layout, facecolor="white")
        FigureCanvasAgg(figure)
        panels = figure.subplots(len(compared), 2, squeeze=False, height_ratios=heights, width_ratios=(1, 1.2))
        for (bars, lines), one in zip(panels, compared, strict=True):
            _draw_bars(bars, one)
            _draw_rates(lines, one)
        figure.suptitle(
            f"{topology}: policies compared, simulated", x=0.012, ha="left", fontsize=14, fontweight="bold", color=INK
        )
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)


def _look(index: int) -> tuple[str, str]:
    return COLORS[index % len(COLORS)], _LINE_STYLES[index // len(COLORS) % len(_LINE_STYLES)]


def _draw_bars(panel: Axes, compared: Compared) -> None:
    """The share of the bound of each policy, the best on top; the manifest's own is marked."""
    results = compared.results
    places = range(len(results), 0, -1)
    panel.barh(
        list(places),
        [result.share_of_bound for result in results],
        height=0.66,
        color=[_look(i)[0] for i in range(len(results))],
    )
    for place, result in zip(places, results, strict=True):
        text = f"{formatting.percent(result.share_of_bound)}, {formatting.count(result.rows_per_second)} rows/s"
        inside = result.share_of_bound > 0.55
        at = result.share_of_bound - 0.015 if inside else result.share_of_bound + 0.015
        panel.text(at, place, text, va="center", ha="right" if inside else "left", fontsize=9, color="white" if inside else INK)
    panel.axvline(1.0, color=INK, linewidth=1.2, linestyle="--")
    _style(panel, f"{compared.site.operator}: share of the bound, {formatting.rate(compared.bound)}", "")
    panel.set_yticks(list(places), [_name(result, compared) for result in results])
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: formatting.percent(value)))
    panel.set_xlim(0, 1.03)
    panel.grid(visible=False, axis="y")


def _name(result: Result, compared: Compared) -> str:
    return f"{result.policy} (manifest)" if result.policy == compared.site.policy else result.policy


def _draw_rates(panel: Axes, compared: Compared) -> None:
    """Rows/s batch by batch; a dot is the first batch after a re-routing."""
    for index, result in enumerate(compared.results):
        color, line = _look(index)
        numbers = range(1, len(result.rows_per_second_of) + 1)
        panel.plot(numbers, result.rows_per_second_of, color=color, linestyle=line, linewidth=1.8)
        after = [number for number in result.rerouted_at if number < len(result.rows_per_second_of)]
        panel.plot(
            [number + 1 for number in after],
            [result.rows_per_second_of[number] for number in after],
            color=color,
            marker="o",
            markersize=5,
            linestyle="none",
        )
    panel.axhline(compared.bound, color=INK, linewidth=1.2, linestyle="--")
    _style(panel, "rows per second; a dot: re-routed", "batch")
    panel.set_ylim(0, 1.06 * compared.bound)
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: formatting.tick(value)))
    panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _style(panel: Axes, title: str, x_label: str) -> None:
    panel.set_title(title, loc="left", fontsize=11, color=INK)
    panel.set_xlabel(x_label, color=MUTED)
    panel.tick_params(colors=MUTED, length=0)
    panel.grid(color=GRID, linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.spines["bottom"].set_color(MUTED)
