"""Labels in a picture that do not overlap: each gets a row of its own where its neighbours leave it no room."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.text import Text
from matplotlib.transforms import Bbox

_ROW_SPACING = 1.25
_BELOW_TICKS = 20  # points from the axis down to the line of its name


def separate(labels: Sequence[Text], renderer: RendererBase, rows: int, gap: float) -> None:
    """Put each label into the first of `rows` rows, from the top, where it is `gap` pixels from all others there.

    Labels without room are hidden, and their number is given below the panel.
    """
    ends: list[list[Bbox]] = [[] for _ in range(rows)]
    hidden = 0
    for label in labels:
        box = label.get_window_extent(renderer)
        row = next((i for i, taken in enumerate(ends) if all(_apart(box, other, gap) for other in taken)), None)
        if row is None or not _inside(label, box):
            label.set_visible(False)
            hidden += 1
            continue
        ends[row].append(box)
        _move_down(label, row * box.height * _ROW_SPACING)
    _note_hidden(labels, hidden)


def _apart(box: Bbox, other: Bbox, gap: float) -> bool:
    return box.x0 > other.x1 + gap or box.x1 < other.x0 - gap


def _inside(label: Text, box: Bbox) -> bool:
    """True if the label does not run out of its panel."""
    panel = label.axes
    if panel is None:
        return False
    edges = panel.get_window_extent()
    return box.x0 >= edges.x0 - 1 and box.x1 <= edges.x1 + 1


def _move_down(label: Text, pixels: float) -> None:
    panel = label.axes
    assert panel is not None
    x, y = label.get_position()
    label.set_position((x, y - pixels / panel.get_window_extent().height))


def _note_hidden(labels: Sequence[Text], hidden: int) -> None:
    """Say at the right of the panel's x axis how many labels had no room."""
    panel = labels[0].axes if labels else None
    if isinstance(panel, Axes) and hidden:
        panel.annotate(
            f"{hidden} {'re-routing' if hidden == 1 else 're-routings'} without a label",
            xy=(1.0, 0.0),
            xycoords="axes fraction",
            xytext=(0, -_BELOW_TICKS),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize=9,
            color=labels[0].get_color(),
        )
