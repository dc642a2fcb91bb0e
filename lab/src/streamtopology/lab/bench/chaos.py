"""A topology whose processes are killed (kill -9) while it is re-routed, resized and rescaled; then all is counted.

    streamtopology bench chaos --seed 7 --kills 20
    streamtopology bench chaos --seed 7 --kills 20 --operator    with an operator that decides, on an API server

Two operators count the rows of numbered files, one by a heavy key and one by a light one behind a split edge, into parquet.
The driver is `streamtopology run` as anyone starts it; some of its lives die at a named crash point instead of from
outside. The seed fixes the input, what is killed and changed, and after how many batches; what a process is at in that
moment it cannot fix.
"""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.failpoints import POINTS
from streamtopology.jobs.local.control_socket import NotRunning, Refused
from streamtopology.jobs.plan.as_of import node_state
from streamtopology.jobs.plan.execution_plan import ExecutionPlan
from streamtopology.lab.bench.cluster import announce, fresh_folder, machine
from streamtopology.lab.bench.figures import figure
from streamtopology.lab.bench.victim import Victim

SOURCE = "rows"
HOT = "hot"
COLUMNS = ("key", "part", HOT)
HOT_SHARE = 0.6
# Files in which one value of `HOT` is the most frequent one.
FILES_OF_HOT = 6
KEYS = 20_000
ROWS = 6_000
GROUPS = 40
# Files that wait to be read; the input never ends before the last kill.
AHEAD = 3

STALLED_SECONDS = 1200.0
LONGEST_WAIT_SECONDS = 30.0
# Kills of each kind in fifteen.
KILLS = {"executor": 5, "python": 4, "migration": 3, "driver": 2, "crash point": 1}

# Kills of each kind in twenty, where an operator decides.
KILLS_OF_OPERATED = {
    "executor": 6,
    "python": 5,
    "operator": 3,
    "migration": 2,
    "config map": 2,
    "driver": 1,
    "crash point": 1,
}

CHANGES = ("resize", "reroute", "scale")
DRIVER_POINTS = [point for point in POINTS if not point.startswith(("kafka.", "sink.plac", "garbage.", "snapshot."))]


@dataclass(frozen=True)
class Event:
    """A kill or change after `batches` more batches and `seconds` more; `luck` (0 to 1) picks among the candidates."""

    batches: int
    seconds: float
    what: str
    luck: float


def schedule(seed: int, kills: int, kinds: Mapping[str, int] = KILLS) -> list[Event]:
    """`kills` kills, each kind about as often as its weight, with changes of the topology between them."""
    chance = random.Random(seed)
    deck: list[str] = []
    events: list[Event] = []
    for _ in range(kills):
        if not deck:
            deck = [what for what, weight in kinds.items() for _ in range(weight)]
            chance.shuffle(deck)
        if chance.random() < 0.6:
            events.append(_event(chance, chance.choice(CHANGES)))
        events.append(_event(chance, deck.pop()))
    return events


def _event(chance: random.Random, what: str) -> Event:
    return Event(chance.randint(1, 4), chance.uniform(0.0, 0.8), what, chance.random())


def run(runs: int = 1, seed: int = 1, kills: int = 20, operator: bool = False, real_time: bool = False) -> dict[str, Any]:
    """`runs` is how many seeds are tried, from `seed` on. `operator`: one decides, on the kubeconfig's API server.

    `real_time`: batches run without jobs of Spark.
    """
    rounds = [_Round(number, kills, operator, real_time) for number in range(seed, seed + runs)]
    for each in rounds:
        each.run()
    lost, twice = sum(each.lost for each in rounds), sum(each.twice for each in rounds)
    killed = sum((each.killed for each in rounds), Counter[str]())
    rows = sum(each.rows for each in rounds)
    results = [
        figure("rows", "counted", "rows", [rows]),
        figure("rows", "lost", "rows", [lost]),
        figure("rows", "counted twice", "rows", [twice]),
        *(figure(f"killed: {what}", "times", "", [times]) for what, times in sorted(killed.items())),
        *(figure(f"then {what}", "to the next commit", "s", took) for what, took in _together(rounds).items()),
    ]
    seeds, batches = [each.seed for each in rounds], sum(each.batches for each in rounds)
    described = machine(seeds=seeds, kills=kills, rows=rows, batches=batches, real_time=real_time)
    return {"name": "chaos", "machine": described, "results": results, "check": {"lost": lost, "duplicated": twice}}


def _together(rounds: list[_Round]) -> dict[str, list[float]]:
    took: dict[str, list[float]] = {}
    for each in rounds:
        for what, seconds in each.took.items():
            took.setdefault(what, []).extend(seconds)
    return {what: took[what] for what in sorted(took)}


