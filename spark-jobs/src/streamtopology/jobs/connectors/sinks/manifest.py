"""The manifest of a sink that writes files: who writes there, and an entry for each of the newest batches."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from streamtopology.contract.format_number import FORMAT, check_format
from streamtopology.jobs.connectors.sinks.base import SinkError, Writer, another_batch, staged_table
from streamtopology.jobs.connectors.sinks.partitions import is_folder_of

MANIFEST_FORMAT = 1
MANIFEST = "_manifest"
OWNER = f"{MANIFEST}/owner.json"
# The newest batch that is divided into partitions, and its files: those of a run that died are known by it.
PLACING = f"{MANIFEST}/placing.json"
KEPT_ENTRIES = 1000
_END = "ends"
_PARTITIONS = "partitionBy"
_BATCH = re.compile(r"batch-\d{9,}(\.parquet|\.jsonl|\.csv)?")
_DRAFT = re.compile(r"\.batch-\d{9,}(-\d{5,})?\.(draft|former)")
_PART = re.compile(r"part-\d{5,}\.(parquet|jsonl|csv|draft)")
_IN_MANIFEST = re.compile(rf"{MANIFEST}/\.?(\d{{9,}}|owner|placing)\.json")


def batch_name(batch: int) -> str:
    """The name of a batch's file, but for its suffix."""
    return f"batch-{batch:09d}"


def is_batch(name: str) -> bool:
    """True for the name of a batch's file, or of its folder of files; others may have names that begin like these."""
    return _BATCH.fullmatch(name) is not None


def is_draft(name: str) -> bool:
    """True for the name of a batch's file or folder that is not in place yet, or not any more."""
    return _DRAFT.fullmatch(name) is not None


def is_part(name: str) -> bool:
    """True for the name of a file in a batch's folder."""
    return _PART.fullmatch(name) is not None


def is_in_manifest(path: str) -> bool:
    """True for the place of an entry, of the owner's file, or of a draft of one."""
    return _IN_MANIFEST.fullmatch(path) is not None


def unknown_batch(place: str) -> SinkError:
    """The refusal to write over a file that has a batch's name, and other rows."""
    return SinkError(
        f"{place} is there already, with other rows, and was not written by this checkpoint: move it away, or name another path"
    )


def entry_name(batch: int) -> str:
    """The place of a batch's entry."""
    return f"{MANIFEST}/{batch:09d}.json"


def entry_text(batch: int, rows: int, end: str | None) -> str:
    """The entry of a batch that ends at `end` in sources and event time."""
    return json.dumps({"batch": batch, "rows": rows} | ({} if end is None else {_END: end}))


def is_another(place: str, batch: int, entry: str | bytes | None, end: str | None) -> bool:
    """True if the batch of an entry ends elsewhere; one that is gone does not say where.

    Raises SinkError for an entry that nobody can read, as the other questions about what a place holds do.
    """
    known = _content(place, entry_name(batch), entry).get(_END) if end is not None and entry is not None else None
    return known is not None and known != end


def refuse_other_rows(
    place: str, batch: int, entry: bytes | None, end: str | None, files: Sequence[Path], entered: Collection[int]
) -> None:
    """Raise SinkError for a batch of a number that the sink is past, unless it is the one that was published.

    `entry`: of this number, if there is one; `entered`: all numbers with one. A batch between them was published without rows.
    """
    if is_another(place, batch, entry, end):
        raise another_batch(place, batch)
    if batch not in entered and any(known < batch for known in entered):
        table = staged_table(files)
        if table is not None and table.num_rows:
            raise another_batch(place, batch)


def placing_text(batch: int, files: Sequence[str]) -> str:
    """The content of `PLACING`: files that are about to be put into their places, one after the other."""
    return json.dumps({"batch": batch, "files": list(files)})


def unentered_files(place: str, placing: bytes | None, newest: int, by: Sequence[str]) -> list[str]:
    """The files of a batch that was being put into its places, and is not the `newest` entered one or before it."""
    noted = {} if placing is None else _content(place, PLACING, placing)
    batch, files = noted.get("batch"), noted.get("files")
    if not isinstance(batch, int) or not isinstance(files, list) or batch <= newest:
        return []
    return [path for path in files if isinstance(path, str) and is_data(path, by)]


def owner_text(writer: Writer, sink: str, by: Sequence[str]) -> str:
    """The content of the file that says who writes to a place, and how: `by` names the columns of partitions."""
    partitions = {_PARTITIONS: list(by)} if by else {}
    return json.dumps({FORMAT: MANIFEST_FORMAT} | _wire(writer) | {"sink": sink} | partitions)


def partitions_in(place: str, owner: str | bytes) -> list[str]:
    """The columns that a place is partitioned by."""
    return partitions_of(_content(place, OWNER, owner))


def partitions_of(owner: Mapping[str, object]) -> list[str]:
    found = owner.get(_PARTITIONS)
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def is_data(path: str, by: Sequence[str]) -> bool:
    """True for the place of a batch's file or folder, where rows are partitioned by these columns, or by none."""
    folder, _, name = path.rpartition("/")
    return is_batch(name) and is_folder_of(folder, by)


def is_by(place: str, owner: str | bytes, writer: Writer) -> bool:
    """True if `writer` is the owner."""
    return _content(place, OWNER, owner).items() >= _wire(writer).items()


def refuse_another(place: str, owner: str | bytes, writer: Writer, sink: str, by: Sequence[str]) -> None:
    """Raise SinkError if a place has the output of another run or version, of another sink than `sink`, or in other folders."""
    found = _content(place, OWNER, owner)
    check_format(found, MANIFEST_FORMAT, f"the output in {place}", "name another path, or delete it", SinkError)
    if not found.items() >= _wire(writer).items():
        raise SinkError(
            f"{place} holds the output of topology {found.get('topology')!r}, checkpoint {found.get('run')}; this is "
            f"{writer.topology!r}, checkpoint {writer.run}: name another path, delete it, or continue with its checkpoint"
        )
    if (named := found.get("sink")) != sink:
        raise SinkError(
            f"{place} holds the output of sink {named!r} of topology {writer.topology!r}; this is its sink {sink!r}: name "
            "another path, give the sink its former name, or delete it"
        )
    if why := other_folders(place, partitions_of(found), by):
        raise SinkError(f"sink {sink!r}: {why}")


def other_folders(place: str, there: Sequence[str], by: Sequence[str]) -> str | None:
    """A sentence if rows by these columns would lie in other folders than the rows that are there; None if not."""
    if list(there) == list(by):
        return None
    names = f"partitioned by {', '.join(there)}" if there else "not partitioned"
    wanted = f"is {', '.join(by)}" if by else "is not set"
    remedy = "readers take one layout; set partitionBy as before, or name another path"
    return f"partitionBy {wanted}, and {place} is {names}: {remedy}"


def _content(place: str, name: str, text: str | bytes) -> dict[str, object]:
    try:
        content = json.loads(text)
    except ValueError:  # also of bytes that are no text
        content = None
    if not isinstance(content, dict):
        raise SinkError(
            f"{place} has a damaged {name}, which says whose rows are there: put the file back as it was, or give the sink "
            "another path and see to this one yourself"
        )
    return content


def _wire(writer: Writer) -> dict[str, str]:
    return {"topology": writer.topology, "run": writer.run}
