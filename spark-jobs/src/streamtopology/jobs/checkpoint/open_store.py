"""From a checkpoint's URI to its store."""

from __future__ import annotations

import re

from streamtopology.jobs.checkpoint.errors import CheckpointError
from streamtopology.jobs.checkpoint.local_store import LocalStore
from streamtopology.jobs.checkpoint.location import local_folder
from streamtopology.jobs.checkpoint.store import Store

_OTHER = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def open_store(uri: str) -> Store:
    """The store for a local path, a file:// URI or s3://bucket/prefix."""
    scheme = _OTHER.match(uri)
    if uri.startswith("s3://"):
        from streamtopology.jobs.checkpoint.s3_store import S3Store  # loads obstore only for buckets

        return S3Store(uri)
    if scheme and scheme[1].lower() != "file":
        raise CheckpointError(
            f"checkpoint {uri}: {scheme[1]}:// is not supported; use a local path or file:// on storage that all "
            "executors share, or s3://bucket/prefix"
        )
    return LocalStore(local_folder(uri))
