"""Tables of Delta Lake, written by delta-rs (the package deltalake), which needs no JVM.

A batch is one commit of the table. The commit also holds the batch's number, as what Delta calls a transaction of an
application: rows and number are there together or not at all. The application is a sink of one checkpoint, so others may
write to the table, too. They may append, delete and compact: then our commit is tried again on their version.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from streamtopology.jobs.connectors.sinks.base import SinkError, Writer, another_batch, staged_table
from streamtopology.jobs.connectors.sinks.delta_types import columns, differences, stored_schema
from streamtopology.jobs.connectors.sinks.folder import without_dictionaries
from streamtopology.jobs.connectors.sinks.partitions import partition_columns, refused_partitions
from streamtopology.jobs.connectors.sources.descriptors import local_path

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from streamtopology import topology

_APPLICATION, _BATCH, _END = "streamtopology.sink", "streamtopology.batch", "streamtopology.end"
# The newest commits of a table among which the end of a batch is looked for.
_KEPT_COMMITS = 1000
# Tries of a commit, each on the newest version of a table that others change.
_TRIES = 10
_COLOURS = re.compile(r"\x1b\[\d*m")
_BACKTRACE = re.compile(r"\d+: ")


def refusals(sink: topology.Sink, schema: pa.Schema) -> Iterator[str]:
    """Sentences on rows of `schema` that the sink's table cannot take. One that cannot be asked is left to the start."""
    yield from columns(schema)
    yield from refused_partitions(schema, partition_columns(sink))
    with suppress(SinkError):
        place = DeltaPlace(sink)
        table = place.table()
        if table is not None:
            yield from (f"does not fit {place.where}: {sentence}" for sentence in place.differences(table, schema))


class DeltaPlace:
    """The place of a sink's table. Raises SinkError, as all that is asked of it does."""

    def __init__(self, sink: topology.Sink) -> None:
        path = sink.options["path"]
        self.where = f"table {path}"
        self._sink = sink
        self._options = None
        if path.startswith("s3://"):
            from streamtopology.jobs.connectors.sinks.bucket import open_bucket  # loads obstore only for buckets

            self._options = open_bucket(path, sink.name).options
        self._uri = local_path(path) if self._options is None else path

    def table(self) -> DeltaTable | None:
        """The newest version; None without any. It is read anew each time: a table may be deleted and made again."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        with self.asked():
            try:  # `is_deltatable` would keep all threads of this process waiting for the server's answer
                return DeltaTable(self._uri, storage_options=self._options)
            except TableNotFoundError:
                return None

    def make(self, schema: pa.Schema) -> None:
        """Make the table, without rows: a table that a commit with rows makes does not refuse the same batch again."""
        from deltalake import CommitProperties, DeltaTable, Schema
        from deltalake.exceptions import CommitFailedError

        with self.asked(), suppress(CommitFailedError):  # another process has made it meanwhile
            DeltaTable.create(
                self._uri,
                Schema.from_arrow(stored_schema(schema)),
                mode="ignore",
                partition_by=partition_columns(self._sink),
                storage_options=self._options,
                commit_properties=CommitProperties(max_commit_retries=0),
            )

    def differences(self, table: DeltaTable, rows: pa.Schema) -> Iterator[str]:
        """Sentences on what a table has otherwise than the sink and its rows."""
        given, there = partition_columns(self._sink), table.metadata().partition_columns
        if given and given != there:
            by = f"is partitioned by {', '.join(there)}" if there else "has no partitions"
            yield f"partitionBy is {', '.join(given)}, and the table {by}; leave it out, or name another table"
        yield from differences(pa.schema(table.schema().to_arrow()), rows)

    @contextmanager
    def asked(self) -> Generator[None]:
        """Raise errors of delta-rs as SinkError. Some of its errors have no class of their own."""
        try:
            yield
        except Exception as error:
            raise SinkError(f"sink {self._sink.name!r}: {self.where}: {_cause(error)}") from error


def _cause(error: Exception) -> str:
    """The message of delta-rs in one line, without its colours, its table of rows, and the backtrace that some errors have."""
    lines = [_COLOURS.sub("", line).strip(" \t↳") for line in str(error).splitlines()]
    return " ".join(takewhile(lambda line: line and not _BACKTRACE.match(line), lines))


class DeltaSink:
    """Publishes each batch with rows as a commit of the table, once. The first one makes the table if there is none."""

    def __init__(self, sink: topology.Sink, writer: Writer) -> None:
        self._name = sink.name
        self._place = DeltaPlace(sink)
        self._application = f"streamtopology-{writer.topology}-{sink.name}-{writer.run}"
        self._newest = self._newest_of(self._place.table())

    def publish(self, batch: int, files: Sequence[Path], end: str | None = None) -> None:
        staged = staged_table(files)
        rows = staged if staged is not None and staged.num_rows else None
        if rows is None and batch > self._newest:
            return
        why = ""
        for _ in range(_TRIES):
            table = self._place.table()
            if self._has(table, batch, end, rows is not None) or rows is None:
                return
            if table is None:
                self._place.make(rows.schema)
            elif (why := self._overtaken(table, batch, without_dictionaries(rows), end)) is None:
                self._newest = batch
                return
        raise SinkError(f"sink {self._name!r}: {self._place.where}: other commits came first {_TRIES} times: {why}")

    def has(self, batch: int, end: str | None) -> bool:
        """True if the table has the batch. Raises SinkError if it has another of this number."""
        return self._has(self._place.table(), batch, end, has_rows=False)

    def close(self) -> None:
        pass

    def _has(self, table: DeltaTable | None, batch: int, end: str | None, has_rows: bool) -> bool:
        self._newest = self._newest_of(table)
        if table is None or batch > self._newest:
            return False
        with self._place.asked():
            commits = table.history(_KEPT_COMMITS)
        ends = {int(known[_BATCH]): known.get(_END) for known in commits if known.get(_APPLICATION) == self._application}
        was_left_out = has_rows and batch not in ends and any(known < batch for known in ends)
        if was_left_out or (end is not None and ends.get(batch) not in (None, end)):
            raise another_batch(self._place.where, batch)
        return True

    def _newest_of(self, table: DeltaTable | None) -> int:
        """The newest batch of this sink in a table; -1 without any."""
        known = None if table is None else table.transaction_version(self._application)
        return -1 if known is None else known

    def _overtaken(self, table: DeltaTable, batch: int, rows: pa.Table, end: str | None) -> str | None:
        """Commit a batch. Return why another commit came first, which may be this one, whose answer was lost; else None."""
        from deltalake import CommitProperties, Transaction, write_deltalake
        from deltalake.exceptions import CommitFailedError

        if found := [*self._place.differences(table, rows.schema)]:
            raise SinkError(f"sink {self._name!r}: {self._place.where} was changed meanwhile: {'; '.join(found)}")
        wanted = pa.schema(table.schema().to_arrow())
        absent = pa.nulls(rows.num_rows)
        columns_ = [rows[name] if name in rows.column_names else absent for name in wanted.names]
        rows = pa.table([column.cast(kind) for column, kind in zip(columns_, wanted.types, strict=True)], wanted)
        noted = {_APPLICATION: self._application, _BATCH: str(batch)} | ({} if end is None else {_END: end})
        number = Transaction(self._application, batch, int(time.time() * 1000))
        properties = CommitProperties(custom_metadata=noted, app_transactions=[number])
        with self._place.asked():
            try:
                write_deltalake(table, rows, mode="append", commit_properties=properties)
            except CommitFailedError as error:
                return _cause(error)
        return None
