"""Tables of Apache Iceberg, written by pyiceberg, which needs no JVM.

A batch's number is in its commit as a property of the table, which stays when the owner expires snapshots. What else is noted
is in the summary of the commit's snapshot.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import count, takewhile
from typing import TYPE_CHECKING

import pyarrow as pa

from streamtopology.jobs.connectors.sinks.table_types import ICEBERG
from streamtopology.jobs.connectors.sinks.tables import APPLICATION, BATCH, TablePlace
from streamtopology.jobs.connectors.sources.iceberg_catalog import open_catalog
from streamtopology.jobs.variables import first_line

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from streamtopology import topology

_NEWEST_VERSION = 2


class IcebergPlace(TablePlace["Table"]):
    """A table of a catalogue."""

    types = ICEBERG
    named_by = "table"

    def __init__(self, sink: topology.Sink) -> None:
        super().__init__(sink)
        self._name = tuple(sink.options["table"].split("."))

    def table(self) -> Table | None:
        from pyiceberg.exceptions import NoSuchTableError

        with self.asked():
            try:
                return self._catalog.load_table(self._name)
            except NoSuchTableError:
                return None

    def make(self, schema: pa.Schema) -> None:
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        with self.asked(), suppress(CommitFailedException, TableAlreadyExistsError):  # another process has made it meanwhile
            if not self._catalog.namespace_exists(self._name[:-1]):
                self._catalog.create_namespace_if_not_exists(self._name[:-1])
            making = self._catalog.create_table_transaction(self._name, self.types.stored_schema(schema))
            with making, making.update_spec() as partitions:
                for column in self.partition_by:
                    partitions.add_identity(column)

    def columns(self, table: Table) -> pa.Schema:
        return table.schema().as_arrow()

    def partitions(self, table: Table) -> list[str]:
        columns = [(table.schema().find_column_name(field.source_id), field.transform) for field in table.spec().fields]
        return [str(name) if str(transform) == "identity" else f"{transform}({name})" for name, transform in columns]

    def differences(self, table: Table, rows: pa.Schema) -> Iterator[str]:
        if table.format_version > _NEWEST_VERSION:
            yield f"has Iceberg's version {table.format_version}, pyiceberg writes up to {_NEWEST_VERSION}; name another table"
        yield from super().differences(table, rows)

    def newest(self, table: Table, application: str) -> int:
        return int(table.properties.get(_number_of(application), -1))

    def commits(self, table: Table) -> Sequence[Mapping[str, str]]:
        kept = {snapshot.sequence_number: snapshot for snapshot in table.snapshots()}
        numbers = takewhile(kept.__contains__, count(table.metadata.next_sequence_number() - 1, -1))
        summaries = (kept[number].summary for number in numbers)
        return [summary.additional_properties for summary in summaries if summary is not None]

    def append(self, table: Table, rows: pa.Table, noted: Mapping[str, str]) -> str | None:
        from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

        from streamtopology.jobs.connectors.sinks.iceberg_commit import OneTry  # loads pyiceberg only for its tables

        try:
            with OneTry(table) as commit:
                commit.set_properties({_number_of(noted[APPLICATION]): noted[BATCH]})
                commit.append(rows, dict(noted))
        except (CommitFailedException, CommitStateUnknownException) as error:
            return self.cause(error)
        return None

    def cause(self, error: Exception) -> str:
        return first_line(error, self.sink.options.values(), os.environ)

    @cached_property
    def _catalog(self) -> Catalog:
        return open_catalog(self.sink.options)


def _number_of(application: str) -> str:
    """The table's property that has the number of an application's newest batch."""
    return f"{BATCH}.{application}"
