"""The tables that operators look up in: which version of each a batch sees.

A version is copied into the checkpoint before the first batch that sees it, and each batch's record names the copies. So all
instances see one version, executors need no access to the table, and a batch that is run again sees what it saw before, also
if the table has changed or is gone since then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from streamtopology.jobs.checkpoint import BatchRecord, Checkpoint, TableCopy
from streamtopology.jobs.connectors.sources.descriptors import SourceError
from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.operators.lookup import Lookup
from streamtopology.jobs.operators.lookup_table import TABLE_OPTIONS, LookupTable
from streamtopology.jobs.operators.options import OptionError
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.topology import OperatorSpec
from streamtopology.topology.reading import is_mapping


def read_again(operators: Iterable[OperatorSpec], base_dir: Path) -> dict[str, tuple[Lookup, LookupTable]]:
    """The lookups whose tables are read again, by operator. Raises OptionError."""
    found = dict[str, tuple[Lookup, LookupTable]]()
    for operator in operators:
        options = operator.options.get("lookup") if operator.run == "enrich" else None
        if is_mapping(options) and set(TABLE_OPTIONS) & set(options):
            lookup = Lookup.from_options({str(name): value for name, value in options.items()}, base_dir)
            if lookup.again is not None:
                found[operator.name] = lookup, lookup.again
    return found


@dataclass
class LookupTables:
    """`notify` gets a sentence when a table can no longer be read, and when it can again. `clock` gives epoch seconds."""

    checkpoint: Checkpoint
    notify: Callable[[str], None]
    clock: Callable[[], float]
    _looked_at: dict[str, float] = field(default_factory=dict[str, float])
    _complaints: dict[str, str] = field(default_factory=dict[str, str])

    def of_batch(
        self, plan: ExecutionPlan, batch: int, tried: BatchRecord | None, before: Mapping[str, TableCopy]
    ) -> dict[str, TableCopy]:
        """The copies that a batch sees, by operator: those of an attempt that was recorded, else of the tables as they are now.

        tried: the newest attempt at it; before: those of the batch before. Raises TopologyFailed if there is nothing to see.
        """
        found = dict[str, TableCopy]()
        for name, (lookup, table) in read_again(plan.topology.operators, plan.base_dir).items():
            recorded = None if tried is None else tried.tables.get(name)
            if recorded is not None and recorded.of == table.digest:
                found[name] = recorded
            else:
                last = before.get(name)
                found[name] = self._newest(name, lookup, table, batch, last if last and last.of == table.digest else None)
        return found

    def _newest(self, name: str, lookup: Lookup, table: LookupTable, batch: int, last: TableCopy | None) -> TableCopy:
        """The table as it is now; if it cannot be read, or it is too early to look at it again, as it was."""
        now = self.clock()
        if last is not None and name in self._looked_at and abs(now - self._looked_at[name]) < table.every:
            return last
        self._looked_at[name] = now
        try:
            found = lookup.newest(None if last is None else last.version)
        except (SourceError, OptionError) as error:
            if last is None:
                raise TopologyFailed(f"operator {name!r}: {error}") from error
            self._complain(name, f"operator {name!r}: {error}. Until then it looks up in the rows that it had before")
            return last
        if self._complaints.pop(name, None):
            self.notify(f"operator {name!r}: its table is there again")
        if found is None:
            assert last is not None, "a table has a version only once it was read"
            return last
        version, rows = found
        return self.checkpoint.keep_table(name, batch, version, table.digest, rows)

    def _complain(self, name: str, complaint: str) -> None:
        if self._complaints.get(name) != complaint:
            self.notify(complaint)
        self._complaints[name] = complaint
