"""The first rows of each source through a whole topology, in this process: nothing is written but to a temporary folder."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.connectors.sinks.dead_letters import DEAD_LETTERS
from streamtopology.jobs.connectors.sinks.memory import MemorySink, memory_rows
from streamtopology.jobs.connectors.sources.descriptors import Descriptor, SourceSpec
from streamtopology.jobs.connectors.sources.first_rows import first_rows, why_unread
from streamtopology.jobs.connectors.sources.schema.declared import declared_schema
from streamtopology.jobs.driver.batch_loop import BatchLoop
from streamtopology.jobs.driver.compaction import Compaction
from streamtopology.jobs.driver.progress import BatchInput
from streamtopology.jobs.driver.publisher import Publisher
from streamtopology.jobs.driver.watermarks import Watermarks
from streamtopology.jobs.rerouting.gradual import GradualSwitching
from streamtopology.jobs.runtime.first_plan import first_plan
from streamtopology.jobs.runtime.one_process import FixedPlan, OneProcess
from streamtopology.jobs.runtime.preflight.checks import source_schemas
from streamtopology.routing.epochs.rescaling import slot_names
from streamtopology.topology import Source, Topology


@dataclass(frozen=True)
class Tried:
    """What came of the rows. `read`: rows by source; `left_out`: of these, those that its `where` leaves out.

    `sinks`: the rows by sink; `failed`: the rows that were set aside, as dead letters; both tables may have no columns.
    """

    read: Mapping[str, int]
    left_out: Mapping[str, int]
    sinks: Mapping[str, pa.Table]
    failed: pa.Table


def part_to_try(topology: Topology) -> tuple[Topology, list[str]]:
    """The topology without what needs rows that cannot be had here, and a sentence on each part that is left out."""
    untried = {source.name: why for source in topology.sources if (why := why_unread(source))}
    sentences = list(untried.values())
    for operator in topology.operators:
        missing = [each.source for each in operator.inputs if each.source in untried]
        if missing:
            untried[operator.name] = missing[0]
            sentences.append(f"operator {operator.name!r}: it reads {missing[0]!r}")
    sinks = tuple(sink for sink in topology.sinks if sink.input not in untried)
    sentences += [f"sink {sink.name!r}: it takes the rows of {sink.input!r}" for sink in topology.sinks if sink not in sinks]
    operators = tuple(operator for operator in topology.operators if operator.name not in untried)
    wanted = {each.source for operator in operators for each in operator.inputs}
    sources = tuple(source for source in topology.sources if source.name in wanted)
    return replace(topology, sources=sources, operators=operators, sinks=sinks), sentences


def try_rows(topology: Topology, base_dir: Path, most: int) -> Tried:
    """Run the first `most` rows of each source through `topology`, then the end of the input, which closes all windows.

    Rows that fail are set aside, whatever the manifest says. Raises SourceError, TopologyFailed and ManifestError.
    """
    with tempfile.TemporaryDirectory(prefix="streamtopology-try-") as folder:
        given = {source.name: first_rows(SourceSpec.of(source, "try"), most, Path(folder)) for source in topology.sources}
        sources = tuple(_of_file(source, _kept(Path(folder), source.name, given[source.name])) for source in topology.sources)
        topology = replace(topology.resolved(), sources=sources, on_bad_tuple="deadLetter", restore=None)
        with _driver(topology, base_dir, Path(folder)) as (driver, router):
            parts = [_all_of(source, given[source.name]) for source in sources if given[source.name].num_rows]
            driver.batch(BatchInput(0, parts, is_limited=False))
            driver.drain(for_good=True)
        left_out = Counter[str]()
        for done in router.done:
            for report in done.results.sources:
                left_out.update(report.filtered_rows)
        sinks = {sink.name: memory_rows(sink.name) for sink in topology.sinks}
        return Tried({name: rows.num_rows for name, rows in given.items()}, left_out, sinks, memory_rows(DEAD_LETTERS))


def _kept(folder: Path, source: str, rows: pa.Table) -> Path:
    path = folder / f"{source}.parquet"
    pq.write_table(rows, path, row_group_size=max(1, rows.num_rows))
    return path


def _of_file(source: Source, path: Path) -> Source:
    """The source with its first rows, from before its select and where, as all that it has."""
    schema = source.schema
    if schema is None:
        schema = ", ".join(f"{name} {_DDL[source.format][name]}" for name in declared_schema(SourceSpec.of(source)).names)
    return replace(source, format="parquet", schema=schema, options={"path": str(path)})


def _all_of(source: Source, rows: pa.Table) -> str:
    count = rows.num_rows
    return Descriptor(source.name, "parquet", source.options["path"], 0, 0, count, count, rows.nbytes).to_json()


# The types of columns that a format has without a schema.
_DDL = {
    "text": {"value": "STRING"},
    "kafka": {
        "key": "BINARY",
        "value": "BINARY",
        "topic": "STRING",
        "partition": "INT",
        "offset": "BIGINT",
        "timestamp": "TIMESTAMP",
        "timestampType": "INT",
        "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    },
}


@contextmanager
def _driver(topology: Topology, base_dir: Path, folder: Path) -> Iterator[tuple[BatchLoop, FixedPlan]]:
    checkpoint = Checkpoint.open(str(folder / "checkpoint"), topology.name)
    plan = first_plan(topology, source_schemas(topology, {}), base_dir, checkpoint, _unsaid)
    router = FixedPlan(plan, checkpoint)
    sinks = {name: MemorySink(name) for name in (*(sink.name for sink in topology.sinks), DEAD_LETTERS)}
    with closing(Compaction(checkpoint, notify=_unsaid)) as compaction:
        yield (
            BatchLoop(
                runner=OneProcess(slot_names(topology)),
                checkpoint=checkpoint,
                router=router,
                publisher=Publisher(checkpoint, sinks, lambda sink: sinks[sink.name]),
                compaction=compaction,
                switching=GradualSwitching(checkpoint, _unsaid),
                watermarks=Watermarks(topology.sources),
                run="try",
                notify=_unsaid,
            ),
            router,
        )


def _unsaid(text: str) -> None:
    """Nothing goes on after a trial: what a run says of its batches is of no use."""
