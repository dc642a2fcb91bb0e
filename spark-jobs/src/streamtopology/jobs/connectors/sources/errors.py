"""Errors of sources."""

from __future__ import annotations

from streamtopology.topology.schema import SchemaError


class SourceError(SchemaError):
    """A source that cannot be read as declared; the message names the source, the place and what to do."""


class BadFileError(SourceError):
    """A file that was handed out is gone, cut or damaged; the cause is the error of the system or of Arrow, if there is one.

    `finding`: the sentence without the way out of a batch that `otherwise` names.
    """

    def __init__(self, finding: str, otherwise: str = "") -> None:
        super().__init__(f"{finding}, {otherwise}" if otherwise else finding)
        self.finding = finding


class TableError(SourceError):
    """A table that is not there, is another one, or is not read."""


class CatalogError(SourceError):
    """A catalogue of tables that refuses what is asked of it, or that is away for longer than it is waited for."""


class BucketError(SourceError):
    """A bucket that refuses what is asked of it, or that is away for longer than it is waited for."""
