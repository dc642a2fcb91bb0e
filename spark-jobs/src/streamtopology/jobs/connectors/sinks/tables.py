"""Sinks that are tables: a batch with rows is one commit of the table, which also holds the batch's number.

Rows and number are there together or not at all. The number is that of an application, which is a sink of one checkpoint. So
others may write to the table, too. They may append, delete and compact: then our commit is tried again on their version.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import pyarrow as pa

from streamtopology.jobs.connectors.sinks.base import SinkError, Writer, another_batch, staged_table
from streamtopology.jobs.connectors.sinks.folder import without_dictionaries
from streamtopology.jobs.connectors.sinks.partitions import partition_columns, refused_partitions
from streamtopology.jobs.connectors.sinks.table_types import TableTypes, fitted

if TYPE_CHECKING:
    from streamtopology import topology

# What a commit notes beside its rows.
APPLICATION, BATCH, END = "streamtopology.sink", "streamtopology.batch", "streamtopology.end"
# Tries of a commit, each on the newest version of a table that others change.
_TRIES = 10

Table = TypeVar("Table")


class TablePlace(ABC, Generic[Table]):
    """The place of a sink's table, named by its option `named_by`. Raises SinkError, as all that is asked of it does."""

    types: ClassVar[TableTypes]
    named_by: ClassVar[str]

    def __init__(self, sink: topology.Sink) -> None:
        self.sink = sink
        self.where = f"table {sink.options[self.named_by]}"
        self.partition_by = partition_columns(sink)

    @abstractmethod
    def table(self) -> Table | None:
        """The newest version; None without any. It is read anew each time: a table may be deleted and made again."""

    @abstractmethod
    def make(self, schema: pa.Schema) -> None:
        """Make the table, without rows: a table that a commit with rows makes does not refuse the same batch again."""

    @abstractmethod
    def columns(self, table: Table) -> pa.Schema: ...

    @abstractmethod
    def partitions(self, table: Table) -> list[str]: ...

    @abstractmethod
    def newest(self, table: Table, application: str) -> int:
        """The number of an application's newest batch; -1 without any."""

    @abstractmethod
    def commits(self, table: Table) -> Sequence[Mapping[str, str]]:
        """What the newest commits noted, as far back as all of them are known."""

    @abstractmethod
    def append(self, table: Table, rows: pa.Table, noted: Mapping[str, str]) -> str | None:
        """Commit rows with what is noted. Return why another commit came first, which may be this one; else None."""

    @abstractmethod
    def cause(self, error: Exception) -> str:
        """An error's message in one line."""

    def differences(self, table: Table, rows: pa.Schema) -> Iterator[str]:
        """Sentences on what a table has otherwise than the sink and its rows."""
        given, there = self.partition_by, self.partitions(table)
        if given and given != there:
            by = f"is partitioned by {', '.join(there)}" if there else "has no partitions"
            yield f"partitionBy is {', '.join(given)}, and the table {by}; leave it out, or name another table"
        yield from self.types.differences(self.columns(table), rows)

    @contextmanager
    def asked(self) -> Generator[None]:
        """Raise errors of the table's package as SinkError. Some have no class of their own."""
        try:
            yield
        except Exception as error:
            raise SinkError(f"sink {self.sink.name!r}: {self.where}: {self.cause(error)}") from error


def refusals(place_of: type[TablePlace[Table]], sink: topology.Sink, schema: pa.Schema) -> Iterator[str]:
    """Sentences on rows of `schema` that the sink's table cannot take. One that cannot be asked is left to the start."""
    yield from place_of.types.columns(schema)
    yield from refused_partitions(schema, partition_columns(sink))
    with suppress(SinkError):
        place = place_of(sink)
        table = place.table()
        if table is not None:
            yield from (f"does not fit {place.where}: {sentence}" for sentence in place.differences(table, schema))


class TableSink(Generic[Table]):
    """Publishes each batch with rows as a commit of the table, once. The first one makes the table if there is none.

    rows: the columns of the rows to come; if given, the table is made at once, and so missing rights are found at the start.
    """

    def __init__(self, place: TablePlace[Table], writer: Writer, rows: pa.Schema | None = None) -> None:
        self._place = place
        self._application = f"streamtopology-{writer.topology}-{place.sink.name}-{writer.run}"
        table = place.table()
        self._newest = self._newest_of(table)
        if table is None and rows is not None:
            place.make(rows)

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
        raise self._error(f": other commits came first {_TRIES} times: {why}")

    def has(self, batch: int, end: str | None) -> bool:
        """True if the table has the batch. Raises SinkError if it has another of this number."""
        return self._has(self._place.table(), batch, end, has_rows=False)

    def close(self) -> None:
        pass

    def _has(self, table: Table | None, batch: int, end: str | None, has_rows: bool) -> bool:
        self._newest = self._newest_of(table)
        if table is None or batch > self._newest:
            return False
        with self._place.asked():
            commits = self._place.commits(table)
        ends = {int(known[BATCH]): known.get(END) for known in commits if known.get(APPLICATION) == self._application}
        was_left_out = has_rows and batch not in ends and any(known < batch for known in ends)
        if was_left_out or (end is not None and ends.get(batch) not in (None, end)):
            raise another_batch(self._place.where, batch)
        return True

    def _newest_of(self, table: Table | None) -> int:
        return -1 if table is None else self._place.newest(table, self._application)

    def _overtaken(self, table: Table, batch: int, rows: pa.Table, end: str | None) -> str | None:
        """Commit a batch. Return why another commit came first, which may be this one, whose answer was lost; else None."""
        if found := [*self._place.differences(table, rows.schema)]:
            raise self._error(f" was changed meanwhile: {'; '.join(found)}")
        noted = {APPLICATION: self._application, BATCH: str(batch)} | ({} if end is None else {END: end})
        with self._place.asked():
            return self._place.append(table, fitted(rows, self._place.columns(table)), noted)

    def _error(self, what: str) -> SinkError:
        return SinkError(f"sink {self._place.sink.name!r}: {self._place.where}{what}")
