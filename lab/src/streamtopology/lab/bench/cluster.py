"""Shared by the benchmarks on Spark: a cluster, a topology run on it, figures as JSON."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from streamtopology.contract.reasons import EpochReason
from streamtopology.contract.stats import Rerouting
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.local.embedded_cluster import EmbeddedCluster
from streamtopology.jobs.local.run import open_run, process
from streamtopology.jobs.local.start_steps import StartSteps
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.jobs.runtime.streaming_query import Until
from streamtopology.jobs.runtime.topology_run import RunOptions, TopologyRun, new_history
from streamtopology.jobs.spark.cluster import executor_slots
from streamtopology.lab.bench import figures
from streamtopology.topology import Topology, parse

FOLDER = Path("build/bench")
_MARK = ".made-by-a-benchmark"
# Two executors that may use all CPU of two cores each.
TWO_UNLIMITED = ({"name": "free", "replicas": 2, "cpu": 2, "memory": "2Gi"},)

# As in the demo: three executors alike, and one with 30 % of their CPU.
ONE_OF_FOUR_SLOW: tuple[dict[str, Any], ...] = (
    {"name": "large", "replicas": 3, "cpu": "450m", "memory": "1Gi"},
    {"name": "small", "replicas": 1, "cpu": "135m", "memory": "1Gi"},
)

PLAIN_SPARK = {
    "spark.sql.codegen.wholeStage": "true",  # ours is without, as its stages are Python; Spark's own way is faster with
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.files.openCostInBytes": str(256 * 1024),  # small files are read by every executor, not by one
}


def announce(text: str) -> None:
    """Progress, for who waits."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def fresh_folder(bench: str) -> Path:
    """The bench's own folder, empty. Raises WrongUse for one with files that no benchmark has marked as its own."""
    folder = (FOLDER / bench).resolve()
    if folder.exists() and any(folder.iterdir()) and not (folder / _MARK).exists():
        raise WrongUse(
            f"{folder} has no {_MARK}, so another has made it: move it away, as a benchmark begins with an empty one"
        )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / _MARK).touch()
    return folder


def topology(
    name: str,
    data: Path,
    schema: str,
    operators: Sequence[Mapping[str, Any]],
    executors: Sequence[Mapping[str, Any]],
    rebalance: Mapping[str, Any] | None = None,
    **more: Any,
) -> Topology:
    """A topology that takes one parquet file of `data` a batch, as the source `rows`; re-routed only with `rebalance`.

    `more`: other parts of the manifest's spec.
    """
    source = {"name": "rows", "format": "parquet", "schema": schema, "options": {"path": str(data), "maxFilesPerTrigger": 1}}
    spec = {
        "sources": [source],
        "operators": list(operators),
        "executors": list(executors),
        "rebalance": dict(rebalance or {"mode": "Off"}),
        **more,
    }
    return parse(
        {"apiVersion": "streamtopology.dev/v1alpha1", "kind": "StreamTopology", "metadata": {"name": name}, "spec": spec}
    )


def cluster_for(topology: Topology, folder: Path) -> EmbeddedCluster:
    """A cluster of the topology's executors, to be entered."""
    slots = executor_slots(topology)
    return EmbeddedCluster(topology.name, slots, folder / "cluster", StartSteps(len(slots), announce))


@dataclass(frozen=True)
class Ran:
    """One finished run of a topology; `bound` in source rows/s, by the capacities measured in it."""

    batches: tuple[BatchOutcome, ...]
    reconfigurations: tuple[Rerouting, ...]
    bound: float


def run_topology(
    embedded: EmbeddedCluster,
    topology: Topology,
    folder: Path,
    batches: int,
    prepare: Callable[[TopologyRun, History], None] = lambda run, history: None,
) -> Ran:
    """Run `batches` batches from an empty checkpoint in `folder`; `prepare` is called before the first."""
    history = new_history(topology)
    run = open_run(embedded, topology, Path.cwd(), history, RunOptions(Until(batches=batches), folder))
    prepare(run, history)
    process(run, history)
    return Ran(history.batches, history.reconfigurations, run.bound())


def source_by_capacity(embedded: EmbeddedCluster) -> Callable[[TopologyRun, History], None]:
    """Has each executor read as much of the source as it has of the CPU, from the first batch on."""
    cpu = [slot.cpu for slot in embedded.slots]

    def publish(run: TopologyRun, history: History) -> None:
        first = run.router.epoch
        shares = tuple(cores / sum(cpu) for cores in cpu)
        reason = EpochReason.of_text("the source by capacity")
        run.router.publish(replace(first, number=first.number + 1, source_shares=shares, reason=reason))

    return publish


@contextmanager
def plain_spark(spark: SparkSession, more: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """While entered, the SQL settings are Spark's own where ours would slow Spark's own operators down, and `more`."""
    settings = {**PLAIN_SPARK, **(more or {})}
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield spark
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def machine(**of_bench: object) -> dict[str, object]:
    """The machine, Spark's version and the sizes of the benchmark."""
    return figures.machine(spark=pyspark.__version__, **of_bench)
