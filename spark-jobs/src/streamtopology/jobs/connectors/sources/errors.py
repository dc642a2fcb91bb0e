"""Errors of sources."""

from __future__ import annotations

from streamtopology.topology.schema import SchemaError


class SourceError(SchemaError):
    """A source that cannot be read as declared; the message names the source, the place and what to do."""
