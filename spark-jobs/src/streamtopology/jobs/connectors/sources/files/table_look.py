"""What a table holds now, of whatever format it is."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from streamtopology.jobs.connectors.sources.descriptors import SourceSpec
from streamtopology.jobs.connectors.sources.stored_files import FileStatus


def files_of_table(spec: SourceSpec) -> Iterator[tuple[str, FileStatus]]:
    """The files that a table consists of now, in the order in which they are read. Raises TableError and CatalogError."""
    if spec.table_format == "iceberg":
        from streamtopology.jobs.connectors.sources.files import iceberg_table  # loads pyiceberg only for its tables

        return iceberg_table.files_of_table(spec)
    from streamtopology.jobs.connectors.sources.files import delta_table

    return delta_table.files_of_table(spec)


def columns_of_table(spec: SourceSpec) -> pa.Schema:
    """The columns of a table. Raises TableError and CatalogError."""
    if spec.table_format == "iceberg":
        from streamtopology.jobs.connectors.sources.files import iceberg_table

        return iceberg_table.open_table(spec).schema().as_arrow()
    from streamtopology.jobs.connectors.sources.files import delta_table

    return delta_table.table_columns(delta_table.open_table(spec))
