"""The benchmarks and their options; imports nothing, as the command line loads it to list them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: its summary, and the options of its command, which its module's `run` takes, with their defaults."""

    summary: str
    options: Mapping[str, int | bool | str | tuple[int, ...]]
    # The extra of streamtopology-lab that it needs.
    extra: str | None = None


OPTIONS: Mapping[str, str] = {
    "bootstrap": "A broker of Kafka.",
    "runs": "Repetitions.",
    "seed": "The first seed; --runs tries the next ones, too.",
    "kills": "How many processes are killed.",
    "operator": "An operator decides, on the kubeconfig's API server, and is killed, too.",
    "keys": "Keys with state.",
    "batches": "Number of batches.",
    "executors": "Number of executors; may be repeated.",
    "minutes": "Begin no batch later than this many minutes after the start.",
    "topologies": "Number of topologies.",
    "shards": "Operators that share the topologies; one of them is measured, among the topologies of all.",
    "changes": "Number of changed policies.",
    "real_time": "With trigger.realTime: no job of Spark for a batch.",
    "quick": "Small streams: a test of seconds whose figures say nothing.",
}

BENCHMARKS: Mapping[str, Benchmark] = {
    "kernels": Benchmark("Hashing, table lookup and choosers against numpy take.", {"runs": 5}),
    "planners": Benchmark("Time of a plan, from 10 thousand to 1 million keys.", {"runs": 5}),
    "auto": Benchmark(
        "Share of the bound by policy on the streams of `auto`, simulated.", {"runs": 5, "seed": 1, "quick": False}
    ),
    "hotkeys": Benchmark(
        "Policy `auto` on Spark next to other policies and plain Spark.", {"runs": 3, "seed": 1, "real_time": False}
    ),
    "throttled": Benchmark(
        "A chain of two operators on slow links: `auto` next to other policies (root).",
        {"runs": 3, "seed": 1, "real_time": False},
    ),
    "locality": Benchmark("A locality plan of 150,000 key pairs against METIS alone.", {"runs": 5}),
    "dataplane": Benchmark("Two chained stateful operators against Spark's own row exchange.", {"runs": 5, "real_time": False}),
    "page": Benchmark("Ten open pages of a running topology against none.", {"runs": 5}),
    "latency": Benchmark(
        "Batches of 1,000 rows against foreachBatch with one pinned Python stage.", {"runs": 5, "real_time": False}
    ),
    "kafka": Benchmark(
        "1,000 rows/s from Kafka to Kafka: from the production of a row to its count.",
        {"bootstrap": "127.0.0.1:9092", "runs": 3, "real_time": False},
    ),
    "startup": Benchmark(
        "From `streamtopology run` to the first batch on four executors, against plain Spark's start.",
        {"runs": 5, "real_time": False},
    ),
    "heterogeneous": Benchmark(
        "One executor of four at 30 %: re-routing against fields, and against plain Spark.", {"runs": 5, "real_time": False}
    ),
    "job": Benchmark(
        "Queries of a PySpark script by Spark and by `streamtopology run`, on executors of unequal CPU.",
        {"runs": 3, "seed": 1, "quick": False},
    ),
    "processors": Benchmark(
        "PySpark's StatefulProcessors by Spark's query, and by our operator with its store and deltas.",
        {"runs": 3, "seed": 1, "quick": False},
    ),
    "rescale": Benchmark("One executor more and one fewer under a running topology.", {"runs": 3}),
    "chaos": Benchmark(
        "kill -9 of all processes during re-routing: rows lost, rows counted twice.",
        {"runs": 1, "seed": 1, "kills": 20, "operator": False, "real_time": False},
        "cluster",
    ),
    "soak": Benchmark(
        "Many small batches in one process, with changes and losses: memory, checkpoint files and p99 do not grow.",
        {"batches": 100_000, "minutes": 600},
    ),
    "scale": Benchmark(
        "CPU and bytes of the driver's parts as scripted executors grow in number, without Spark.",
        {"executors": (4, 16, 64, 256), "batches": 72},
    ),
    "state": Benchmark(
        "State on disk beside state in memory, and beside RocksDB, if rocksdict is installed.",
        {"keys": 10_000_000, "batches": 60, "runs": 3, "seed": 1},
    ),
    "recovery": Benchmark(
        "kill -9 of an executor, and of the driver: seconds to the next commit.",
        {"runs": 3, "keys": 2_000_000, "real_time": False},
    ),
    "migrate": Benchmark("Pre-copied state: bytes read and written, and the switching batch.", {"runs": 3, "keys": 1_000_000}),
    "reconfigure": Benchmark("A tenth of a million keys moves: delay, and time of the switching batch.", {"runs": 5}),
    "operator": Benchmark(
        "The operator with many topologies on an API server alone.", {"topologies": 100, "shards": 1}, "cluster"
    ),
    "node": Benchmark("A changed policy on a real node, to the first batch under it.", {"changes": 50}, "cluster"),
}
