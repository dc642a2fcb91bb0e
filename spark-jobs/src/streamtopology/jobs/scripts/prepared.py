"""A query of a script, ready to run as a topology: checked, with what its sources and its sink take from the script."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from streamtopology.contract.errors import StreamTopologyError
from streamtopology.jobs.connectors.sources.spark.native import rows_of
from streamtopology.jobs.plan.dag import compile_dag
from streamtopology.jobs.scripts import catalyst
from streamtopology.jobs.scripts.cut import cut
from streamtopology.jobs.scripts.lifted import WriterSettings
from streamtopology.jobs.scripts.outputs import as_frame, output_of
from streamtopology.jobs.scripts.parts import Cut, NotCut
from streamtopology.topology import ManifestError, Topology, to_manifest

NO_CHECKPOINT = "it has no checkpointLocation"
_WITHOUT_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"


@dataclass(frozen=True)
class Prepared:
    """A `topology`, the frame of each of its sources, and what takes the rows of each batch, and its number."""

    topology: Topology
    frames: Mapping[str, DataFrame]
    take: Callable[[pa.Table, int], None]


def cut_query(frame: DataFrame, asked: WriterSettings) -> Cut:
    """Cut what a script starts. Raises NotCut, and Spark's own errors for what is no query."""
    catalyst.check_streaming(frame, asked.output_mode)
    if asked.trigger.get("once") and catalyst.has_limits(catalyst.plan_of(frame)):
        raise NotCut("its trigger is once, for which Spark reads all in one batch, whatever limit a source has")
    made = cut(frame, asked.output_mode.lower())
    if frame.sparkSession.conf.get(_WITHOUT_DATA) == "false":
        raise NotCut(f"{_WITHOUT_DATA} is false, and a topology closes windows and fires timers while no rows come, too")
    return made


def checkpoint_of(asked: WriterSettings, spark: SparkSession) -> str | None:
    """Where the checkpoint of a query is to be, None if nothing says it. Raises NotCut for where it cannot be."""
    given = asked.option("checkpointLocation")
    if given is None and (root := spark.conf.get("spark.sql.streaming.checkpointLocation", None)):
        given = f"{root}/{asked.name or uuid.uuid4()}"
    if given is None:
        return None
    if given.startswith("file:"):
        return "/" + given.removeprefix("file:").lstrip("/")
    if "://" in given and not given.startswith("s3://"):
        raise NotCut(f"its checkpointLocation is {given}, and a topology's is in a folder or at s3://BUCKET/PREFIX")
    return given


def prepare(made: Cut, asked: WriterSettings, topology: Topology, base_dir: Path, spark: SparkSession) -> Prepared:
    """Check the topology of a query that was cut, and what its writer was asked. Raises NotCut, and Spark's own errors.

    spark: the session in which the script starts the query. The rows of batches are in one of their own, as on Spark.
    """
    try:
        rows = {given.name: rows_of(topology.source(given.name), given.rows) for given in made.part.inputs}
        nodes = compile_dag(topology, rows, base_dir).nodes
    except StreamTopologyError as error:
        said = "; ".join(problem.message for problem in error.problems) if isinstance(error, ManifestError) else str(error)
        raise NotCut(made.part.in_words(said)) from error
    output = next(node.output for node in nodes if node.name == topology.sinks[0].input)
    assert output is not None, "an operator of a script emits rows"
    of_batches = catalyst.clone_of(spark)

    def frame_of(rows: pa.Table) -> DataFrame:
        return catalyst.frame_of(of_batches, catalyst.plan_of(as_frame(rows, spark)))

    above = made.above(frame_of(output.empty_table()))
    write = output_of(asked, above.frame, spark)

    def take(rows: pa.Table, batch: int) -> None:
        write(above.of(frame_of(rows)), batch)

    named = take if asked.function is None else wraps(asked.function)(take)  # by it, errors name the script's function
    return Prepared(topology, {given.name: given.rows for given in made.part.inputs}, named)


def fingerprint(script: Path, topology: Topology) -> str:
    """Tells a script's text and what a query of it was cut into from others, whatever its user says of groupings."""
    manifest: Any = to_manifest(topology)
    given: list[dict[str, Any]] = manifest["spec"]["operators"]
    operators = [{name: each[name] for name in ("name", "inputs", "run", "with")} for each in given]
    for operator in operators:
        operator["with"].pop("pickled", None)  # is not the same bytes again
    text = json.dumps(operators, sort_keys=True).encode()
    return hashlib.sha256(script.read_bytes() + text).hexdigest()[:16]
