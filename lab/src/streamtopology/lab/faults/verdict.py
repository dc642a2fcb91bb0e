"""Play a history, and judge it: state and sinks compared with a plain computation over the input."""

from __future__ import annotations

import datetime
import itertools
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamtopology.contract.errors import StreamTopologyError
from streamtopology.jobs.checkpoint import Checkpoint, CommitRecord
from streamtopology.jobs.connectors.sinks.dead_letters import FOLDER
from streamtopology.jobs.connectors.sinks.kafka import BATCH_HEADER
from streamtopology.jobs.driver.watermarks import END_OF_TIME
from streamtopology.jobs.plan.as_of import plan_as_of
from streamtopology.jobs.state import KeyedState, KeyedStateSchema, routing_hashes
from streamtopology.lab.faults import expected
from streamtopology.lab.faults.expected import Batch, Progress, Results
from streamtopology.lab.faults.outcome import Outcome
from streamtopology.lab.faults.rows import NAMES, Row
from streamtopology.lab.faults.story import Story
from streamtopology.lab.faults.thirds import text_of
from streamtopology.lab.faults.topologies import LATE, SPLIT, node_of
from streamtopology.lab.faults.world import World


def check(world: World) -> str | None:
    """Return what is wrong after all is read and drained; None if nothing is."""
    checkpoint = world.open_checkpoint()
    last = checkpoint.last_commit()
    if last is None:
        return "nothing was ever committed"
    try:
        batches = _committed(world)
        for name in world.story.shape.operators:
            lives = _lives(name, batches)
            _check_sink(world, name, lives)
            if name in batches[-1].shape.operators:
                _check_state(checkpoint, last, name, lives[-1])
        _check_late(world, batches)
        _check_dead_letters(checkpoint, batches)
        _check_silences(world, batches)
    except (_Wrong, StreamTopologyError) as wrong:
        return str(wrong)
    return None


class _Wrong(Exception):
    """A history lost something, or has something twice."""


def _committed(world: World) -> list[Batch]:
    """The committed batches, of whole files in their order; what they know of event time is checked on the way."""
    shape = world.story.shape
    files = {source: [file.rows for file in world.story.files if file.source == source] for source in shape.sources}
    progress = Progress(shape.idle_seconds is not None)
    reached = dict.fromkeys(shape.sources, 0)
    watermark = closed = None
    batches: list[Batch] = []
    for number in range(len(world.commits)):
        if number not in world.commits:
            raise _Wrong(f"batch {number} was left out")
        record = world.commits[number]
        ends = record["end"]["positions"] if record["end"] else {}
        rows: dict[str, list[Row]] = {}
        for source, end in reached.items():
            reached[source] = ends.get(source, end)
            rows[source] = [row for file in files[source][end : reached[source]] for row in file]
        there = shape.of([name for name in shape.operators if node_of(name) in world.operators[number]])
        watermark = progress.resumed(watermark, there.sources)
        within_range = record.get("range_end") is not None
        closes = closed if within_range else watermark
        batch = Batch(number, there, rows, closes, closed, record["watermark_after"] == END_OF_TIME)
        if record["rows_in"] != sum(map(len, rows.values())):
            raise _Wrong(f"batch {number} counts {record['rows_in']} rows, its files have {sum(map(len, rows.values()))}")
        batches.append(batch)
        least, most = progress.bounds(batch, watermark, within_range)
        watermark, closed = record["watermark_after"], closes
        if not batch.is_final and not _is_between(watermark, least, most):
            raise _Wrong(f"the watermark after batch {number} is {watermark}, expected {least} to {most}")
    if left := sum(len(rows) for source in batches[-1].sources for rows in files[source][reached[source] :]):
        raise _Wrong(f"{left} rows were never read")
    return batches


def _is_between(watermark: float | None, least: float | None, most: float | None) -> bool:
    if watermark is None or most is None:
        return watermark is None and least is None
    return (least is None or least <= watermark) and watermark <= most


