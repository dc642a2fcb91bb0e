"""The error of a checkpoint."""

from __future__ import annotations

from streamtopology.contract.errors import StreamTopologyError


class CheckpointError(StreamTopologyError):
    """The checkpoint cannot be read or written; the message names the file, says why and what can be done."""


class AlreadyWritten(CheckpointError):
    """A file of this attempt exists: Spark runs one of its tasks for the second time, on another executor."""
