"""The files of a Delta table: of a version by delta-rs (the package deltalake), of later commits by the table's log.

Their rows are read as those of other parquet files. So a table is refused whose files do not say all: with deletion vectors,
column mapping, or data elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from streamtopology.jobs.columnar.layouts import is_bytes
from streamtopology.jobs.connectors.sources.descriptors import SourceSpec
from streamtopology.jobs.connectors.sources.files.partitions import partition_texts, with_partitions
from streamtopology.jobs.connectors.sources.files.tables import place_of_table, refusal
from streamtopology.jobs.connectors.sources.schema.conform import SchemaMismatchError
from streamtopology.jobs.connectors.sources.stored_files import FileStatus, opened, server_of

if TYPE_CHECKING:
    from deltalake import DeltaTable

# What readers must know of a table; deletion vectors are looked for in its files.
_KNOWN_FEATURES = {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
_NO_VECTORS = "has files with deletion vectors, which are not read; write these files again (REORG TABLE ... APPLY (PURGE))"


def open_table(spec: SourceSpec, version: int | None = None) -> DeltaTable:
    """The table of a source as of a version, by default the newest. Raises TableError if it is not there, or is not read."""
    from deltalake import DeltaTable

    root = place_of_table(spec)
    server = server_of(root)
    try:
        table = DeltaTable(root, version, storage_options=server)
    except Exception as error:  # some errors of delta-rs have no class of their own
        why = str(error).partition("\n")[0]
        raise refusal(spec, f"cannot be opened: {why}; make it first, or correct option path") from error
    mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    if mode != "none":
        raise refusal(spec, f"has column mapping ({mode}), which is not read; write it to a table without")
    columns = table_columns(table)
    if binary := [name for name in table.metadata().partition_columns if is_bytes(columns.field(name).type)]:
        raise refusal(spec, f"is partitioned by {', '.join(binary)}, of BINARY, which is not read; write it to a table without")
    features = set(table.protocol().reader_features or ())
    if odd := features - _KNOWN_FEATURES:
        raise refusal(spec, f"has features that are not read: {', '.join(sorted(odd))}; write it to a table without")
    if "deletionVectors" in features and any(batch.num_rows for batch in table.deletion_vectors()):
        raise refusal(spec, _NO_VECTORS)
    return table


def table_columns(table: DeltaTable) -> pa.Schema:
    return pa.schema(table.schema().to_arrow())


def files_of_table(spec: SourceSpec, version: int | None = None) -> Iterator[tuple[str, FileStatus]]:
    """The files that a version consists of, in the order of their times."""
    table = open_table(spec, version)
    wanted, by = ["path", "size_bytes", "modification_time"], table.metadata().partition_columns
    adds = pa.table(table.get_add_actions()).select([*wanted, *(["partition"] if by else [])]).to_pylist()
    adds.sort(key=lambda add: (add["modification_time"], add["path"]))
    columns = table_columns(table)
    declared = pa.schema([columns.field(name) for name in by])
    for add in adds:
        path = _file(spec, add["path"])
        if by:
            _require_folders(spec, path, _values_of(spec, path, declared) == add["partition"])
        yield path, FileStatus(add["size_bytes"], add["modification_time"] * 1_000_000, 0)


def commit_file(spec: SourceSpec, version: int) -> str:
    return f"{place_of_table(spec)}/_delta_log/{version:020}.json"


def actions_of(spec: SourceSpec, version: int) -> Sequence[Mapping[str, Any]] | None:
    """What a commit does; None if the log has none of this number."""
    try:
        with opened(commit_file(spec, version)) as file:
            return [json.loads(line) for line in file if line.strip()]
    except FileNotFoundError:
        return None


def appended(spec: SourceSpec, version: int, actions: Iterable[Mapping[str, Any]], skips_changes: bool) -> list[str]:
    """The files that a commit adds to the rows of a table; none of one that only arranges them anew.

    Raises TableError for a commit that takes rows away, unless `skips_changes`: then none of its files count.
    """
    done = {kind: [action[kind] for action in actions if kind in action] for kind in ("add", "remove", "commitInfo")}
    adds, removes = ([file for file in done[kind] if file.get("dataChange", True)] for kind in ("add", "remove"))
    if removes and skips_changes:
        return []
    if removes:
        what = next((str(info["operation"]) for info in done["commitInfo"] if "operation" in info), "a change")
        raise refusal(
            spec,
            f"has commit {version} ({what}), which deletes or changes rows: what was read of them cannot be taken back. Set "
            "options.skipChangeCommits: true to leave such commits out, with all rows that they add",
        )
    if any(add.get("deletionVector") for add in adds):
        raise refusal(spec, _NO_VECTORS)
    paths = [_file(spec, add["path"]) for add in adds]
    for path, add in zip(paths, adds, strict=True):
        given = {name.lower(): text or None for name, text in add["partitionValues"].items()}
        _require_folders(spec, path, given.items() <= partition_texts(spec, path).items())
    return paths


def _file(spec: SourceSpec, written: str) -> str:
    """The path of a file as a log writes it."""
    name = unquote(written)
    if name.startswith("/") or "://" in name:
        raise refusal(spec, f"has its files elsewhere ({name}), as a shallow clone; name the table that they belong to")
    return f"{place_of_table(spec)}/{name}"


def _values_of(spec: SourceSpec, path: str, columns: pa.Schema) -> Mapping[str, Any] | None:
    """What the folders of a file give as the values of columns; None if they do not."""
    texts = partition_texts(spec, path)
    if any(name.lower() not in texts for name in columns.names):
        return None
    with suppress(SchemaMismatchError):
        return with_partitions(pa.table({"": pa.nulls(1)}), columns, texts, path).to_pylist()[0]
    return None


def _require_folders(spec: SourceSpec, path: str, are_right: bool) -> None:
    if not are_right:
        raise refusal(spec, f"has {path}, whose folders do not give the values by which it is partitioned; write it again")
