"""Figures as the page gets them: three significant digits, and the spread of many loads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np

# Least, 10 %, median, 90 %, most.
QUANTILES = (0.0, 0.1, 0.5, 0.9, 1.0)


@overload
def rounded(value: float) -> float: ...
@overload
def rounded(value: None) -> None: ...
def rounded(value: float | None) -> float | None:
    """The value with three significant digits; None stays None."""
    return None if value is None else float(f"{value:.3g}")


def spread(loads: Sequence[float]) -> tuple[float, ...]:
    """The `QUANTILES` of loads, of which there is at least one."""
    return tuple(rounded(float(value)) for value in np.quantile(loads, QUANTILES))
