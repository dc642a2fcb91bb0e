"""The picture of a run: what each instance had to do, batch by batch, and what that did to the throughput."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import blended_transform_factory

from streamtopology.contract import formatting
from streamtopology.contract.errors import StreamTopologyError
from streamtopology.contract.reasons import SOURCE
from streamtopology.contract.stats import Rerouting
from streamtopology.jobs.observe.figures import (
    operator_names,
    reports_of,
    warm_throughput,
)
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.outcome import WARMUP_BATCHES, BatchOutcome
from streamtopology.jobs.view.formatting import changed, shown_name, verdict
from streamtopology.jobs.view.plot_labels import separate

_Color = tuple[float, float, float]
_Entry = tuple[str, str | _Color, Literal["-", "--"]]

_CLASS_COLORS = ("#1b6ca8", "#e8710a", "#6a51a3", "#b5179e", "#8c6d31")
_REROUTED = "#2a9d5c"
_BASELINE = "#8d99a6"
_MARK = "#7a1f3d"
_INK = "#23292f"
_MUTED = "#6b7680"

_SMOOTHED_BATCHES = 5
_MOST_PANELS = 4
_BOUND_IN_SIGHT = 2.0  # times the highest rate: a bound further up would squash the curves
# A longer title is written smaller, so that it is not cut off.
_TITLE_CHARACTERS = 84
_LABEL_ROWS = 3
_LABEL_GAP = 6  # pixels between two labels of a row


class PictureError(StreamTopologyError):
    """The picture cannot be drawn; the message says why."""


def draw_run(history: History, baseline: History | None, path: Path, bound: float | None = None) -> None:
    """Draw the run `history` next to `baseline` (the same input under fixed routing) into `path`, `.png` or `.svg`.

    Above: busy seconds of each instance by batch, of all operators or of those that lose most by imbalance, with the
    re-routings. Below: source rows/s over the time of each run, and the capacity `bound` in rows/s. Raises `PictureError`
    for another suffix or when the run has no batches.
    """
    if path.suffix not in {".png", ".svg"}:
        raise PictureError(f"cannot draw {path}: the name must end in .png or .svg")
    if not history.batches:
        raise PictureError(f"cannot draw {path}: no batch of {history.topology!r} was committed")
    with matplotlib.rc_context({"font.size": 10, "svg.hashsalt": history.topology}):
        figure = _figure_of(history, baseline, bound)
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)


def _figure_of(history: History, baseline: History | None, bound: float | None) -> Figure:
    shown, left_out = _shown_operators(history)
    layout = ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.12)
    figure = Figure(figsize=(11, 4.1 + (3.1 if len(shown) < 3 else 2.6) * len(shown)), layout=layout, facecolor="white")
    canvas = FigureCanvasAgg(figure)
    panels = figure.subplots(len(shown) + 1, 1, squeeze=False)[:, 0]
    labels = [_draw_busy(panel, history, operator) for panel, operator in zip(panels, shown, strict=False)]
    _draw_rates(panels[-1], history, baseline, bound)
    title = f"{history.topology}: {verdict(history, baseline)}"
    size = 14 * min(1.0, _TITLE_CHARACTERS / len(title))
    figure.suptitle(title, x=0.012, ha="left", fontsize=size, fontweight="bold", color=_INK)
    if left_out:
        note = f"{len(shown)} of {len(shown) + left_out} operators: those that lose most time by imbalance"
        figure.supxlabel(note, x=0.012, ha="left", fontsize=9, color=_MUTED)
    figure.draw_without_rendering()  # now the panels have their places, and texts a size
    for each in labels:
        separate(each, canvas.get_renderer(), _LABEL_ROWS, _LABEL_GAP)
    return figure


def _shown_operators(history: History) -> tuple[list[str], int]:
    """The operators with a panel in the topology's order, and the number of those without one."""
    reporting = {report.operator for batch in history.batches for report in batch.reports}
    lost = {name: seconds for name, seconds in history.totals.lost_seconds.items() if name in reporting}
    worst = set(sorted(lost, key=lambda name: -lost[name])[:_MOST_PANELS])
    return [name for name in operator_names(history) if name in worst], len(lost) - len(worst)