def _lives(name: str, batches: Sequence[Batch]) -> list[list[Batch]]:
    """The batches in which the topology has this operator, from each time that it was added until it was removed."""
    groups = itertools.groupby(batches, lambda batch: name in batch.shape.operators)
    return [list(group) for is_there, group in groups if is_there]


def _check_sink(world: World, name: str, lives: Sequence[Sequence[Batch]]) -> None:
    shape = world.story.shape
    how = shape.formats[shape.operators.index(name)]
    found = _sent(world, name) if how == "kafka" else _published(world.outputs.of(name))
    wanted: dict[int, Results] = {}
    for life in lives:
        numbers = [batch.number for batch in life]
        if name in SPLIT:
            _check_last_words(name, {number: found.pop(number, []) for number in numbers}, life)
        else:
            wanted |= zip(numbers, expected.published(name, life), strict=True)
    _compare(f"operator {name}", wanted, found)


def _check_late(world: World, batches: Sequence[Batch]) -> None:
    """The late rows of each batch are in the sink of late rows."""
    wanted: dict[int, Results] = {}
    for batch in batches:
        if (name := batch.shape.late_of) is not None:
            wanted[batch.number] = expected.late(name, batch)
    _compare("late rows", wanted, _published(world.outputs.of(LATE)))


def _check_dead_letters(checkpoint: Checkpoint, batches: Sequence[Batch]) -> None:
    """The rows of each batch that could not be processed are set aside."""
    found: dict[int, list[dict[str, Any]]] = {}
    for path in checkpoint.files(FOLDER):
        letters = [json.loads(letter["tuple"]) for letter in _lines(checkpoint.read(path))]
        found[int(Path(path).stem.partition("-")[2])] = [{name: row[name] for name in NAMES[:3]} for row in letters]
    _compare("dead letters", {batch.number: expected.bad(batch) for batch in batches}, found)


def _compare(what: str, wanted: Mapping[int, Results], found: Mapping[int, Sequence[Mapping[str, Any]]]) -> None:
    for number, rows in wanted.items():
        there = Counter(_plain(row) for row in found.get(number, ()))
        if there != rows:
            missing, surplus = sorted((rows - there).elements()), sorted((there - rows).elements())
            raise _Wrong(f"{what}: batch {number}: missing {missing or 'nothing'}, too much {surplus or 'nothing'}")
    if extra := [number for number, rows in found.items() if number not in wanted and rows]:
        raise _Wrong(f"{what}: batches {extra} have rows, and were never committed with it")


def _plain(row: Mapping[str, Any]) -> tuple[int, ...]:
    """The values of a published row as the plain computation has them: of a window its start alone."""
    values = [
        _seconds(value) if name == "window_start" else value for name, value in row.items() if name not in ("window_end", "ts")
    ]
    return tuple(values)


def _seconds(value: Any) -> int:
    when = datetime.datetime.fromisoformat(value) if isinstance(value, str) else value
    return int((when if when.tzinfo else when.replace(tzinfo=datetime.UTC)).timestamp())


def _check_last_words(name: str, found: Mapping[int, Sequence[Mapping[str, Any]]], life: Sequence[Batch]) -> None:
    """A split operator says of a key what its partials have handed over: the last word counts, and no word comes twice."""
    last: dict[int, tuple[int, ...]] = {}
    for number in sorted(found):
        for row in found[number]:
            fields = (row["n"], row["total"])
            if row["k"] in last and last[row["k"]][0] >= fields[0]:
                raise _Wrong(f"operator {name}: batch {number}: key {row['k']} has {fields} after {last[row['k']]}")
            last[row["k"]] = fields
    if life[-1].is_final:
        _compare_by_key(f"operator {name}: last of", expected.last_results(name, life), last)