@dataclass
class _Round:
    """One seed: the input so far, what was killed, how long until the next commit; in the end what was lost."""

    seed: int
    kills: int
    operator: bool
    real_time: bool
    killed: Counter[str] = field(default_factory=Counter)
    took: dict[str, list[float]] = field(default_factory=dict)
    written: int = 0
    lost: int = 0
    twice: int = 0
    _large: int = 2
    _policy: str = "mixed"
    _input_ends: bool = False

    @property
    def rows(self) -> int:
        return self.written * ROWS

    @property
    def batches(self) -> int:
        return self.written

    def run(self) -> None:
        folder = fresh_folder(f"chaos/{self.seed}")
        self._data = folder / "rows"
        self._data.mkdir()
        given = manifest(self._data, folder, self.real_time)
        with ExitStack() as undo:
            if self.operator:
                from streamtopology.lab.bench.kube import connect  # needs the extra `cluster`
                from streamtopology.lab.bench.operated import OperatedVictim

                self._victim: Victim = OperatedVictim(folder, given, undo.enter_context(connect()))
            else:
                self._victim = Victim(folder, given)
            self._play()
        self._check(folder)

    def _play(self) -> None:
        self._feed(-1)
        try:
            self._victim.start(None)
            for event in schedule(self.seed, self.kills, KILLS_OF_OPERATED if self.operator else KILLS):
                self._wait_for(self._committed() + event.batches)
                time.sleep(event.seconds)
                self._do(event)
            self._input_ends = True
            self._wait_for(self.written - 1)
        finally:
            self._victim.stop()

    def _do(self, event: Event) -> None:
        if event.what == "migration":
            self._until_state_is_copied(event.luck)
        before, at = self._committed(), time.monotonic()
        if event.what in CHANGES:
            try:
                announce(f"seed {self.seed}: {self._change(event.what, event.luck)}")
            except (NotRunning, Refused) as refused:
                announce(f"seed {self.seed}: {event.what} not now: {refused}")
            return
        point = None
        if event.what == "crash point":
            point = f"{DRIVER_POINTS[int(event.luck * len(DRIVER_POINTS))]}:{1 + int(event.luck * 97) % 5}"
        what = self._victim.kill(event.what, event.luck, point)
        if what is None:
            announce(f"seed {self.seed}: no {event.what} to kill")
            return
        self.killed[event.what] += 1
        announce(f"seed {self.seed}: killed {what} after batch {before}")
        self._wait_for(before + 1)
        self.took.setdefault(event.what, []).append(time.monotonic() - at)

    def _until_state_is_copied(self, luck: float) -> None:
        """Give cause for a re-routing, and wait a while for the process that copies what it moves."""
        deadline = time.monotonic() + LONGEST_WAIT_SECONDS
        with suppress(NotRunning, Refused):
            self._change("scale", luck)
        while not self._victim.processes("migration") and time.monotonic() < deadline:
            self._feed(self._committed())
            self._victim.keep_alive()
            time.sleep(0.02)

    def _change(self, what: str, luck: float) -> str:
        """Raises NotRunning or Refused."""
        if what == "resize":
            return self._victim.resize("small", f"{200 + int(luck * 700)}m")
        if what == "scale":
            answer = self._victim.scale("large", 5 - self._large)
            self._large = 5 - self._large
            return answer
        answer = self._victim.reroute("part", "partial-key" if self._policy == "mixed" else "mixed")
        self._policy = "partial-key" if self._policy == "mixed" else "mixed"
        return answer

    def _committed(self) -> int:
        """The newest committed file, -1 before the first: a batch reads one, or none."""
        commit = self._victim.last_commit()
        return -1 if commit is None or commit.end is None else commit.end.positions.get(SOURCE, 0) - 1

    def _wait_for(self, batch: int) -> None:
        """Until `batch` is committed; more files are written meanwhile, and a driver that died is started again."""
        seen, since = self._committed(), time.monotonic()
        while (now := self._committed()) < batch:
            self._feed(now)
            self._victim.keep_alive()
            if now != seen:
                seen, since = now, time.monotonic()
            if time.monotonic() - since > STALLED_SECONDS:
                raise RuntimeError(f"no batch after {now} in {STALLED_SECONDS:.0f} s; seed {self.seed}:\n{self._victim.log()}")
            time.sleep(0.05)

    def _feed(self, committed: int) -> None:
        while not self._input_ends and self.written - (committed + 1) < AHEAD:
            path = self._data / f"part-{self.written:06d}.parquet"
            unseen = path.with_name(f".{path.name}")
            pq.write_table(rows_of(self.seed, self.written), unseen, row_group_size=ROWS // 6)
            unseen.rename(path)
            self.written += 1

    def _check(self, folder: Path) -> None:
        """State and sinks against a count of the files that knows nothing of ours."""
        tables = [rows_of(self.seed, number) for number in range(self.written)]
        for column in COLUMNS:
            expected = Counter(value for table in tables for value in table[column].to_pylist())
            found = state_counts(self._victim.checkpoint(), column)
            lost, twice = sink_faults(folder / column, column, tables) if column != HOT else (0, stated_twice(folder / column))
            self.lost += (expected - found).total() + lost
            self.twice += (found - expected).total() + twice
        announce(
            f"seed {self.seed}: {self.rows:,} rows, {self.lost} lost, {self.twice} counted twice; killed {dict(self.killed)}"
        )


def manifest(data: Path, folder: Path, real_time: bool = False) -> dict[str, Any]:
    """Counts by each of `COLUMNS`, into a parquet folder of its name; all but the smallest moves are pre-copied.

    Routers divide the rows of the most frequent value of `HOT`.
    """
    operators = [
        {
            "name": column,
            "inputs": [SOURCE],
            "grouping": {"policy": "auto" if column == HOT else "mixed", "key": column},
            "run": "count",
        }
        for column in COLUMNS
    ]
    sinks = [
        {"name": f"to-{column}", "input": column, "format": "parquet", "options": {"path": str(folder / column)}}
        for column in COLUMNS
    ]
    source = {
        "name": SOURCE,
        "format": "parquet",
        "schema": ", ".join(f"{column} BIGINT" for column in COLUMNS),
        "options": {"path": str(data), "maxFilesPerTrigger": 1},
    }
    executors = [
        {"name": "large", "replicas": 2, "cpu": "1", "memory": "768Mi"},
        {"name": "small", "replicas": 1, "cpu": "300m", "memory": "768Mi"},
    ]
    spec = {
        "sources": [source],
        "operators": operators,
        "sinks": sinks,
        "executors": executors,
        "checkpoint": str(folder / "checkpoint"),
        "trigger": {"interval": "200ms", "realTime": real_time},
        "rebalance": {"interval": "2s", "tolerance": 0.03},
        "migration": {"threshold": "16Ki", "portion": "8Ki"},
    }
    return {"apiVersion": "streamtopology.dev/v1alpha1", "kind": "StreamTopology", "metadata": {"name": "chaos"}, "spec": spec}


def rows_of(seed: int, number: int) -> pa.Table:
    """File `number` of a seed: keys with a heavy head and a long tail, parts that depend on nothing else, and a value that most
    rows have for some files."""
    random_rows = np.random.default_rng([seed, number])
    keys = np.minimum(random_rows.zipf(1.2, ROWS), KEYS)
    keys[: ROWS // 2] = random_rows.integers(0, KEYS, ROWS // 2)
    parts = random_rows.integers(0, GROUPS, ROWS)
    hot = np.where(random_rows.random(ROWS) < HOT_SHARE, number // FILES_OF_HOT, random_rows.integers(0, KEYS, ROWS))
    return pa.table({"key": keys, "part": parts, HOT: hot})


def state_counts(checkpoint: Checkpoint, column: str) -> Counter[int]:
    """The counts in the newest commit's state of the operator that counts `column`."""
    commit = checkpoint.last_commit()
    assert commit is not None
    held = node_state(checkpoint, commit, ExecutionPlan.from_json(checkpoint.read_epoch(commit.epoch)).compile().node(column))
    counts = Counter[int]()
    for key, count in zip(held[column].to_pylist(), held["count"].to_pylist(), strict=True) if held is not None else ():
        counts[key] += count  # a key at two instances would be counted twice here
    return counts


def sink_faults(folder: Path, column: str, tables: Sequence[pa.Table]) -> tuple[int, int]:
    """Rows lost and counted twice by a sink's batches: each has the keys of its file with their counts so far.

    A batch without rows publishes no file.
    """
    seen, lost, twice = Counter[int](), 0, 0
    for table, path in itertools.zip_longest(tables, sorted(folder.glob("batch-*.parquet"))):
        step = Counter[int]() if table is None else Counter(table[column].to_pylist())
        seen += step
        rows = [] if path is None else pq.read_table(path).to_pylist()
        found = {row[column]: row["count"] for row in rows}
        twice += len(rows) - len(found) + len(found.keys() - step.keys())
        for key in step:
            lost += max(seen[key] - found.get(key, 0), 0)
            twice += max(found.get(key, 0) - seen[key], 0)
    return lost, twice


def stated_twice(folder: Path) -> int:
    """Rows of a sink that say of a divided key what was stated of it before: its count grows from one to the next."""
    stated, twice = Counter[int](), 0
    for path in sorted(folder.glob("batch-*.parquet")):
        for row in pq.read_table(path).to_pylist():
            twice += row["count"] <= stated[row[HOT]]
            stated[row[HOT]] = row["count"]
    return twice
