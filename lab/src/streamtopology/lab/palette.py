"""The colours of figures."""

from __future__ import annotations

BACKGROUND, INK, MUTED, GRID = "#ffffff", "#23292f", "#6b7680", "#e6e9ec"
# Every colour that a figure is made of; a page replaces them to fit its own light or dark background.
COLORS = ("#1b6ca8", "#e8710a", "#2a9d5c", "#b5179e", "#6a51a3", "#8c6d31", "#c8442f", "#1397a5")
