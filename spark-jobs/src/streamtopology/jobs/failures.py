"""Errors of a running topology and of its commands, as sentences: what is wrong, where, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class TopologyFailed(Exception):
    """The run stops; the checkpoint is good and the same command goes on from the last committed batch."""


class WrongUse(ValueError):
    """A command was asked for what cannot be; the message says what is allowed. Exit code 2."""


class TupleFailed(TopologyFailed):
    """An operator raised on one tuple."""

    def __init__(
        self, operator: str, batch: int, instance: int, key: Mapping[str, Any], row: Mapping[str, Any], reason: str
    ) -> None:
        super().__init__(operator, batch, instance, key, row, reason)
        self.operator, self.batch, self.instance = operator, batch, instance
        self.key, self.row, self.reason = key, row, reason

    def __str__(self) -> str:
        key = ", ".join(f"{name}={value!r}" for name, value in self.key.items()) or "none"
        return (
            f"operator {self.operator!r} failed on one tuple in batch {self.batch} at instance {self.instance}, key {key}: "
            f"{self.reason}. The tuple: {dict(self.row)}. Nothing of this batch was committed. Correct the operator and "
            "start again, or set spec.onBadTuple: deadLetter to set such tuples aside and go on."
        )


class RowFailed(TopologyFailed):
    """A source's select or where raised on one row."""

    def __init__(self, source: str, batch: int, row: Mapping[str, Any], reason: str) -> None:
        super().__init__(source, batch, row, reason)
        self.source, self.batch, self.row, self.reason = source, batch, row, reason

    def __str__(self) -> str:
        return (
            f"source {self.source!r} failed on one row in batch {self.batch}: {self.reason}. The row: {dict(self.row)}. "
            "Nothing of this batch was committed. Correct the source's select or where (TRY_CAST and TRY give NULL) and start "
            "again, or set spec.onBadTuple: deadLetter to set such rows aside and go on."
        )
