"""A table as a stream of the rows that are appended: the files of a version, then those that later commits add."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamtopology.jobs.columnar.empty import empty_table
from streamtopology.jobs.connectors.sources import durable_file
from streamtopology.jobs.connectors.sources.descriptors import SourceSpec
from streamtopology.jobs.connectors.sources.files.file_log import FileLog, LoggedFile
from streamtopology.jobs.connectors.sources.files.stream import FileStream
from streamtopology.jobs.connectors.sources.files.tables import place_of_table, refusal
from streamtopology.jobs.connectors.sources.schema.conform import conform
from streamtopology.jobs.connectors.sources.schema.declared import declared_schema

# The id of a table, a version of it (None: before there is any), and whether all of that is read.
Begin = tuple[str, Any, bool]

ELSE = "give the source another name, under which it is read from its start"


class TableStream(FileStream):
    """The log of files has the version of each, so that a restart continues in the commit of the last one.

    `<folder>/table.json` says how the source began: the table's id, a version, and whether that was read as a whole.
    `keep`: the remedy for files that are deleted too early.
    """

    keep: str

    def __init__(self, spec: SourceSpec, folder: Path) -> None:
        super().__init__(spec, FileLog(folder))
        self._beginning = folder / "table.json"
        self._is_taken_up = False
        self._id = ""
        self._found: dict[str, int] = {}  # files that are not handed out yet, with their versions

    @abstractmethod
    def _take_up(self) -> bool:
        """Begin, or go on where a former process has stopped. Returns False if there is no begin yet."""

    @abstractmethod
    def _look(self) -> None:
        """Add files to those that were found. Raises TableError for a table that is another one, or changes rows."""

    def _listed(self) -> list[str]:
        self._is_taken_up = self._is_taken_up or self._take_up()
        if self._is_taken_up:
            self._look()
        left = self._log.unknown([*self._found])
        self._found = {path: self._found[path] for path in left}
        return left

    def _measured(self, root: str, path: str) -> LoggedFile:
        file = super()._measured(root, path)
        if file is None:
            raise refusal(self._spec, f"lost {path} before it was read: {self.keep}, and {ELSE}")
        return replace(file, version=self._found[path])

    def _last_version(self) -> int | None:
        """The version of the file that was handed out last; None if none was."""
        self._log.refresh()
        last = self._log.between(len(self._log) - 1, len(self._log))[0].version if len(self._log) else None
        if last == -1:
            raise refusal(self._spec, f"was read as a folder of files before; {ELSE}")
        return last

    def _begun(self, begins: Callable[[], Begin | None]) -> Begin | None:
        """How the source began, or begins now."""
        if not self._beginning.exists():
            if (begin := begins()) is None:
                return None
            durable_file.create(self._beginning, json.dumps(begin))
        table_id, version, is_whole = json.loads(self._beginning.read_text(encoding="utf-8"))
        return table_id, version, is_whole

    def _require_table(self, table_id: str, columns: pa.Schema) -> None:
        """Raises TableError for another table, and SchemaMismatchError for one whose columns are not those declared."""
        if table_id != self._id:
            raise refusal(self._spec, f"is another one than was read before; put that back, or {ELSE}")
        place = f"source {self._spec.name!r}, table {place_of_table(self._spec)}"
        conform(empty_table(columns), declared_schema(self._spec), place)
