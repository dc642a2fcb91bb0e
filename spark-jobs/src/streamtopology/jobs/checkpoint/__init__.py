"""The checkpoint of a topology: immutable files, and one record a batch that says which of them exist."""

from streamtopology.jobs.checkpoint.checkpoint import Checkpoint
from streamtopology.jobs.checkpoint.records import (
    BatchRecord,
    CommitRecord,
    Copied,
    CopiedFile,
    CopiedPart,
    Header,
    Lease,
    StateRef,
)
from streamtopology.jobs.checkpoint.store import CheckpointError, LocalStore, Store, open_store

__all__ = [
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
    "StateRef",
    "Store",
    "open_store",
]