def _draw_busy(panel: Axes, history: History, operator: str) -> list[Text]:
    """One line an instance; the band between the fastest and the slowest is what re-routing should close. Returns labels."""
    batches = _with_rows(history)
    numbers = np.array([batch.number for batch in batches])
    slots = {slot.index: slot for slot in history.slots}
    seconds: defaultdict[int, np.ndarray] = defaultdict(lambda: np.full(len(batches), np.nan))
    class_of: dict[int, str] = {}
    for position, batch in enumerate(batches):
        for report in reports_of(batch, operator):
            seconds[report.instance][position] = report.busy_seconds
            class_of[report.instance] = slots[report.slot].class_name
    colors = _class_colors(history)
    every = np.ma.masked_invalid(np.stack(list(seconds.values())))
    panel.fill_between(numbers, every.min(axis=0), every.max(axis=0), color=_INK, alpha=0.06, linewidth=0)
    for instance in sorted(seconds):
        peers = [other for other in sorted(seconds) if class_of[other] == class_of[instance]]
        color = _shade(colors[class_of[instance]], peers.index(instance), len(peers))
        panel.plot(numbers, seconds[instance], color=color, linewidth=1.7, marker="o", markersize=2.4)
    top = float(every.max()) or 1.0
    changes = [change for change in history.reconfigurations if change.operator in (operator, SOURCE)]
    _style(panel, f"{shown_name(operator)}: busy time of each instance", "seconds in a batch", "batch")
    panel.set_ylim(0, top * (1.06 + 0.13 * min(_LABEL_ROWS, len(changes))))
    panel.set_xlim(numbers[0] - 0.5, numbers[-1] + 0.5)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    _legend(panel, [(f"{name} executor", colors[name], "-") for name in colors if name in class_of.values()])
    return _mark_reroutings(panel, changes)


def _mark_reroutings(panel: Axes, changes: Sequence[Rerouting]) -> list[Text]:
    """A line before the first batch of each epoch. Returns the labels, one on the other, for `separate`.

    An arrow points from each to its own line, as a row may be crossed by lines of other epochs.
    """
    place = blended_transform_factory(panel.transData, panel.transAxes)
    left, right = panel.get_xlim()
    labels: list[Text] = []
    for change in changes:
        at = change.batch - 0.5
        panel.axvline(at, color=_MARK, linewidth=1.1, linestyle=(0, (4, 3)), alpha=0.8)
        text = f"epoch {change.epoch}: {changed(change)}"
        in_right_half = at > (left + right) / 2
        label = panel.text(
            at,
            0.97,
            f"{text} \N{BLACK RIGHT-POINTING SMALL TRIANGLE}"
            if in_right_half
            else f"\N{BLACK LEFT-POINTING SMALL TRIANGLE} {text}",
            transform=place,
            ha="right" if in_right_half else "left",
            va="top",
            color=_MARK,
            fontsize=9,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )
        label.set_in_layout(False)
        labels.append(label)
    return labels


def _draw_rates(panel: Axes, history: History, baseline: History | None, bound: float | None) -> None:
    entries: list[_Entry] = []
    highest = 0.0
    named = "re-routed" if history.was_rerouted else "this run"
    for run, name, color in ((history, named, _REROUTED), (baseline, "fixed routing", _BASELINE)):
        if run and run.batches:
            highest = max(highest, _draw_rate(panel, run, color))
            entries.append((f"{name}: {formatting.rate(warm_throughput(run))}", color, "-"))
    if bound:
        in_sight = bound <= _BOUND_IN_SIGHT * highest
        if in_sight:
            _draw_bound(panel, history, bound)
            highest = max(highest, bound)
        where = "" if in_sight else ", above the picture"
        entries.append((f"capacity bound: {formatting.rate(bound)}{where}", _INK, "--"))
    begin = _start(history)
    first_under = {batch.epoch: batch.committed_at - batch.seconds - begin for batch in reversed(history.batches)}
    for epoch in sorted({change.epoch for change in history.reconfigurations} & first_under.keys()):
        panel.axvline(first_under[epoch], color=_MARK, linewidth=1.1, linestyle=(0, (4, 3)), alpha=0.8)
    _style(panel, "rows per second", "rows/s", f"seconds since the run's first batch{_meaning(history, bound)}")
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: formatting.tick(value)))
    panel.set_ylim(0, 1.1 * highest or 1.0)
    panel.set_xlim(0, 1.06 * max(panel.dataLim.xmax, 1e-3))  # room for how long each run took
    _legend(panel, entries)


