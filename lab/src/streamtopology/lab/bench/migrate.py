"""A tenth of the keys changes its instance: their state pre-copied by another process, or moved by the batches themselves.

Both in turns on one cluster, wide state (more than a hundred bytes a key). What is written for a move are the copies and
what the switching batches write more than usual ones; what is read is all state of the former owners, once. Keys that change
after they were copied are written again, and count once as bytes that moved.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamtopology.jobs.checkpoint import Copied
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.runtime.topology_run import TopologyRun
from streamtopology.lab.bench.cluster import (
    TWO_UNLIMITED,
    Ran,
    announce,
    cluster_for,
    fresh_folder,
    machine,
    run_topology,
    topology,
)
from streamtopology.lab.bench.figures import figure, switch_to
from streamtopology.lab.bench.reconfigure import publish_another

ROWS_PER_BATCH = 200_000
VALUES = ("first", "second", "third", "fourth")
# Twelve fields of 8 bytes each; with counts and the key a row of state has about 130 bytes.
AGGREGATES = {f"{function}_{value}": f"{function}({value})" for function in ("sum", "min", "max") for value in VALUES}

SCHEMA = ", ".join(["key BIGINT", *(f"{value} DOUBLE" for value in VALUES)])

INSTANCES = 2
ROW_GROUPS = 16
WARM_UP = 4
# Batches before each move, for comparison: enough to have some during which state is compacted.
USUAL = 32
# Batches in which a copy has to be done, at most.
COPYING = 30

# Batches in which its state has to have moved.
SWITCHING = 80

DIFFERENT_FILES = 24

COPIED, INLINE = "pre-copied", "with the batch"
THRESHOLDS = {COPIED: "1Mi", INLINE: "1Ti"}


@dataclass
class _Files:
    """Bytes of the deltas of each batch, and what was copied by epoch, noted before either is let go."""

    run: TopologyRun
    deltas: dict[int, int] = field(default_factory=dict)
    copied: dict[int, Copied] = field(default_factory=dict)
    published: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        precopies = self.run.checkpoint.precopies
        let_go = precopies.release

        def release(epoch: int) -> None:
            if (copied := precopies.copied(epoch)) is not None:
                self.copied[epoch] = copied
            let_go(epoch)

        precopies.release = release

    def note(self, history: History) -> None:
        number = history.batches[-1].number
        state = Path(self.run.checkpoint.uri) / "state"
        self.deltas[number] = sum(path.stat().st_size for path in state.glob(f"*/*/{number}-[0-9]*.delta"))


def run(runs: int = 3, keys: int = 1_000_000) -> dict[str, Any]:
    """`runs` moves each way in a topology that keeps `keys` keys."""
    folder = fresh_folder("migrate")
    batches = WARM_UP + runs * (USUAL + COPYING + SWITCHING)
    _make_rows(folder / "data", batches, keys)
    results: list[dict[str, Any]] = []
    cluster = cluster_for(_described(COPIED, folder), folder)
    with cluster as embedded:
        for case in (COPIED, INLINE):
            notes: list[_Files] = []
            prepare = _publishing(runs, notes)
            ran = run_topology(embedded, _described(case, folder), folder, batches, prepare)
            results += _figures(case, ran, notes[0])
    return {"name": "migrate", "machine": machine(keys=keys, rows_per_batch=ROWS_PER_BATCH), "results": results}


def _described(case: str, folder: Path) -> Any:
    operator = {
        "name": "counts",
        "inputs": ["rows"],
        "grouping": {"policy": "mixed", "key": "key"},
        "parallelism": INSTANCES,
        "run": "aggregate",
        "with": {"aggregates": AGGREGATES, "emit": "nothing"},
    }
    name = f"migrate-{case.replace(' ', '-')}"
    return topology(name, folder / "data", SCHEMA, [operator], TWO_UNLIMITED, migration={"threshold": THRESHOLDS[case]})


def _publishing(runs: int, notes: list[_Files]) -> Any:
    """Publish a table after the usual batches; the next one when the one before has been running as long."""

    def prepare(run: TopologyRun, history: History) -> None:
        files = _Files(run)
        notes.append(files)
        usual = done = 0

        def after_batch(history: History) -> None:
            nonlocal usual, done
            if len(history.batches) == done:
                return
            done = len(history.batches)
            files.note(history)
            newest = run.router.newest().epoch.number
            usual = usual + 1 if history.batches[-1].epoch == newest else 0
            if len(history.batches) > WARM_UP and usual > USUAL:
                if len(files.published) == runs:
                    run.stop()
                    return
                publish_another(run.router, {})
                files.published.append(run.router.newest().epoch.number)
                usual = 0

        history.listen(after_batch)

    return prepare


def _make_rows(folder: Path, batches: int, keys: int) -> None:
    """A few files of uniform keys under many names; the first has each key once."""
    folder.mkdir()
    for number in range(DIFFERENT_FILES):
        random = np.random.default_rng(number)
        drawn = np.arange(keys) if number == 0 else random.integers(0, keys, ROWS_PER_BATCH)
        rows = pa.table({"key": drawn, **{value: random.random(len(drawn)) for value in VALUES}})
        pq.write_table(rows, folder / f"keys-{number:06d}.parquet", row_group_size=-(-len(drawn) // ROW_GROUPS))
    for number in range(DIFFERENT_FILES, batches):
        os.link(folder / f"keys-{1 + number % (DIFFERENT_FILES - 1):06d}.parquet", folder / f"keys-{number:06d}.parquet")


def _figures(case: str, ran: Ran, files: _Files) -> list[dict[str, Any]]:
    switching: list[float] = []
    longest: list[float] = []
    took: list[float] = []
    usual: list[float] = []
    longest_usual: list[float] = []
    written: list[float] = []
    moved: list[float] = []
    for epoch in files.published:
        switch = switch_to(ran.batches, epoch)
        if not switch:
            continue
        first = ran.batches.index(switch[0])
        before = ran.batches[first - USUAL : first]
        seconds, seconds_before = ([batch.seconds for batch in batches] for batches in (switch, before))
        switching.append(statistics.median(seconds))
        longest.append(max(seconds))
        took.append(len(switch))
        usual.append(statistics.median(seconds_before))
        longest_usual.append(max(seconds_before))
        if (case == COPIED) != (epoch in files.copied):
            raise RuntimeError(f"{case}: epoch {epoch} was moved in the other way; see the run's log")
        copies = sum(part.bytes for part in files.copied[epoch].parts) if epoch in files.copied else 0
        left = sum(c.bytes_moved for c in ran.reconfigurations if c.epoch == epoch and c.operator == "counts")
        usually = statistics.median(files.deltas[batch.number] for batch in before)
        written.append(copies + sum(files.deltas[batch.number] - usually for batch in switch))
        moved.append(copies or left)
        announce(
            f"{case}, epoch {epoch}: {len(switch)} batches of {switching[-1]:.2f} s (longest {longest[-1]:.2f} s) after "
            f"{usual[-1]:.2f} s as usual (longest {longest_usual[-1]:.2f} s); {written[-1]:,.0f} bytes written"
        )
    keys: Sequence[float] = [c.keys_moved for c in ran.reconfigurations if c.operator == "counts" and c.keys_moved]
    read = [float(sum(part.bytes_read for part in files.copied[e].parts)) for e in files.published if e in files.copied]
    return [
        figure(case, "keys moved", "keys", keys),
        figure(case, "bytes moved", "bytes", moved),
        figure(case, "bytes written", "bytes", written, {"bytes moved": moved}),
        *([figure(case, "bytes read", "bytes", read, {"bytes moved": moved})] if read else []),
        figure(case, "batches of a switch", "", took),
        figure(case, "switching batch", "s", switching, {"usual batch": usual}),
        figure(case, "longest switching batch", "s", longest, {"usual batch": usual, "longest usual batch": longest_usual}),
        figure(case, "usual batch", "s", usual),
        figure(case, "longest usual batch", "s", longest_usual),
    ]
