"""Checks of a topology before Spark starts, and the schemas that follow from its manifest alone."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.checkpoint.checkpoint import of_another
from streamtopology.jobs.checkpoint.errors import CheckpointError
from streamtopology.jobs.checkpoint.local_store import foreign_text
from streamtopology.jobs.checkpoint.location import checkpoint_uri
from streamtopology.jobs.checkpoint.retention import HEADER, ORIGIN
from streamtopology.jobs.columnar import expressions
from streamtopology.jobs.connectors.folder_overlap import overlap_problems
from streamtopology.jobs.connectors.sinks import check as check_sink
from streamtopology.jobs.connectors.sinks.writable import rows_of_others, unwritable_folders
from streamtopology.jobs.connectors.sources.descriptors import SourceSpec
from streamtopology.jobs.connectors.sources.files.survey import amount
from streamtopology.jobs.connectors.sources.sample import check_event_times
from streamtopology.jobs.connectors.sources.schema.declared import declared_schema
from streamtopology.jobs.connectors.sources.validation import check as check_source
from streamtopology.jobs.plan.dag import compile_dag
from streamtopology.jobs.runtime.preflight.cpu_doubts import cpu_doubts
from streamtopology.jobs.runtime.preflight.lookup_tables import unreadable_tables
from streamtopology.jobs.runtime.preflight.sink_columns import sink_columns
from streamtopology.jobs.spark.user_settings import missing_variables
from streamtopology.jobs.state import StateSchema
from streamtopology.topology import (
    Doubt,
    ManifestError,
    OperatorSpec,
    Problem,
    Reading,
    Source,
    Topology,
    in_order,
    listed,
    read,
    read_yaml,
    without_consequences,
)


@dataclass(frozen=True)
class Findings:
    """All that can be found in a manifest without Spark; a value that could not be read is its default in `topology`.

    unchecked: a sentence on checks that wait for the problems to be corrected; "" without any.
    """

    where: str
    topology: Topology
    problems: tuple[Problem, ...]
    doubts: tuple[Doubt, ...]
    unchecked: str = ""

    def warnings(self) -> str:
        """The doubts for people; empty without any."""
        return listed(self.where, "warning", self.doubts) if self.doubts else ""

    def refuse_problems(self) -> Topology:
        """The topology. Raises ManifestError with every problem."""
        if self.problems:
            raise ManifestError(self.problems, self.where, self.unchecked)
        return self.topology


def examine(manifest: Path) -> Findings:
    """Check the manifest in a file. Raises ManifestError if it is not one YAML document."""
    return examine_value(read_yaml(manifest), str(manifest), manifest.resolve().parent)


def examine_value(manifest: object, where: str, base_dir: Path) -> Findings:
    """Check a manifest as YAML or JSON give it; `where` names it, and files that it names are relative to `base_dir`."""
    return _findings(where, read(manifest), base_dir)


def check_before_start(topology: Topology, base_dir: Path) -> None:
    """Check a topology that was read already. Raises ManifestError with every problem."""
    _findings("the manifest", Reading(topology, ()), base_dir).refuse_problems()


def amounts(topology: Topology) -> list[str]:
    """Return the files and rows that each source of files sees now, a line for each."""
    specs = [SourceSpec.of(source) for source in topology.sources if source.reads_descriptors and source.format != "kafka"]
    return [f"source {spec.name!r} sees {amount(spec)}" for spec in specs]


def _findings(where: str, reading: Reading, base_dir: Path) -> Findings:
    topology = reading.topology
    found, sources = _source_findings(reading, base_dir)
    found += _operator_problems(topology, sources, base_dir)
    if all(isinstance(finding, Doubt) for finding in found):
        found += time_problems(topology, sources)
        found += unreadable_tables(topology, base_dir)
    for index, sink in enumerate(topology.sinks):
        found += _below(f"spec.sinks[{index}]", check_sink(sink, base_dir))
    found += overlap_problems(topology)
    found += missing_variables(topology.spark_conf)
    found += _checkpoint_problems(topology)
    found += unwritable_folders(topology)
    found += rows_of_others(topology)
    found += cpu_doubts(topology, os.cpu_count() or 1)
    found += memory_doubts(topology, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    kept = without_consequences(found, reading.problems)
    problems = in_order([*reading.problems, *(finding for finding in kept if not isinstance(finding, Doubt))])
    doubts = tuple(finding for finding in kept if isinstance(finding, Doubt))
    return Findings(where, topology, tuple(problems), doubts, _unchecked(topology, sources))


def _source_findings(reading: Reading, base_dir: Path) -> tuple[list[Problem], dict[str, pa.Schema]]:
    """The findings about all sources, and the rows of those that are certain to have them."""
    findings: list[Problem] = []
    rows: dict[str, pa.Schema] = {}
    for index, source in enumerate(reading.topology.sources):
        path = f"spec.sources[{index}]"
        checked = check_source(source, base_dir)
        findings += _below(path, checked.findings)
        decisive = [Problem(f"{path}.{field}", "") for field in ("name", "format", "schema", "select")]
        if checked.rows is not None and without_consequences(decisive, reading.problems) == decisive:
            rows[source.name] = checked.rows
    return findings, rows


def _unchecked(topology: Topology, known: Mapping[str, pa.Schema]) -> str:
    """The sentence on columns of sources whose rows are not `known`, as their schema or select is wrong."""
    unknown = [repr(source.name) for source in topology.sources if source.reads_descriptors and source.name not in known]
    if not unknown:
        return ""
    return f"columns of {' and '.join(unknown)} that are used further down are checked once these are corrected"


def _below(path: str, findings: Iterable[Problem]) -> list[Problem]:
    return [replace(finding, path=f"{path}.{finding.path}") for finding in findings]


def _operator_problems(topology: Topology, sources: Mapping[str, pa.Schema], base_dir: Path) -> list[Problem]:
    problems = [
        Problem(f"{operator.path}.grouping.options.capacities", sentence)
        for operator in topology.operators
        if (sentence := _unfit_capacities(operator))
    ]
    try:
        problems += sink_columns(topology, compile_dag(topology, sources, base_dir), base_dir)
    except ManifestError as error:
        problems += error.problems
    return problems


def _unfit_capacities(operator: OperatorSpec) -> str | None:
    given = operator.grouping.options.get("capacities")
    if not isinstance(given, list | tuple) or len(given) == operator.parallelism:
        return None
    return (
        f"found {len(given)} numbers for {operator.parallelism} instances; give one for each, or leave them out to have them "
        "measured"
    )


def _checkpoint_problems(topology: Topology) -> list[Problem]:
    """Problems of a checkpoint's folder; a bucket is looked at when the run starts."""
    uri = "" if topology.checkpoint is None else checkpoint_uri(topology, Path())
    if not uri or uri.startswith("s3://"):
        return []
    try:
        wrong = _wrong_folder(Path(uri), topology.name)
    except CheckpointError as error:
        wrong = str(error)
    return [Problem("spec.checkpoint", wrong)] if wrong else []


