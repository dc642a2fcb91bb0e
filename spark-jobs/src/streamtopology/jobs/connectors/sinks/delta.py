"""Tables of Delta Lake, written by delta-rs (the package deltalake), which needs no JVM.

A batch's number is in its commit as what Delta calls a transaction of an application.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING

import pyarrow as pa

from streamtopology.jobs.connectors.sinks.table_types import DELTA
from streamtopology.jobs.connectors.sinks.tables import APPLICATION, BATCH, TablePlace
from streamtopology.jobs.connectors.sources.descriptors import local_path

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from streamtopology import topology

# The newest commits of a table among which the end of a batch is looked for.
_KEPT_COMMITS = 1000
_COLOURS = re.compile(r"\x1b\[\d*m")
_BACKTRACE = re.compile(r"\d+: ")


class DeltaPlace(TablePlace["DeltaTable"]):
    """A folder or bucket."""

    types = DELTA
    named_by = "path"

    def __init__(self, sink: topology.Sink) -> None:
        super().__init__(sink)
        path = sink.options["path"]
        self._options = None
        if path.startswith("s3://"):
            from streamtopology.jobs.connectors.sinks.bucket import open_bucket  # loads obstore only for buckets

            self._options = open_bucket(path, sink.name).options
        self._uri = local_path(path) if self._options is None else path

    def table(self) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        with self.asked():
            try:  # `is_deltatable` would keep all threads of this process waiting for the server's answer
                return DeltaTable(self._uri, storage_options=self._options)
            except TableNotFoundError:
                return None

    def make(self, schema: pa.Schema) -> None:
        from deltalake import CommitProperties, DeltaTable, Schema
        from deltalake.exceptions import CommitFailedError

        with self.asked(), suppress(CommitFailedError):  # another process has made it meanwhile
            DeltaTable.create(
                self._uri,
                Schema.from_arrow(self.types.stored_schema(schema)),
                mode="ignore",
                partition_by=self.partition_by,
                storage_options=self._options,
                commit_properties=CommitProperties(max_commit_retries=0),
            )

    def columns(self, table: DeltaTable) -> pa.Schema:
        return pa.schema(table.schema().to_arrow())

    def partitions(self, table: DeltaTable) -> list[str]:
        return table.metadata().partition_columns

    def newest(self, table: DeltaTable, application: str) -> int:
        known = table.transaction_version(application)
        return -1 if known is None else known

    def commits(self, table: DeltaTable) -> Sequence[Mapping[str, str]]:
        return table.history(_KEPT_COMMITS)

    def append(self, table: DeltaTable, rows: pa.Table, noted: Mapping[str, str]) -> str | None:
        from deltalake import CommitProperties, Transaction, write_deltalake
        from deltalake.exceptions import CommitFailedError

        number = Transaction(noted[APPLICATION], int(noted[BATCH]), int(time.time() * 1000))
        properties = CommitProperties(custom_metadata=dict(noted), app_transactions=[number])
        try:
            write_deltalake(table, rows, mode="append", commit_properties=properties)
        except CommitFailedError as error:
            return self.cause(error)
        return None

    def cause(self, error: Exception) -> str:
        """Without colours, the table of rows, and the backtrace that some errors of delta-rs have."""
        lines = [_COLOURS.sub("", line).strip(" \t↳") for line in str(error).splitlines()]
        return " ".join(takewhile(lambda line: line and not _BACKTRACE.match(line), lines))
