"""A Delta table as a stream of the rows that are appended: the files of a version, then those that later commits add."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from streamtopology.jobs.connectors.sources.descriptors import SourceSpec
from streamtopology.jobs.connectors.sources.files.delta_table import (
    actions_of,
    appended,
    commit_file,
    files_of_table,
    open_table,
    table_columns,
)
from streamtopology.jobs.connectors.sources.files.table_stream import ELSE, Begin, TableStream
from streamtopology.jobs.connectors.sources.files.tables import refusal
from streamtopology.jobs.connectors.sources.stored_files import FileStatus, status_of

if TYPE_CHECKING:
    from deltalake import DeltaTable


class DeltaStream(TableStream):
    """Versions are the numbers of commits. If that of the begin is not read as a whole, what comes after it is."""

    keep = (
        "VACUUM deletes files that a compaction or a change has replaced. Keep them longer (delta.deletedFileRetentionDuration)"
    )

    def __init__(self, spec: SourceSpec, folder: Path) -> None:
        super().__init__(spec, folder)
        self._next = 0  # the commit to be read
        self._known: FileStatus | None = None  # of the commit before

    def _look(self) -> None:
        self._require_the_same()
        while (actions := actions_of(self._spec, self._next)) is not None:
            if any("metaData" in action or "protocol" in action for action in actions):
                self._require_delta(open_table(self._spec, self._next))
            skips = self._spec.options.get("skipChangeCommits", "false").lower() == "true"
            self._found |= dict.fromkeys(appended(self._spec, self._next, actions, skips), self._next)
            self._known = status_of(commit_file(self._spec, self._next))
            self._next += 1

    def _take_up(self) -> bool:
        table, last = open_table(self._spec), self._last_version()
        if (begun := self._begun(lambda: self._first(table))) is None:
            return False
        self._id, version, is_whole = begun
        self._require_delta(table)
        is_begin = last is None or last == version
        if is_begin and is_whole:
            self._found = {path: version for path, _ in files_of_table(self._spec, version)}
        self._next = version + 1 if last is None or is_begin else last
        return True

    def _first(self, table: DeltaTable) -> Begin:
        newest, given = table.version(), self._spec.options.get("startingVersion")
        first = newest + 1 if given == "latest" else None if given is None else int(given)
        if first is not None and first > newest + 1:
            raise refusal(self._spec, f"has no version {first} yet; its newest is {newest}: correct startingVersion")
        return str(table.metadata().id), newest if first is None else first - 1, first is None

    def _require_the_same(self) -> None:
        """Look at the table anew unless the commit before is as it was. Raises TableError."""
        try:
            known = status_of(commit_file(self._spec, self._next - 1))
        except FileNotFoundError:
            known = None
        if known is not None and known == self._known:
            return
        table = open_table(self._spec)
        self._require_delta(table)
        if table.version() < self._next - 1:
            raise refusal(self._spec, f"has no version {self._next - 1} any more, which was read; put it back, or {ELSE}")
        if table.version() >= self._next and actions_of(self._spec, self._next) is None:
            raise refusal(
                self._spec,
                f"has no commit {self._next} in its log any more, which was not read yet: it is kept for "
                f"delta.logRetentionDuration; {ELSE}",
            )
        self._known = known

    def _require_delta(self, table: DeltaTable) -> None:
        self._require_table(str(table.metadata().id), table_columns(table))
