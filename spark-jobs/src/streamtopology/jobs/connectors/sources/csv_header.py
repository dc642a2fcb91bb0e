"""CSV files whose first line names their columns, declared as files without such a line."""

from __future__ import annotations

import pyarrow as pa

from streamtopology.jobs.connectors.sources.conform import SchemaMismatchError
from streamtopology.jobs.connectors.sources.csv_options import CsvOptions
from streamtopology.jobs.connectors.sources.csv_rows import csv_header
from streamtopology.jobs.connectors.sources.descriptors import SourceSpec
from streamtopology.jobs.connectors.sources.partitions import partition_texts
from streamtopology.topology import Doubt, Problem


def missing_header(spec: SourceSpec, declared: pa.Schema, path: str) -> Problem | None:
    """The finding that `path` begins with the names of the declared columns, and the source lacks `header: true`.

    Of texts alone the names can be read as a row: then it is a doubt. Raises OSError and SourceError.
    """
    if spec.format != "csv" or CsvOptions.of(spec).header:
        return None
    try:
        first = csv_header(path, spec)
    except SchemaMismatchError:
        return None  # its rows are read next, with the finding on this one
    cells = {cell.strip().lower() for cell in first}
    own = [field for field in declared if field.name.lower() not in partition_texts(spec, path)]
    if not own or not all(field.name.lower() in cells for field in own):
        return None
    kind = Doubt if all(pa.types.is_string(field.type) for field in own) else Problem
    sentence = f"source {spec.name!r}: the first line of {path} is the names of its columns, and would be read as a row"
    return kind("options.header", f"{sentence}; set options.header: true")
