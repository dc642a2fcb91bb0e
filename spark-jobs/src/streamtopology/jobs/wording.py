"""How quantities and re-routings are put in words, the same in the live view, the summary and the picture."""

from __future__ import annotations

from streamtopology.jobs.history import Reconfiguration


def count(value: float) -> str:
    """412, 15.3 k, 1.70 M: three figures are what a person compares."""
    return _scaled(value, 1000, ("", " k", " M", " G", " T"))


def size(value: float) -> str:
    """Bytes in decimal units: 412 B, 1.20 MB."""
    return _scaled(value, 1000, (" B", " kB", " MB", " GB", " TB"))


def tick(value: float) -> str:
    """A round figure at an axis: 800, 20 k, 2.5 M."""
    for magnitude, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= magnitude:
            return f"{value / magnitude:g}{unit}"
    return f"{value:g}"


def rate(value: float | None) -> str:
    return "-" if value is None else f"{count(value)} rows/s"


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def duration(seconds: float) -> str:
    """85 ms, 3.2 s, 41 s, 2 min 05 s."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"


def rerouting(change: Reconfiguration) -> str:
    """One re-routing in a line: `epoch 3 at batch 14: tail moved 412 keys, 1.20 MB, predicted gain 38 %`."""
    text = (
        f"epoch {change.epoch} at batch {change.batch}: {change.operator} moved {count(change.keys_moved)} keys, "
        f"{size(change.bytes_moved)}, predicted gain {percent(change.predicted_gain)}"
    )
    return text if change.measured_gain is None else f"{text}, measured {percent(change.measured_gain)}"


def _scaled(value: float, step: int, units: tuple[str, ...]) -> str:
    magnitude = 0
    while abs(value) >= step and magnitude < len(units) - 1:
        value /= step
        magnitude += 1
    if magnitude == 0:
        return f"{value:.0f}{units[0]}"
    decimals = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:.{decimals}f}{units[magnitude]}"
