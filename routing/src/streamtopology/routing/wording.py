"""How quantities are put in words, the same in the live view, the summary, the picture, in events and in status."""

from __future__ import annotations

import math


def count(value: float) -> str:
    """412, 15.3 k, 1.70 M: three figures are what a person compares."""
    return _scaled(value, ("", " k", " M", " G", " T"))


def size(value: float) -> str:
    """Bytes in decimal units: 412 B, 1.20 MB."""
    return _scaled(value, (" B", " kB", " MB", " GB", " TB"))


def rate(value: float | None) -> str:
    return "-" if value is None else f"{count(value)} rows/s"


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def duration(seconds: float) -> str:
    """85 ms, 3.2 s, 41 s, 2 min 05 s."""
    if round(1000 * seconds) < 1000:
        return f"{1000 * seconds:.0f} ms"
    if round(seconds, 1) < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"


def _scaled(value: float, units: tuple[str, ...]) -> str:
    """Three figures and the unit of the thousand that they are in after rounding."""
    if round(value) < 1000:
        return f"{value:.0f}{units[0]}"
    value = float(f"{value:.3g}")
    magnitude = min(len(units) - 1, int(math.log10(value)) // 3)
    value /= 1000**magnitude
    decimals = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{decimals}f}{units[magnitude]}"
