"""From a checkpoint's URI to its store."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlparse

from streamtopology.jobs.checkpoint.errors import CheckpointError
from streamtopology.jobs.checkpoint.local_store import LocalStore
from streamtopology.jobs.checkpoint.store import Store


def open_store(uri: str) -> Store:
    """The store for a local path, a file:// URI or s3://bucket/prefix."""
    parsed = urlparse(uri)
    if parsed.scheme == "s3":
        from streamtopology.jobs.checkpoint.s3_store import S3Store  # loads obstore only for buckets

        return S3Store(uri)
    if parsed.scheme not in ("", "file"):
        raise CheckpointError(
            f"checkpoint {uri}: {parsed.scheme}:// is not supported; use a local path or file:// on storage that all "
            "executors share, or s3://bucket/prefix"
        )
    return LocalStore(Path(unquote(parsed.path) if parsed.scheme else uri))
