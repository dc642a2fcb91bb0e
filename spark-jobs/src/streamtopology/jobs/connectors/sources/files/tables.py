"""Tables whose log lists the files that have their rows: what is common to those of Delta and of Iceberg."""

from __future__ import annotations

from streamtopology.jobs.connectors.sources.descriptors import SourceSpec
from streamtopology.jobs.connectors.sources.errors import TableError
from streamtopology.jobs.connectors.sources.path_patterns import plain


def place_of_table(spec: SourceSpec) -> str:
    return spec.options["table"] if spec.table_format == "iceberg" else plain(spec.options["path"])


def refusal(spec: SourceSpec, finding: str) -> TableError:
    return TableError(f"source {spec.name!r}: table {place_of_table(spec)} {finding}")
