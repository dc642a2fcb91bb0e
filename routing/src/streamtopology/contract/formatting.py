"""Quantities as text, the same in the live view, the summary, the picture, in events and in status."""

from __future__ import annotations

import math


def count(value: float) -> str:
    """412, 15.3 k, 1.70 M: three significant figures."""
    return _scaled(value, ("", " k", " M", " G", " T"))


def size(value: float) -> str:
    """Bytes in decimal units: 412 B, 1.20 MB."""
    return _scaled(value, (" B", " kB", " MB", " GB", " TB"))


def clipped(text: str, most: int) -> str:
    """The text with `most` characters at most, of which the last is an ellipsis if there were more."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def rate(value: float | None) -> str:
    return "-" if value is None else f"{count(value)} rows/s"


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:z.0f} %"


def duration(seconds: float) -> str:
    """85 ms, 3.2 s, 41 s, 2 min 05 s."""
    if round(1000 * seconds) < 1000:
        return f"{1000 * seconds:.0f} ms"
    if round(seconds, 1) < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"


def span(least: float, most: float) -> str:
    """The durations from `least` to `most` seconds: 24 s to 41 s; one where both read the same."""
    first, last = duration(least), duration(most)
    return first if first == last else f"{first} to {last}"


def tick(value: float) -> str:
    """A round figure at an axis: 800, 20 k, 2.5 M."""
    for magnitude, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= magnitude:
            return f"{value / magnitude:g}{unit}"
    return f"{value:g}"


def figure(value: float | None) -> str:
    """A measured figure of any kind: 0.00123, 1.25, 607, 16,384; - for None."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"


def micros(seconds: float) -> str:
    """The cost of one row: 0.5 us, 8 us, 1,200 us."""
    return f"{figure(round(1e6 * seconds, 3))} us"


def _scaled(value: float, units: tuple[str, ...]) -> str:
    """Three figures and the unit of the thousand that they are in after rounding."""
    if round(value) < 1000:
        return f"{value:.0f}{units[0]}"
    value = float(f"{value:.3g}")
    magnitude = min(len(units) - 1, int(math.log10(value)) // 3)
    value /= 1000**magnitude
    decimals = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{decimals}f}{units[magnitude]}"


def counted(count: int, one: str, many: str) -> str:
    """A number of things with their noun: `1 batch`, `12,000 batches`."""
    return f"1 {one}" if count == 1 else f"{count:,} {many}"
