"""An Iceberg table as a stream of the rows that are appended: the files of a snapshot, then those that later ones add."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import ancestors_of

from streamtopology.jobs.bucket import PATIENCE_SECONDS
from streamtopology.jobs.connectors.sources.descriptors import FROM, Names, SourceSpec
from streamtopology.jobs.connectors.sources.files.iceberg_table import (
    appended,
    asked,
    files_of_snapshot,
    is_first,
    names_in,
    snapshot_of,
    snapshots_after,
)
from streamtopology.jobs.connectors.sources.files.table_stream import ELSE, Begin, TableStream
from streamtopology.jobs.connectors.sources.files.tables import refusal


class IcebergStream(TableStream):
    """Versions are the ids of snapshots. If that of the begin is not read as a whole, what it appends is."""

    keep = (
        "a job has expired its snapshot, or has taken it for an orphan. Keep snapshots and files for longer than the source "
        "can be behind"
    )

    def __init__(self, spec: SourceSpec, folder: Path) -> None:
        super().__init__(spec, folder)
        self._read: int | None = None  # the newest snapshot whose files were found
        self._table: Table | None = None  # as it was looked at last
        self._specs: dict[str, int] = {}  # the partition specs of files that were found

    def _take_up(self) -> bool:
        return asked(self._spec, self._taken_up)

    def _look(self) -> None:
        asked(self._spec, self._looked, PATIENCE_SECONDS)

    def _names(self, path: str, footer: pq.FileMetaData) -> Names:
        assert self._table is not None
        return names_in(self._spec, self._table, path, self._specs[path], footer.schema.to_arrow_schema())

    def _taken_up(self, table: Table) -> bool:
        if (begun := self._begun(lambda: self._first(table))) is None:
            return False
        self._id, self._read, is_whole = begun
        self._require_table(str(table.metadata.table_uuid), table.schema().as_arrow())
        self._found, last = {}, self._last_version()
        if last not in (None, self._read):
            self._read, is_whole = last, False
        if self._read is not None:
            files_of = files_of_snapshot if is_whole else appended
            self._find(self._read, files_of(self._spec, table, snapshot_of(self._spec, table, self._read, ELSE)))
        return True

    def _first(self, table: Table) -> Begin | None:
        """The newest snapshot, or the first one by `stream-from-timestamp`; None if none is that young."""
        table_id, newest, since = str(table.metadata.table_uuid), table.current_snapshot(), self._spec.options.get(FROM)
        if since is None:
            return table_id, None if newest is None else newest.snapshot_id, True
        known = [*ancestors_of(newest, table.metadata)][::-1]
        first = next((snapshot for snapshot in known if snapshot.timestamp_ms >= int(since)), None)
        if first is None:
            return None
        if first is known[0] and not is_first(first) and first.timestamp_ms > int(since):
            raise refusal(
                self._spec,
                f"has no snapshots from before {first.timestamp_ms} any more: set options.{FROM} to that time, "
                "or leave it out to begin with all rows that the table has",
            )
        return table_id, first.snapshot_id, False

    def _looked(self, table: Table) -> None:
        if self._table is not None and table.metadata_location == self._table.metadata_location:
            return
        self._require_table(str(table.metadata.table_uuid), table.schema().as_arrow())
        for snapshot in snapshots_after(self._spec, table, self._read, ELSE):
            self._find(snapshot.snapshot_id, appended(self._spec, table, snapshot))
            self._read = snapshot.snapshot_id
        self._table = table

    def _find(self, snapshot: int, files: Mapping[str, DataFile]) -> None:
        self._found |= dict.fromkeys(files, snapshot)
        self._specs |= {path: file.spec_id for path, file in files.items()}