def _check_silences(world: World, batches: Sequence[Batch]) -> None:
    """At the end of a calm pause nothing is open that the watermark has passed."""
    for count in world.producer.silences:
        last = batches[count - 1]
        watermark = world.commits[count - 1]["watermark_after"]
        due = last._replace(number=count, rows=dict.fromkeys(last.rows, ()), watermark=watermark, closed=last.watermark)
        for name in {"windows", "sliding"} & set(last.shape.operators):
            *_, shown = expected.published(name, [*_lives(name, batches[:count])[-1], due])
            if shown:
                raise _Wrong(
                    f"operator {name}: windows {sorted(shown)} are open, the watermark {watermark} has passed them in silence"
                )


def _published(files: Mapping[str, bytes]) -> dict[int, list[dict[str, Any]]]:
    """The rows of a sink of files, by batch."""
    found: dict[int, list[dict[str, Any]]] = {}
    for name, content in files.items():
        path = PurePosixPath(name)
        is_parquet = path.suffix == ".parquet"
        rows = pq.read_table(pa.BufferReader(content)).to_pylist() if is_parquet else list(_lines(content))
        found[int(path.stem.partition("-")[2])] = rows
    return found


def _sent(world: World, topic: str) -> dict[int, list[dict[str, Any]]]:
    """The rows of a topic, by batch."""
    found: dict[int, list[dict[str, Any]]] = {}
    for of_topic, value, headers in world.broker.visible:
        if of_topic == topic:
            found.setdefault(int(headers[BATCH_HEADER]), []).append(json.loads(value))
    return found


def _lines(text: bytes) -> Sequence[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def _check_state(checkpoint: Checkpoint, last: CommitRecord, name: str, life: Sequence[Batch]) -> None:
    node = node_of(name)
    plan = plan_as_of(checkpoint, last)
    schema = plan.compile().node(node).state
    assert schema is not None
    found: dict[int, tuple[int, ...]] = {}
    table = plan.epoch.routes[node].table
    for instance, reference in last.state.get(node, {}).items():
        state = checkpoint.load_state(reference, schema)
        if not isinstance(state, KeyedState):
            if len(state):
                raise _Wrong(f"operator {name}: instance {instance} keeps {len(state)} rows, and all windows are closed")
            continue
        content = state.snapshot()
        assert isinstance(schema, KeyedStateSchema)
        if table is not None and content.num_rows:
            owners = table.lookup(routing_hashes(content, schema)).tolist()
            if strangers := [owner for owner in owners if owner != instance]:
                raise _Wrong(f"operator {name}: instance {instance} keeps keys of instances {sorted(set(strangers))}")
        for row in content.to_pylist():
            key, *fields = row.values()
            if key in found:
                raise _Wrong(f"operator {name}: key {key} is at two instances")
            found[key] = _as_expected(name, row, fields)
    _compare_by_key(f"operator {name}: state of", expected.last_results(name, life), found)


def _as_expected(name: str, row: Mapping[str, Any], fields: Sequence[Any]) -> tuple[int, ...]:
    if name == "thirds":
        return row["tuples"], row["texts"].count(text_of(row["k"]))
    if name not in ("sums", *SPLIT):
        return tuple(fields)
    named = [row["agg_rows"], row["agg_sum_v"]]
    return tuple([*named, row["agg_max_v"]] if name == "sums" else named)


def _compare_by_key(what: str, wanted: Mapping[int, tuple[int, ...]], found: Mapping[int, tuple[int, ...]]) -> None:
    for key in sorted(wanted.keys() | found.keys()):
        if wanted.get(key) != found.get(key):
            raise _Wrong(f"{what} key {key}: expected {wanted.get(key, 'nothing')}, found {found.get(key, 'nothing')}")


def play(story: Story, keep_trace: bool = False) -> tuple[Outcome, list[str]]:
    """Play a story from its beginning to its end, in a folder of its own, and judge it."""
    folder = Path(tempfile.mkdtemp(prefix="streamtopology-faults-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    try:
        world = World(story, folder, keep_trace)
        with world.reachable():
            outcome = world.run()
            if outcome.wrong is None and not world.volume.refused:
                outcome.wrong = check(world)
        return outcome, world.lines or []
    finally:
        shutil.rmtree(folder, ignore_errors=True)
