"""ShuffleBench (dynatrace-research/ShuffleBench) as a case of the arena: its matcher, and its consumers with black-box state.

Records are of 1,024 random bytes. A record goes to the consumer of each rule that it fits, whose state is folded from all of
its records. As in its files for Kubernetes there are a million rules, of which a record fits 0.2; skew is that of the rules.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamtopology.lab.arena.engines import ENGINES, Place, python_of, shufflebench_jars
from streamtopology.lab.arena.keyed import Case
from streamtopology.lab.arena.keyed_rows import NAMES, link_over_and_over
from streamtopology.lab.arena.peer import SCRIPTS
from streamtopology.lab.arena.shufflebench_matcher import HASHED_BYTES, matcher_of, record_hashes, write_rules
from streamtopology.lab.numbered_files import write_batches

RULES, SELECTIVITY = 1_000_000, 0.2
# A consumer gives its state away with every tenth record.
RATE, STATE_BYTES = 10, 128
RECORD_BYTES = 1_024
RECORDS_PER_FILE = 25_000
DIFFERENT_FILES, FILES = 20, 6_000
ROW_GROUPS = 20
# What is checked: so many records, so often.
CHECKED_RECORDS, CHECKED_TIMES = 5_000, 15

# By engine the class that has ShuffleBench's own Java between the engine's tables.
_JAVA = {"flink": "FlinkShuffleBench", "spark": "SparkShuffleBench"}


def write_records(data: Path, skew: float) -> None:
    """The rules, and files of records, which are the same for each skew."""
    write_rules(data / "rules.csv", RULES, SELECTIVITY, skew)
    rng = np.random.default_rng(7)

    def batch(number: int) -> pa.Table:
        whole = pa.py_buffer(rng.bytes(RECORDS_PER_FILE * RECORD_BYTES))
        records = pa.FixedSizeBinaryArray.from_buffers(pa.binary(RECORD_BYTES), RECORDS_PER_FILE, [None, whole])
        stamps = np.arange(number * RECORDS_PER_FILE, (number + 1) * RECORDS_PER_FILE)
        return pa.table({"stamp": stamps, "data": records.cast(pa.binary())})

    files = write_batches(data.parent / "shufflebench-records", "rows", DIFFERENT_FILES, ROW_GROUPS, batch, plain=True)
    checked = pq.read_table(files[0]).slice(0, CHECKED_RECORDS)
    once = write_batches(data / "once", "rows", 1, ROW_GROUPS, lambda _: checked, plain=True)
    link_over_and_over(data / f"parquet-{NAMES[0]}", files, FILES)
    link_over_and_over(data / "parquet-once", once, CHECKED_TIMES)
    (data / "expected.json").write_text(json.dumps({"parquet": _events(checked, data / "rules.csv")}) + "\n")


def _events(records: pa.Table, rules: Path) -> list[int]:
    """Of records that come so often: how many consumers have given their state away, how often in all, and at most."""
    first = np.frombuffer(b"".join(record[:HASHED_BYTES] for record in records["data"].to_pylist()), np.uint8)
    _, matched = matcher_of(str(rules)).match(record_hashes(first.reshape(-1, HASHED_BYTES)))
    events = np.bincount(matched) * CHECKED_TIMES // RATE
    return [int((events > 0).sum()), int(events.sum()), int(events.max())]


def _more(engine: str, data: Path, place: Place, announce: Callable[[str], None]) -> Mapping[str, Any]:
    asked = {"rules": str(data / "rules.csv"), "rate": RATE, "bytes": STATE_BYTES}
    if engine not in _JAVA:
        return asked
    sources = [SCRIPTS / f"{name}.java" for name in (_JAVA[engine], "ShuffleBenchRules")]
    python = python_of(engine, ENGINES[engine], place, announce)
    return {**asked, "jars": [str(jar) for jar in shufflebench_jars(place, python, sources, announce)]}


_PEERS = {
    "streamtopology": ("streamtopology_keyed.py", {"rerouted": True, "files_of_a_batch": 8}),
    "streamtopology-fixed": ("streamtopology_keyed.py", {"rerouted": False, "files_of_a_batch": 8}),
    "flink": ("flink_keyed.py", {}),
    "spark": ("spark_keyed.py", {"by": "sql", "files_of_a_batch": 8}),
}
SHUFFLEBENCH_CASE = Case("shufflebench", "ShuffleBench", _PEERS, write_records, _more)
