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
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import blended_transform_factory

from streamtopology.jobs import wording
from streamtopology.jobs.history import History, Reconfiguration
from streamtopology.jobs.measures import after_warmup, heaviest_operators, reports_of, throughput
from streamtopology.routing.capacity import SOURCE

_Color = tuple[float, float, float]
_Entry = tuple[str, str | _Color, Literal["-", "--"]]

_CLASS_COLORS = ("#1b6ca8", "#e8710a", "#6a51a3", "#b5179e", "#8c6d31")
_REROUTED = "#2a9d5c"
_BASELINE = "#8d99a6"
_MARK = "#7a1f3d"
_INK = "#23292f"
_MUTED = "#6b7680"

_SMOOTHED_BATCHES = 5
_SHOWN_SHARE = 0.5  # an operator with this share of the heaviest one's busy seconds gets a panel, too
_MOST_PANELS = 2
_LABEL_ROWS = 3
_MOST_LABELS = 6


class PictureError(Exception):
    """The picture cannot be drawn; the message says why."""


def draw_run(history: History, baseline: History | None, path: Path, bound: float | None = None) -> None:
    """Draw the run `history` beside `baseline` (the same input under fixed routing) into `path`, `.png` or `.svg`.

    Above: busy seconds of each instance by batch, of the heaviest operators, with the re-routings. Below: source rows/s
    over the time of each run, and the capacity `bound` in rows/s. Raises `PictureError` for another suffix or when
    the run has no batches.
    """
    if path.suffix not in {".png", ".svg"}:
        raise PictureError(f"cannot draw {path}: the name must end in .png or .svg")
    operators = heaviest_operators(history, _SHOWN_SHARE)[:_MOST_PANELS]
    if not operators:
        raise PictureError(f"cannot draw {path}: no batch of {history.topology!r} was committed")
    with matplotlib.rc_context({"font.size": 10, "svg.hashsalt": history.topology}):
        layout = ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.12)
        figure = Figure(figsize=(11, 3.7 + 3.1 * len(operators)), layout=layout, facecolor="white")
        FigureCanvasAgg(figure)
        panels = figure.subplots(len(operators) + 1, 1, squeeze=False)[:, 0]
        for panel, operator in zip(panels, operators, strict=False):
            _draw_busy(panel, history, operator)
        _draw_rates(panels[-1], history, baseline, bound)
        figure.suptitle(_title(history, baseline), x=0.012, ha="left", fontsize=14, fontweight="bold", color=_INK)
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)


def _title(history: History, baseline: History | None) -> str:
    rerouted = throughput(after_warmup(history.batches))
    fixed = throughput(after_warmup(baseline.batches)) if baseline else None
    if not history.reconfigurations:
        return f"{history.topology}: load and throughput"
    if not rerouted or not fixed:
        return f"{history.topology}: re-routed while it runs"
    return f"{history.topology}: {rerouted / fixed:.1f}x the throughput, re-routed while it runs"


def _draw_busy(panel: Axes, history: History, operator: str) -> None:
    """One line an instance; the band between the fastest and the slowest is what re-routing should close."""
    batches = history.batches
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
    _style(panel, f"{operator}: busy time of each instance", "seconds in a batch", "batch")
    panel.set_ylim(0, top * (1.06 + 0.09 * min(_LABEL_ROWS, len(changes))))
    panel.set_xlim(numbers[0] - 0.5, numbers[-1] + 0.5)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    _mark_reroutings(panel, changes)
    _legend(panel, [(f"{name} executor", colors[name], "-") for name in colors if name in class_of.values()])


def _mark_reroutings(panel: Axes, changes: Sequence[Reconfiguration]) -> None:
    """A line before the first batch of each epoch; the first few have labels, in rows so that neighbours stay apart."""
    place = blended_transform_factory(panel.transData, panel.transAxes)
    left, right = panel.get_xlim()
    for index, change in enumerate(changes):
        at = change.batch - 0.5
        panel.axvline(at, color=_MARK, linewidth=1.1, linestyle=(0, (4, 3)), alpha=0.8)
        if index < _MOST_LABELS:
            text = f"epoch {change.epoch}: {wording.changed(change)}"
            in_right_half = at > (left + right) / 2
            panel.text(
                at,
                0.96 - 0.08 * (index % _LABEL_ROWS),
                f"{text}  " if in_right_half else f"  {text}",
                transform=place,
                ha="right" if in_right_half else "left",
                va="top",
                color=_MARK,
                fontsize=9,
                bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.8},
            )


def _draw_rates(panel: Axes, history: History, baseline: History | None, bound: float | None) -> None:
    entries: list[_Entry] = []
    highest = bound or 0.0
    for run, name, color in ((history, "re-routed", _REROUTED), (baseline, "fixed routing", _BASELINE)):
        if run and run.batches:
            highest = max(highest, _draw_rate(panel, run, color))
            entries.append((f"{name}: {wording.rate(throughput(after_warmup(run.batches)))}", color, "-"))
    if bound:
        panel.axhline(bound, color=_INK, linewidth=1.3, linestyle="--")
        entries.append((f"capacity bound: {wording.rate(bound)}", _INK, "--"))
    begin = _start(history)
    first_under = {batch.epoch: batch.committed_at - batch.seconds - begin for batch in reversed(history.batches)}
    for epoch in sorted({change.epoch for change in history.reconfigurations} & first_under.keys()):
        panel.axvline(first_under[epoch], color=_MARK, linewidth=1.1, linestyle=(0, (4, 3)), alpha=0.8)
    _style(panel, "rows per second", "rows/s", "seconds since the run's first batch")
    panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: wording.tick(value)))
    panel.set_ylim(0, 1.1 * highest or 1.0)
    panel.set_xlim(left=0)
    _legend(panel, entries)


def _draw_rate(panel: Axes, run: History, color: str) -> float:
    """Each batch as a dot, the rolling median as a line, an end mark; returns the highest rate of the line."""
    begin = _start(run)
    timed = [batch for batch in run.batches if batch.seconds > 0]
    at = np.array([batch.committed_at - begin for batch in timed])
    rates = np.array([batch.rows / batch.seconds for batch in timed])
    half = _SMOOTHED_BATCHES // 2
    smooth = np.array([np.median(rates[max(0, i - half) : i + half + 1]) for i in range(len(rates))])
    panel.plot(at, rates, linestyle="none", marker="o", markersize=3, color=color, alpha=0.35, markeredgewidth=0)
    panel.plot(at, smooth, color=color, linewidth=2.4, solid_capstyle="round")
    if len(at):
        panel.plot(at[-1:], smooth[-1:], marker="o", markersize=7, color=color)
        panel.annotate(
            f"done after {wording.duration(at[-1])}",
            xy=(at[-1], smooth[-1]),
            xytext=(0, -9),
            textcoords="offset points",
            ha="right",
            va="top",
            color=color,
            fontsize=9,
        )
    return float(smooth.max(initial=0.0))


def _start(run: History) -> float:
    first = run.batches[0]
    return first.committed_at - first.seconds


def _class_colors(history: History) -> dict[str, str]:
    """A colour for each executor class, in the order of the slots."""
    names = dict.fromkeys(slot.class_name for slot in history.slots)
    return {name: _CLASS_COLORS[index % len(_CLASS_COLORS)] for index, name in enumerate(names)}


def _shade(color: str, index: int, count: int) -> _Color:
    """The class's colour, lighter for later instances, so that neighbours can be told apart."""
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