def _wrong_folder(folder: Path, topology: str) -> str:
    """The reason why a topology's checkpoint can neither begin nor continue in a folder; empty if it can. CheckpointError."""
    there = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
    if not there.is_dir():
        return f"checkpoint {folder}: {there} is a file; name a folder that is empty or does not exist yet"
    if (folder / HEADER).is_file():
        found = Checkpoint.attach(str(folder)).topology
        return "" if found == topology else of_another(str(folder), found, topology)
    if (folder / ORIGIN).is_file():  # half of a copy: the run continues it, or says so
        return ""
    return foreign_text(folder)


def source_schemas(topology: Topology, spark_schemas: Mapping[str, pa.Schema]) -> dict[str, pa.Schema]:
    """Return each source's schema after its select; `spark_schemas` are those of sources that Spark reads."""
    schemas: dict[str, pa.Schema] = {}
    for source in topology.sources:
        if source.reads_descriptors:
            declared = declared_schema(SourceSpec.of(source))
            schemas[source.name] = expressions.output_schema(declared, source.select, source.where)
        else:
            schemas[source.name] = spark_schemas[source.name]
    return schemas


def declared_state(topology: Topology, base_dir: Path) -> dict[str, StateSchema]:
    """Return the state schemas of the manifest's operators, by node; empty if only Spark knows a source's schema."""
    if not all(source.reads_descriptors for source in topology.sources):
        return {}
    nodes = compile_dag(topology, source_schemas(topology, {}), base_dir).nodes
    return {node.name: node.state for node in nodes if node.state is not None}


_GIB = 2**30


def memory_doubts(topology: Topology, machine: int) -> Iterator[Doubt]:
    """Doubts about the memory of a topology's executors, on a machine of `machine` bytes; a cluster may have more."""
    too_large = False
    for index, executor in enumerate(topology.executors):
        if executor.memory_bytes > machine:
            too_large = True
            found = f"found {_gib(executor.memory_bytes)} for each executor of class {executor.name!r}"
            yield Doubt(f"spec.executors[{index}].memory", f"{found}, {_remedy(machine)}")
    together = sum(executor.memory_bytes * executor.replicas for executor in topology.executors)
    if together > machine and not too_large:
        yield Doubt("spec.executors", f"found {_gib(together)} of memory in all, {_remedy(machine)}")


def _remedy(machine: int) -> str:
    return (
        f"this machine has {_gib(machine)}: here executors that use it are ended by the system; give them less, or run on a "
        "cluster"
    )


def _gib(amount: int) -> str:
    return f"{amount / _GIB:.3g}Gi"


_WINDOWED = ("window-aggregate", "session-window", "window-join", "deduplicate")


def time_problems(topology: Topology, rows: Mapping[str, pa.Schema]) -> Iterator[Problem]:
    """The findings about numbers in the option `time` of windowed operators that read sources of files.

    `rows`: of each source. The column of a source's own watermark is not looked at again.
    """
    sources = {source.name: source for source in topology.sources if source.name in rows and "path" in source.options}
    for operator in topology.operators:
        for source, column in _times(operator, sources) if operator.run in _WINDOWED else ():
            looked_at = source.watermark is not None and source.watermark.column == column
            if not looked_at and _is_number(rows[source.name], column):
                for finding in check_event_times(SourceSpec.of(source), column):
                    yield replace(finding, path=f"{operator.path}.with.time")


def _times(operator: OperatorSpec, sources: Mapping[str, Source]) -> Iterator[tuple[Source, str]]:
    """The sources that the operator reads, each with its column of event time."""
    time = operator.options.get("time")
    for edge in operator.inputs:
        column = time.get(edge.alias) if isinstance(time, Mapping) else time
        if edge.source in sources and isinstance(column, str):
            yield sources[edge.source], column


def _is_number(schema: pa.Schema, column: str) -> bool:
    if column not in schema.names:
        return False
    kind = schema.field(column).type
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)
