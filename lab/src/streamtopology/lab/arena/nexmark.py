"""The arena's case nexmark: its queries by each engine in turns, on the same rows and with the same workers.

The rows are those of `streamtopology nexmark`: in ten files a kind for us, who take a file a batch, and in one for Flink, whose
files are read in any order, which would make rows late. Before each measurement an engine counts the rows of its result, which
have to be as many as DuckDB has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from streamtopology.lab.arena.engines import NEXMARK_COMMIT, NEXMARK_JAR, EngineMissing, Place, nexmark_jar
from streamtopology.lab.arena.peer import SCRIPTS, Arena, Measurement
from streamtopology.lab.nexmark.configuration import NexmarkConfiguration
from streamtopology.lab.nexmark.events import KINDS, write_events
from streamtopology.lab.nexmark.sql import NEWEST, SQL

EQUAL = (1.0, 1.0)
# Four of half a core, of which the last has 30 % of that.
UNEQUAL = (0.5, 0.5, 0.5, 0.15)
FILES = 10
EXAMPLES, JOB = Path("examples/nexmark/queries.py"), Path("examples/nexmark/job.py")
OURS, FLINK, SPARK = "streamtopology", "flink", "spark"
ENGINES_OF_NEXMARK = (OURS, FLINK, SPARK)
# Those of our PySpark job: what else there is Spark's streams cannot say.
OF_SPARK = ("q1", "q2", "q3", "q11", "q12", "q17", "q18", "q20", "q22")

# What is counted of a result where that is not its rows: of DuckDB's, and of the rows that an engine has.
_EXPECTED = {"q12": "sum(bid_count)", "q19": "sum(len(prices))"}
_OF_OURS = {
    **{query: f"count(DISTINCT ({', '.join(key)},))" for query, key in NEWEST.items()},
    "q12": "sum(bid_count)",
    "q19": "(SELECT sum(n) FROM (SELECT max(len(bids)) AS n FROM rows GROUP BY auction))",
}
# Of Flink, queries whose state does not fit on the heap of 3 GiB with 10 million events: RocksDB, as nexmark has it for all.
_LARGE_STATE = ("q7", "q9", "q16")
_ON_DISK = {
    "state.backend.type": "rocksdb",
    "execution.checkpointing.incremental": "true",
    "taskmanager.memory.managed.size": "1400m",
}
# What cannot be held against DuckDB: Flink leaves the last windows of processing time open when the events end.
_UNCHECKED = {(FLINK, "q12")}


@dataclass(frozen=True)
class Nexmark:
    """What is measured: `queries` on `events` events, `runs` times by each of `engines`."""

    events: int
    runs: int
    queries: Sequence[str]
    engines: Sequence[str]
    # Flink reads nexmark's own generator, whose rows differ from run to run, so that nothing can be checked.
    datagen: bool = False
    # Cores of each worker.
    cpus: Sequence[float] = EQUAL

    @property
    def case(self) -> str:
        """Of the measurements."""
        return f"{self.stream}{'-unequal' if self.cpus == UNEQUAL else ''}"

    @property
    def stream(self) -> str:
        """Of the events."""
        return f"nexmark-{self.events}"


def measure(asked: Nexmark, arena: Arena, place: Place, announce: Callable[[str], None]) -> list[dict[str, Any]]:
    """A row of each query and engine, in turns."""
    data = place.folder / "data" / asked.stream
    if not (data / "expected.json").exists():
        announce(f"writes {asked.events:,} events to {data}, and counts by DuckDB")
        _write(data, asked.events)
    if FLINK in asked.engines:
        try:
            nexmark_jar(place, announce)
        except EngineMissing as reason:
            arena.cannot_have(FLINK, reason)
    expected: dict[str, int] = json.loads((data / "expected.json").read_text())
    rows: list[dict[str, Any]] = []
    for query in asked.queries:
        for engine in asked.engines:
            if engine == SPARK and query not in OF_SPARK:
                continue
            row = arena.row(_measurement(asked, engine, query, data, place))
            unchecked = (engine, query) in _UNCHECKED or (asked.datagen and engine == FLINK)
            held_against = None if unchecked else expected[query]
            rows.append({**row, "query": query, "events": asked.events, "expected": held_against})
    return rows


def _measurement(asked: Nexmark, engine: str, query: str, data: Path, place: Place) -> Measurement:
    case = f"{asked.case}/{query}"
    common = {"query": query, "runs": asked.runs, "cpus": asked.cpus}
    if engine == OURS:
        of_ours = {"queries": str(EXAMPLES.absolute()), "data": str((data / "files").absolute())}
        count = _OF_OURS.get(query, "count(*)")
        return Measurement(OURS, case, SCRIPTS / "streamtopology_nexmark.py", {**common, **of_ours, "count": count})
    if engine == SPARK:
        of_spark = {"job": str(JOB.absolute()), "data": str((data / "files").absolute())}
        return Measurement(SPARK, case, SCRIPTS / "spark_nexmark.py", {**common, **of_spark})
    if asked.datagen:
        case = f"{asked.case}-datagen/{query}"
    queries = place.nexmark_checkout / "nexmark-flink/src/main/resources/queries"
    of_flink = {
        "queries": str(queries.absolute()),
        "data": str((data / "one").absolute()),
        "source": "datagen" if asked.datagen else "files",
        "events": asked.events,
        "rate": NexmarkConfiguration().first_event_rate,
        "nexmark": NEXMARK_COMMIT,
        "jar": str((place.nexmark_checkout / NEXMARK_JAR).absolute()),
        **({"settings": _ON_DISK} if query in _LARGE_STATE else {}),
    }
    return Measurement(engine, case, SCRIPTS / "flink_nexmark.py", {**common, **of_flink})


def _write(data: Path, events: int) -> None:
    write_events(data / "files", NexmarkConfiguration(), events, max(FILES, -(-events // 2_000_000)))
    for kind in KINDS:
        (data / "one" / kind).mkdir(parents=True, exist_ok=True)
        files = sorted((data / "files" / kind).glob("*.parquet"))
        with pq.ParquetWriter(data / "one" / kind / f"{kind}.parquet", pq.read_schema(files[0])) as one:
            for file in files:
                for rows in pq.ParquetFile(file).iter_batches():
                    one.write_batch(rows)
    (data / "expected.json").write_text(json.dumps(expected_counts(data / "files"), indent=2) + "\n")


def expected_counts(files: Path) -> dict[str, int]:
    """By query what its result is held against, of the events in `files`."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for kind in KINDS:
            connection.execute(f"CREATE VIEW {kind} AS SELECT * FROM '{files / kind}/*.parquet'")
        counts: dict[str, int] = {}
        for query, text in SQL.items():
            (counts[query],) = connection.sql(f"SELECT {_EXPECTED.get(query, 'count(*)')}::BIGINT FROM ({text})").fetchall()[0]
    return counts
