"""A checkpoint in a bucket.

An object appears whole, and `If-None-Match: *` lets only one writer create it: this is the port's promise, so there is
little to do here.
"""

from __future__ import annotations

from collections.abc import Sequence

from streamtopology.jobs.bucket import PATIENCE_SECONDS, Bucket, Use
from streamtopology.jobs.checkpoint.errors import AlreadyWritten, CheckpointError
from streamtopology.jobs.checkpoint.filesystem import Content
from streamtopology.jobs.checkpoint.store import Stored


class S3Store(Bucket):
    """The files of a checkpoint as objects below `s3://bucket/prefix`; implements `Store`."""

    folder = None

    def __init__(self, uri: str, patience: float = PATIENCE_SECONDS) -> None:
        if_gone = "put it back from a copy of the checkpoint, or start with an empty checkpoint"
        super().__init__(uri, Use("driver and executors", "checkpoint", if_gone, CheckpointError), patience)

    def write_new(self, path: str, data: Content) -> None:
        if not self.create(path, data):
            raise AlreadyWritten(f"{self.where(path)} is already written")

    def stored(self, folder: str) -> Sequence[Stored]:
        return [Stored(found["path"], found["size"], found["last_modified"].timestamp()) for found in self.listed(folder)]

    def settle(self, folder: str) -> None:
        """Do nothing: an object that is visible is durable."""