def _draw_bound(panel: Axes, history: History, bound: float) -> None:
    """The bound by the capacities as they were estimated after each batch; a level line if only the last one is known."""
    known = [batch for batch in history.batches if batch.bound > 0]
    if not known:
        panel.axhline(bound, color=_INK, linewidth=1.3, linestyle="--")
        return
    at = [batch.committed_at - _start(history) for batch in known]
    bounds = [batch.bound for batch in known]
    panel.plot(at, bounds, color=_INK, linewidth=1.3, linestyle="--", drawstyle="steps-post")


def _meaning(history: History, bound: float | None) -> str:
    """The meaning of the figures in the legend, to append to a sentence."""
    rates = f"figures without the first {WARMUP_BATCHES} batches" if history.totals.batches > WARMUP_BATCHES else ""
    at_the_end = "the bound by the capacities at the end" if bound else ""
    return "".join(f"; {part}" for part in (rates, at_the_end) if part)


def _draw_rate(panel: Axes, run: History, color: str) -> float:
    """Each batch as a dot, the rolling median as a line, an end mark; returns the highest rate of the line."""
    begin = _start(run)
    timed = [batch for batch in _with_rows(run) if batch.seconds > 0]
    at = np.array([batch.committed_at - begin for batch in timed])
    rates = np.array([batch.rows / batch.seconds for batch in timed])
    half = _SMOOTHED_BATCHES // 2
    smooth = np.array([np.median(rates[max(0, i - half) : i + half + 1]) for i in range(len(rates))])
    panel.plot(at, rates, linestyle="none", marker="o", markersize=3, color=color, alpha=0.35, markeredgewidth=0)
    panel.plot(at, smooth, color=color, linewidth=2.4, solid_capstyle="round")
    if len(at):
        panel.plot(at[-1:], smooth[-1:], marker="o", markersize=7, color=color)
        panel.annotate(
            formatting.duration(at[-1]),
            xy=(at[-1], smooth[-1]),
            xytext=(8, 0),
            textcoords="offset points",
            ha="left",
            va="center",
            color=color,
            fontsize=9,
        )
    return float(smooth.max(initial=0.0))


def _with_rows(run: History) -> Sequence[BatchOutcome]:
    """The batches to draw: without those that only find that there is nothing more, unless there are no others."""
    return [batch for batch in run.batches if batch.rows] or run.batches


def _start(run: History) -> float:
    first = run.batches[0]
    return first.committed_at - first.seconds


def _class_colors(history: History) -> dict[str, str]:
    """A colour for each executor class, the one with the most CPU first: the same in any order of a manifest."""
    largest_first = sorted(history.slots, key=lambda slot: -slot.cpu)
    names = dict.fromkeys(slot.class_name for slot in largest_first)
    return {name: _CLASS_COLORS[index % len(_CLASS_COLORS)] for index, name in enumerate(names)}


def _shade(color: str, index: int, count: int) -> _Color:
    """The class's colour, lighter for later instances, so that neighbours differ."""
    lighter = 0.5 * index / max(1, count)
    red, green, blue = to_rgb(color)
    return (red + (1 - red) * lighter, green + (1 - green) * lighter, blue + (1 - blue) * lighter)


def _style(panel: Axes, title: str, y_label: str, x_label: str) -> None:
    panel.set_title(title, loc="left", fontsize=11, color=_INK)
    panel.set_ylabel(y_label, color=_MUTED)
    panel.set_xlabel(x_label, color=_MUTED)
    panel.tick_params(colors=_MUTED, length=0)
    panel.grid(axis="y", color="#e6e9ec", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.spines["bottom"].set_color("#c3c9cf")


def _legend(panel: Axes, entries: Sequence[_Entry]) -> None:
    """One row above the panel at its right, where no line can run through it."""
    handles = [Line2D([], [], color=color, linestyle=line, linewidth=2.4, label=text) for text, color, line in entries]
    panel.legend(
        handles=handles,
        ncols=max(1, len(handles)),
        loc="lower right",
        bbox_to_anchor=(1.0, 0.99),
        frameon=False,
        fontsize=9,
        labelcolor=_INK,
        handlelength=1.8,
        borderaxespad=0.2,
    )
