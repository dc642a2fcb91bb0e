"""The checkpoint of a topology: immutable files, and one record a batch that says which of them exist."""

from streamtopology.jobs.checkpoint.checkpoint import Checkpoint
from streamtopology.jobs.checkpoint.errors import AlreadyWritten, CheckpointError
from streamtopology.jobs.checkpoint.local_store import LocalStore
from streamtopology.jobs.checkpoint.open_store import open_store
from streamtopology.jobs.checkpoint.records import (
    BatchRecord,
    CommitRecord,
    Copied,
    CopiedFile,
    CopiedPart,
    Header,
    Lease,
    SourceEnd,
    StateRef,
    TableCopy,
)
from streamtopology.jobs.checkpoint.store import Store, Stored

__all__ = [
    "AlreadyWritten",
    "BatchRecord",
    "Checkpoint",
    "CheckpointError",
    "CommitRecord",
    "Copied",
    "CopiedFile",
    "CopiedPart",
    "Header",
    "Lease",
    "LocalStore",
    "SourceEnd",
    "StateRef",
    "Store",
    "Stored",
    "TableCopy",
    "open_store",
]
