"""A Delta table as a stream of the rows that are appended: the files of a version, then those that later commits add."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from streamtopology.jobs.columnar.empty import empty_table
from streamtopology.jobs.connectors.sources import durable_file
from streamtopology.jobs.connectors.sources.descriptors import SourceSpec
from streamtopology.jobs.connectors.sources.files.delta_table import (
    actions_of,
    appended,
    commit_file,
    files_of_table,
    open_table,
    place_of_table,
    refusal,
    table_columns,
)
from streamtopology.jobs.connectors.sources.files.file_log import FileLog, LoggedFile
from streamtopology.jobs.connectors.sources.files.stream import FileStream
from streamtopology.jobs.connectors.sources.schema.conform import conform
from streamtopology.jobs.connectors.sources.schema.declared import declared_schema
from streamtopology.jobs.connectors.sources.stored_files import FileStatus, status_of

if TYPE_CHECKING:
    from deltalake import DeltaTable

_ELSE = "give the source another name, under which it is read from its start"


class DeltaStream(FileStream):
    """The log of files has the version of each, so that a restart continues in the commit of the last one.

    `<folder>/table.json` says how the source began: the table's id, a version, and whether that was read as a whole.
    """

    def __init__(self, spec: SourceSpec, folder: Path) -> None:
        super().__init__(spec, FileLog(folder))
        self._beginning = folder / "table.json"
        self._is_taken_up = False
        self._id = ""
        self._next = 0  # the commit to be read
        self._known: FileStatus | None = None  # of the commit before
        self._found: dict[str, int] = {}  # files that are not handed out yet, with their versions

    def _listed(self) -> list[str]:
        """Raises TableError for a table that is another one, or a commit that is gone or changes rows."""
        if not self._is_taken_up:
            self._take_up()
        self._require_the_same()
        while (actions := actions_of(self._spec, self._next)) is not None:
            if any("metaData" in action or "protocol" in action for action in actions):
                self._require_table(open_table(self._spec, self._next))
            skips = self._spec.options.get("skipChangeCommits", "false").lower() == "true"
            self._found |= dict.fromkeys(appended(self._spec, self._next, actions, skips), self._next)
            self._known = status_of(commit_file(self._spec, self._next))
            self._next += 1
        left = self._log.unknown([*self._found])
        self._found = {path: self._found[path] for path in left}
        return left

    def _measured(self, root: str, path: str) -> LoggedFile:
        file = super()._measured(root, path)
        if file is None:
            raise refusal(
                self._spec,
                f"lost {path} before it was read: VACUUM deletes files that a compaction or a change has replaced. Keep them "
                f"longer (delta.deletedFileRetentionDuration), and {_ELSE}",
            )
        return replace(file, version=self._found[path])

    def _take_up(self) -> None:
        table = open_table(self._spec)
        self._log.refresh()
        last = self._log.between(len(self._log) - 1, len(self._log))[0].version if len(self._log) else None
        if last == -1:
            raise refusal(self._spec, f"was read as a folder of files before; {_ELSE}")
        self._id, version, is_whole = self._begun(table)
        self._require_table(table)
        is_begin = last is None or last == version
        if is_begin and is_whole:
            self._found = {path: version for path, _ in files_of_table(self._spec, version)}
        self._next = version + 1 if last is None or is_begin else last
        self._is_taken_up = True

    def _begun(self, table: DeltaTable) -> tuple[str, int, bool]:
        """How the source began, or begins now: the id of the table, a version, and whether all of that is read."""
        if not self._beginning.exists():
            newest, given = table.version(), self._spec.options.get("startingVersion")
            first = newest + 1 if given == "latest" else None if given is None else int(given)
            if first is not None and first > newest + 1:
                raise refusal(self._spec, f"has no version {first} yet; its newest is {newest}: correct startingVersion")
            begin = [str(table.metadata().id), newest if first is None else first - 1, first is None]
            durable_file.create(self._beginning, json.dumps(begin))
        table_id, version, is_whole = json.loads(self._beginning.read_text(encoding="utf-8"))
        return table_id, version, is_whole

    def _require_the_same(self) -> None:
        """Look at the table anew unless the commit before is as it was. Raises TableError."""
        try:
            known = status_of(commit_file(self._spec, self._next - 1))
        except FileNotFoundError:
            known = None
        if known is not None and known == self._known:
            return
        table = open_table(self._spec)
        self._require_table(table)
        if table.version() < self._next - 1:
            raise refusal(self._spec, f"has no version {self._next - 1} any more, which was read; put it back, or {_ELSE}")
        if table.version() >= self._next and actions_of(self._spec, self._next) is None:
            raise refusal(
                self._spec,
                f"has no commit {self._next} in its log any more, which was not read yet: it is kept for "
                f"delta.logRetentionDuration; {_ELSE}",
            )
        self._known = known

    def _require_table(self, table: DeltaTable) -> None:
        """Raises TableError for another table, and SchemaMismatchError for one whose columns are not those declared."""
        if str(table.metadata().id) != self._id:
            raise refusal(self._spec, f"is another one than was read before; put that back, or {_ELSE}")
        place = f"source {self._spec.name!r}, table {place_of_table(self._spec)}"
        conform(empty_table(table_columns(table)), declared_schema(self._spec), place)
