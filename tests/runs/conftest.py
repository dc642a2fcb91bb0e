"""Fixtures of runs on real clusters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.gate import GATED, Gate


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """A gate, shut; open at the end, so that no worker waits for ever."""
    (tmp_path / "gated.py").write_text(GATED)
    gate = Gate(tmp_path / "gate")
    yield gate
    gate.open()
