"""A table of Iceberg as its owner has it: appended to, compacted, deleted from, rolled back and expired, by pyiceberg."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import snapshot as updates

NAME = "lake.t"


def rows(keys: Sequence[int], **columns: list[Any]) -> pa.Table:
    return pa.table({"key": pa.array(keys, pa.int64()), **columns})


def options_in(folder: Path, warehouse: str = "") -> dict[str, str]:
    """The catalogue's, by their names in a manifest."""
    of_catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": warehouse or str(folder / "warehouse")}
    return {f"catalog.{name}": value for name, value in of_catalog.items()}


class Owner:
    """Changes the table. `given`: more settings of the catalogue."""

    def __init__(self, folder: Path, warehouse: str = "", **given: str) -> None:
        options = options_in(folder, warehouse)
        self.catalog: Catalog = load_catalog(
            "default", **{name.removeprefix("catalog."): value for name, value in options.items()}, **given
        )
        self.catalog.create_namespace_if_not_exists("lake")

    def make(self, columns: pa.Schema | None = None, *, by: Sequence[str] = (), version: int = 2) -> None:
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

    def delete_on_read(self, content: DataFileContent = DataFileContent.POSITION_DELETES) -> None:
        """Append a file of deletes, which pyiceberg reads but does not write: the first row of the newest data file."""

    def expire(self, *snapshots: int, files: bool = False) -> None:
        self.table.maintenance.expire_snapshots().by_ids([*snapshots]).commit()

    def expire_old(self) -> None:
        """All but the newest snapshot, and the files that it does not have."""
        table = self.table
        paths = {task.file.file_path for task in table.scan().plan_files()}
        newest = table.metadata.current_snapshot_id
        self.expire(*(snapshot.snapshot_id for snapshot in table.snapshots() if snapshot.snapshot_id != newest))
        for path in Path(table.location().removeprefix("file://")).glob("data/**/*.parquet"):
            if str(path) not in paths:
                path.unlink()

    def forget(self) -> None:
        self.catalog.drop_table(NAME)
