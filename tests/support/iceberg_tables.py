"""A table of Iceberg as its owner has it: appended to, compacted, deleted from, rolled back and expired, by pyiceberg."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestWriterV2
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import snapshot as updates

NAME = "lake.t"
_ID = "PARQUET:field_id"


def rows(keys: Sequence[int], **columns: list[Any]) -> pa.Table:
    return pa.table({"key": pa.array(keys, pa.int64()), **columns})


def options_in(folder: Path, warehouse: str = "") -> dict[str, str]:
    """The catalogue's, by their names in a manifest; its file is that of a RestCatalog in the same folder."""
    of_catalog = {"type": "sql", "uri": f"sqlite:///{folder}/rest.db", "warehouse": warehouse or str(folder / "warehouse")}
    return {f"catalog.{name}": value for name, value in of_catalog.items()}


class _DeletesWriter(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _AppendDeletes(updates._FastAppendFiles):
    def new_manifest_writer(self, spec: Any) -> ManifestWriterV2:
        schema, output = self._transaction.table_metadata.schema(), self.new_manifest_output()
        return _DeletesWriter(spec, schema, output, self._snapshot_id, self._compression)


class Owner:
    """Changes the table. `given`: more settings of the catalogue."""

    def __init__(self, folder: Path, warehouse: str = "", **given: str) -> None:
        self.folder, options = folder, options_in(folder, warehouse)
        self.catalog: Catalog = load_catalog(
            "default", **{name.removeprefix("catalog."): value for name, value in options.items()}, **given
        )
        self.catalog.create_namespace_if_not_exists("lake")

    def make(self, columns: pa.Schema | Schema | None = None, *, by: Sequence[str] = (), version: int = 2) -> None:
        made = self.catalog.create_table(NAME, columns or rows([]).schema, properties={"format-version": str(version)})
        with made.update_spec() as spec:
            for column in by:
                spec.add_identity(column)

    @property
    def table(self) -> Table:
        return self.catalog.load_table(NAME)

    def append(self, *keys: int, **columns: list[Any]) -> None:
        self.table.append(rows(keys, **columns))

    def compact(self) -> None:
        """Write all rows into one file, as a snapshot of kind replace: pyiceberg has no method for it."""
        table = self.table
        files = [task.file for task in table.scan().plan_files()]
        with table.transaction() as changed:
            update = updates._OverwriteFiles(Operation.OVERWRITE, changed, table.io)
            for file in files:
                update.delete_data_file(file)
            for file in _dataframe_to_data_files(changed.table_metadata, table.scan().to_arrow(), table.io):
                update.append_data_file(file)
            summarized = update._summary
            update._summary = lambda given={}: summarized(given).model_copy(update={"operation": Operation.REPLACE})  # type: ignore[method-assign]
            update.commit()

    def delete_on_read(
        self, by: Operation = Operation.DELETE, content: DataFileContent = DataFileContent.POSITION_DELETES
    ) -> None:
        """Say in a file that the first row of a data file is deleted, or (equality) all rows with its key."""
        table = self.table
        file = next(iter(table.scan().plan_files())).file
        path = f"{table.location()}/data/{uuid.uuid4().hex}-deletes.parquet"
        fields = [
            pa.field("file_path", pa.string(), metadata={_ID: "2147483546"}),
            pa.field("pos", pa.int64(), metadata={_ID: "2147483545"}),
        ]
        pq.write_table(pa.table([[file.file_path], [0]], schema=pa.schema(fields)), path)
        size, ids = Path(path).stat().st_size, [1] if content == DataFileContent.EQUALITY_DELETES else None
        deletes = DataFile.from_args(
            content=content, file_path=path, file_format=FileFormat.PARQUET, partition=file.partition, record_count=1,
            file_size_in_bytes=size, equality_ids=ids,
        )  # fmt: skip
        deletes.spec_id = file.spec_id
        with table.transaction() as changed:
            update = _AppendDeletes(by, changed, table.io)
            update.append_data_file(deletes)
            update.commit()

    def expire(self, *snapshots: int) -> None:
        self.table.maintenance.expire_snapshots().by_ids([*snapshots]).commit()

    @property
    def appended(self) -> list[int]:
        """The snapshots that append."""
        known = self.table.snapshots()
        return [each.snapshot_id for each in known if each.summary is not None and each.summary.operation == Operation.APPEND]

    def expire_old(self, first: int | None = None) -> None:
        """Those before the snapshot `first` (None: the newest one), and the files that only they had."""
        table = self.table
        known = [snapshot.snapshot_id for snapshot in table.snapshots()]
        at = known.index(first) if first is not None else len(known) - 1
        kept = {task.file.file_path for number in known[at:] for task in table.scan(snapshot_id=number).plan_files()}
        if known[:at]:
            self.expire(*known[:at])
        for path in Path(table.location()).glob("data/**/*.parquet"):
            if str(path) not in kept:
                path.unlink()

    def forget(self) -> None:
        self.catalog.drop_table(NAME)
