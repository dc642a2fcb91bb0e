"""The manifest of a sink that writes files: who writes there, and an entry for each of the newest batches."""

from __future__ import annotations

import json

from streamtopology.jobs.connectors.sinks.base import SinkError, Writer

MANIFEST = "_manifest"
OWNER = f"{MANIFEST}/owner.json"
KEPT_ENTRIES = 1000
_END = "ends"


def batch_name(batch: int) -> str:
    """The name of a batch's file, but for its suffix."""
    return f"batch-{batch:09d}"


def entry_name(batch: int) -> str:
    """The place of a batch's entry."""
    return f"{MANIFEST}/{batch:09d}.json"


def entry_text(batch: int, rows: int, end: str | None) -> str:
    """The entry of a batch that ends at `end` in sources and event time."""
    return json.dumps({"batch": batch, "rows": rows} | ({} if end is None else {_END: end}))


def is_another(entry: str | bytes | None, end: str | None) -> bool:
    """True if the batch of an entry ends elsewhere; one that is gone, or of a former version, does not say where."""
    known = json.loads(entry).get(_END) if end is not None and entry is not None else None
    return known is not None and known != end


def owner_text(writer: Writer, sink: str) -> str:
    """The content of the file that says who writes to a place."""
    return json.dumps(_wire(writer) | {"sink": sink})


def is_by(owner: str | bytes, writer: Writer) -> bool:
    """True if `writer` is the owner."""
    return json.loads(owner).items() >= _wire(writer).items()


def refuse_another(place: str, owner: str | bytes, writer: Writer, sink: str) -> None:
    """Raise SinkError if a place has the output of another run, or of another sink than `sink`."""
    found = json.loads(owner)
    named = found.pop("sink", sink)  # former versions did not write it
    if found != _wire(writer):
        raise SinkError(
            f"{place} holds the output of topology {found['topology']!r}, checkpoint {found['run']}; this is "
            f"{writer.topology!r}, checkpoint {writer.run}: name another path, delete it, or continue with its checkpoint"
        )
    if named != sink:
        raise SinkError(
            f"{place} holds the output of sink {named!r} of topology {writer.topology!r}; this is its sink {sink!r}: name "
            "another path, give the sink its former name, or delete it"
        )


def _wire(writer: Writer) -> dict[str, str]:
    return {"topology": writer.topology, "run": writer.run}
