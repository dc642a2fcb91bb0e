"""Errors of a running topology and of its commands, as sentences: what is wrong, where, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamtopology.contract.errors import InvalidInput, StreamTopologyError

# Characters of a value, and at either end of a reason, which may quote one, that a message has at most.
_MOST = 200


def shown_row(row: Mapping[str, Any]) -> str:
    """A row for people, as Python spells it; long values are cut."""
    return "{" + ", ".join(f"{name!r}: {_shown(value)}" for name, value in row.items()) + "}"


def shown_key(key: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_shown(value)}" for name, value in key.items())


def shown_reason(reason: str) -> str:
    """The reason why a row failed, for people; the values that it quotes make it long."""
    return reason if len(reason) <= 4 * _MOST else f"{reason[: 2 * _MOST]}... ({len(reason):,} characters) ...{reason[-_MOST:]}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MOST else f"{text[:_MOST]}... ({len(text):,} characters)"


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
        return (
            f"operator {self.operator!r} failed on one tuple in batch {self.batch} at instance {self.instance}, key "
            f"{shown_key(self.key) or 'none'}: {shown_reason(self.reason)}. The tuple: {shown_row(self.row)}. Nothing of this "
            "batch was committed. Correct the operator and start again, or set spec.onBadTuple: deadLetter to set such tuples "
            "aside and continue."
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


class PartsDoNotFit(TopologyFailed):
    """A sum of integers leaves 64 bits only as parts of its key are put together, so that no single tuple is at fault.

    `operator`, `batch`: where that happens; "" and None where the parts are only read.
    """

    def __init__(self, key: Mapping[str, Any], column: str, operator: str = "", batch: int | None = None) -> None:
        super().__init__(key, column, operator, batch)
        self.key, self.column, self.operator, self.batch = key, column, operator, batch

    def __str__(self) -> str:
        where = f"operator {self.operator!r}, " if self.operator else ""
        text = f"{where}key {shown_key(self.key)}, column {self.column!r}: the sum of its parts does not fit into 64 bits"
        if self.batch is None:
            return f"{text}; cast the column to DOUBLE in a map"
        gathered = self.batch - 1
        return (
            f"{text} in batch {self.batch}. By policy: auto several instances gathered them in batch {gathered}, and each part "
            "fits, so no single tuple can be set aside. Nothing of this batch was committed. Return to a batch before "
            f"{gathered} with `streamtopology state rollback MANIFEST --to BATCH`, and set policy: mixed, by which the tuple "
            "that does not fit is a bad tuple; or cast the column to DOUBLE in a map before the operator, and start "
            "with an empty checkpoint."
        )


class RowFailed(TopologyFailed):
    """A source's select or where raised on one row."""

    def __init__(self, source: str, batch: int, row: Mapping[str, Any], reason: str) -> None:
        super().__init__(source, batch, row, reason)
        self.source, self.batch, self.row, self.reason = source, batch, row, reason

    def __str__(self) -> str:
        return (
            f"source {self.source!r} failed on one row in batch {self.batch}: {shown_reason(self.reason)}. "
            f"The row: {shown_row(self.row)}. Nothing of this batch was committed. Correct the source's select or where "
            "(TRY_CAST and TRY give NULL) and start again, or set spec.onBadTuple: deadLetter to set such rows aside and "
            "continue."
        )
