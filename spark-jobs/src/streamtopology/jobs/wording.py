"""How quantities and re-routings are put in words, the same in the live view, the summary and the picture."""

from __future__ import annotations

from streamtopology.jobs.history import Reconfiguration
from streamtopology.routing.capacity import SOURCE
from streamtopology.routing.wording import count, duration, percent, rate, size

__all__ = ["changed", "count", "duration", "figure", "micros", "percent", "rate", "rerouting", "size", "tick"]


def tick(value: float) -> str:
    """A round figure at an axis: 800, 20 k, 2.5 M."""
    for magnitude, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= magnitude:
            return f"{value / magnitude:g}{unit}"
    return f"{value:g}"


def figure(value: float | None) -> str:
    """A measured figure of any kind: 0.00123, 1.25, 607, 16,384; - where there is none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"


def micros(seconds: float) -> str:
    """What one row costs: 0.5 us, 8 us, 1,200 us."""
    return f"{figure(round(1e6 * seconds, 3))} us"


def changed(change: Reconfiguration) -> str:
    """What a re-routing changed: `tail moved 412 keys, 1.20 MB`. Before any state, tables move shares of rows only."""
    if change.operator == SOURCE:
        return "sources are read in other shares" if change.predicted_gain else "no keys moved"
    if not change.keys_moved:
        return f"{change.operator} moved no keys"
    return f"{change.operator} moved {count(change.keys_moved)} keys, {size(change.bytes_moved)}"


def rerouting(change: Reconfiguration) -> str:
    """One re-routing in a line: `epoch 3 at batch 14: tail moved 412 keys, 1.20 MB, predicted gain 38 %`. Of one that was
    applied, or decided by the operator on Kubernetes, nothing was predicted here."""
    text = f"epoch {change.epoch} at batch {change.batch}: {changed(change)}"
    if change.predicted_gain:
        text += f", predicted gain {percent(change.predicted_gain)}"
    return text if change.measured_gain is None else f"{text}, measured {percent(change.measured_gain)}"
