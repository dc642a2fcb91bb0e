"""Errors of a running topology and of its commands, as sentences: what is wrong, where, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamtopology.contract.errors import InvalidInput, StreamTopologyError


class TopologyFailed(StreamTopologyError):
    """The run stops. Its checkpoint is good: the same command continues after the last committed batch."""


class AnotherDriver(TopologyFailed):
    """Another driver works on the same checkpoint; of two, one stops."""


class PrecopyUnusable(StreamTopologyError):
    """Pre-copied state cannot be used; the state it was copied from can."""


class BatchTooLarge(StreamTopologyError):
    """The rows of a batch are larger than was foreseen; a smaller batch can pass."""


class WrongUse(InvalidInput):
    """A command was asked for what cannot be; the message says what is allowed."""

    exit_code = 2


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
            "start again, or set spec.onBadTuple: deadLetter to set such tuples aside and continue."
        )


class ErrorNotRepeated(TopologyFailed):
    """An operator raised, and did not when it was run again on the same tuples."""

    def __init__(self, operator: str, batch: int, instance: int, reason: str) -> None:
        super().__init__(operator, batch, instance, reason)
        self.operator, self.batch, self.instance, self.reason = operator, batch, instance, reason

    def __str__(self) -> str:
        return (
            f"operator {self.operator!r} failed in batch {self.batch} at instance {self.instance}: {self.reason}. The error "
            "did not repeat when the same tuples were run again, so none of them is at fault. Nothing of this batch was "
            "committed. If the operator asks a service, see whether that was away; then start again."
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
            "again, or set spec.onBadTuple: deadLetter to set such rows aside and continue."
        )
