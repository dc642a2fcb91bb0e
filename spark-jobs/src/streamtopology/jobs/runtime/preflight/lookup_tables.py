"""The tables that operators look up in are read once before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from streamtopology.jobs.connectors.sources.descriptors import SourceError
from streamtopology.jobs.connectors.sources.validation import check
from streamtopology.jobs.driver.lookup_tables import read_again
from streamtopology.jobs.operators.lookup import Lookup
from streamtopology.jobs.operators.lookup_table import LookupTable
from streamtopology.jobs.operators.options import OptionError
from streamtopology.topology import Doubt, Problem, Topology


def unreadable_tables(topology: Topology, base_dir: Path) -> Iterator[Problem]:
    """The findings about tables, all but those that the operators themselves have about their options."""
    for operator in topology.operators:
        try:
            lookups = read_again([operator], base_dir)
        except OptionError:
            continue  # the operator itself says so
        for lookup, table in lookups.values():
            yield from (
                Problem(f"{operator.path}.with.lookup", f"operator {operator.name!r}: {text}") for text in _of(lookup, table)
            )


def _of(lookup: Lookup, table: LookupTable) -> Iterator[str]:
    problems = [each.message for each in check(table.source).findings if not isinstance(each, Doubt)]
    yield from problems
    try:
        if not problems:
            lookup.newest()
    except (SourceError, OptionError) as error:
        yield str(error)
