"""State that an older version of an operator wrote, which upgrades it."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stages import SLOTS, Flow, manifest, random_table

from streamtopology.jobs.checkpoint import Checkpoint
from streamtopology.jobs.cli.main import main
from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.driver.compaction import Compaction
from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.rerouting.precopy_job import migrate
from streamtopology.jobs.state import Field, KeyedState, KeyedStateSchema, Ownership, StateError, StateFileError
from streamtopology.jobs.state.encoding import decode
from streamtopology.jobs.state.merging import merged
from streamtopology.routing.table.hashing import hash_int64

KEY = pa.schema({"k": pa.int64()})
BEFORE = KeyedStateSchema((Field("n", np.dtype("i4")), Field("sum", np.dtype("f4"), (2,))), KEY)


def filled(schema: KeyedStateSchema, keys: list[int]) -> KeyedState:
    """Each key's fields follow from the key."""
    state = KeyedState(schema)
    slots = state.slots(KeyColumns.from_arrow(pa.record_batch({"k": pa.array(keys, pa.int64())}), ["k"]))
    for field in schema.fields:
        column = state.column(field.name)
        column[slots] = np.asarray(keys).reshape(-1, *[1] * len(field.shape)).astype(field.dtype)
    return state


def read_by(schema: KeyedStateSchema, *files: pa.RecordBatch) -> dict[int, dict[str, Any]]:
    state = KeyedState(schema)
    state.restore(schema.fitted(files[0]))
    for delta in files[1:]:
        state.apply(schema.fitted(delta))
    return {row.pop("k"): row for row in state.snapshot().to_pylist()}


def renamed(rows: pa.RecordBatch) -> pa.RecordBatch:
    """`n` is called `seen` now, `sum` has become its first element; a version of before that may have had neither."""
    first = pa.array([pair[0] for pair in rows.column("sum").to_pylist()], pa.float32())
    return pa.record_batch({"k": rows.column("k"), "seen": rows.column("n"), "first": first})


keys = st.lists(st.integers(0, 30), max_size=12, unique=True)


@given(first=keys, then=keys, gone=keys, mine=st.booleans())
def test_snapshots_and_deltas_are_read_as_if_the_new_version_had_written_them(
    first: list[int], then: list[int], gone: list[int], mine: bool
) -> None:
    late = Field("late", np.dtype("i8"), initial=-1, added=True)
    wider = KeyedStateSchema((Field("sum", np.dtype("f8"), (2,)), late, Field("n", np.dtype("i8"))), KEY)
    other = KeyedStateSchema((Field("seen", np.dtype("i8")), Field("first", np.dtype("f4"))), KEY, renamed)
    state = filled(BEFORE, first)
    snapshot = state.snapshot()
    state.commit()
    slots = state.slots(KeyColumns.from_arrow(pa.record_batch({"k": pa.array(then, pa.int64())}), ["k"]))
    state.column("n")[slots] += 100
    state.delete(state.find(KeyColumns.from_arrow(pa.record_batch({"k": pa.array(gone, pa.int64())}), ["k"])))
    if mine:
        table = random_table(np.random.default_rng(len(first)), SLOTS, hash_int64(np.arange(31)))
        state.evict(Ownership(table, 0))
    delta = state.delta()
    state.commit()
    now = {row.pop("k"): row for row in state.snapshot().to_pylist()}
    assert read_by(wider, snapshot, delta) == {key: {**row, "late": -1} for key, row in now.items()}
    assert read_by(other, snapshot, delta) == {key: {"seen": row["n"], "first": row["sum"][0]} for key, row in now.items()}
    assert read_by(BEFORE, snapshot, delta) == now


@pytest.mark.parametrize(
    ("fields", "upgrade", "why"),
    [
        ((Field("n", np.dtype("i4")),), None, "do not fit state of"),
        ((*BEFORE.fields, Field("late", np.dtype("i8"))), None, "do not fit state of"),
        ((Field("n", np.dtype("i2")), BEFORE.fields[1]), None, "do not fit state of"),
        ((Field("n", np.dtype("f4")), BEFORE.fields[1]), None, "do not fit state of"),
        ((BEFORE.fields[0], Field("sum", np.dtype("f4"), (3,))), None, "do not fit state of"),
        ((Field("m", np.dtype("i4")),), lambda rows: rows.select(["k", "nowhere"]), r"upgrade\(\) raised KeyError: .*nowhere"),
        ((Field("m", np.dtype("i4")),), lambda rows: rows.slice(1), "must keep rows and keys as they are"),
        ((Field("m", np.dtype("i4")),), lambda rows: rows.set_column(0, "k", pa.array([9, 8, 7])), "must keep rows and keys"),
    ],
)
def test_upgrade_that_needs_a_guess_is_refused(fields: tuple[Field, ...], upgrade: Any, why: str) -> None:
    with pytest.raises(StateError, match=why):
        KeyedStateSchema(fields, KEY, upgrade).fitted(filled(BEFORE, [1, 2, 3]).snapshot())


def test_a_key_of_another_type_is_refused() -> None:
    with pytest.raises(StateError, match="do not fit"):
        KeyedStateSchema(BEFORE.fields, pa.schema({"k": pa.string()})).fitted(filled(BEFORE, [1]).snapshot())


@pytest.mark.parametrize("names", [("j",), ("k", "j")])
def test_a_key_of_other_columns_is_refused(names: tuple[str, ...]) -> None:
    """Renamed, or one more. The built-in aggregates have an upgrade(), which must not be asked then."""
    keys = pa.schema([(name, pa.int64()) for name in names])
    with pytest.raises(StateError, match=r"rows of \(k int64, .*do not fit state of \(.*j int64"):
        KeyedStateSchema(BEFORE.fields, keys, lambda rows: rows).fitted(filled(BEFORE, [1]).snapshot())


def test_largest_value_that_a_narrower_column_does_not_hold_is_no_tuples_fault(tmp_path: Path) -> None:
    """With onBadTuple: deadLetter all tuples of its key were set aside."""
    operator = {"name": "n", "inputs": ["s"], "grouping": {"key": "k"}, "run": "aggregate"}
    operators = [operator | {"with": {"aggregates": {"most": "max(x)"}}}]
    flow = Flow(tmp_path, manifest(operators, {"s": "k INT, x BIGINT"}, onBadTuple="deadLetter"))
    flow.batch(s=pa.table({"k": pa.array([1], pa.int32()), "x": pa.array([2**40], pa.int64())}))
    flow.start(manifest(operators, {"s": "k INT, x INT"}, onBadTuple="deadLetter"))
    with pytest.raises(TopologyFailed, match=r"max\(x\) is of a former run, in which the column had another type than int32"):
        flow.batch(s=pa.table({"k": pa.array([1], pa.int32()), "x": pa.array([5], pa.int32())}))
    assert flow.last.batch == 0


@pytest.mark.parametrize(("before", "now", "means"), [("TIMESTAMP", "BIGINT", "timestamp"), ("BIGINT", "TIMESTAMP", "numbers")])
def test_largest_time_is_not_compared_with_numbers(tmp_path: Path, before: str, now: str, means: str) -> None:
    operator = {"name": "n", "inputs": ["s"], "grouping": {"key": "k"}, "run": "aggregate"}
    operators = [operator | {"with": {"aggregates": {"last": "max(x)"}}}]
    rows = pa.table({"k": pa.array([1, 2]), "x": pa.array([5, 6])})
    times = rows.set_column(1, "x", rows["x"].cast(pa.timestamp("us")))
    flow = Flow(tmp_path, manifest(operators, {"s": f"k BIGINT, x {before}"}))
    flow.batch(s=times if before == "TIMESTAMP" else rows)
    flow.start(manifest(operators, {"s": f"k BIGINT, x {now}"}))
    with pytest.raises(TopologyFailed, match=rf"agg_max_x stands for {means}.* in it, and for .* now"):
        flow.batch(s=times if now == "TIMESTAMP" else rows)
    assert flow.last.batch == 0


TOP = {"run": "top-k", "with": {"id": "i", "by": "x", "k": 3}}
SPREAD = {"run": "quantiles", "with": {"column": "x", "min": 0, "max": 100}}


def next_run(folder: Path, operator: dict[str, Any], schemas: tuple[str, str], changed: dict[str, Any]) -> None:
    """Two runs of a batch each, the second with options `changed`."""
    kept = {"name": "n", "inputs": ["s"], "grouping": {"key": "k"}, **operator}
    now = kept | {"with": {**operator["with"], **changed}}
    types = {"INT": pa.int32(), "BIGINT": pa.int64()}
    rows = pa.table({"k": [1], "x": [2**40], "i": [2**41]})
    flow = Flow(folder, manifest([kept], {"s": f"k BIGINT, x {schemas[0]}, i {schemas[0]}"}, onBadTuple="deadLetter"))
    flow.batch(s=rows if schemas[0] == "BIGINT" else pa.table({name: pa.array([5], types["INT"]) for name in ("k", "x", "i")}))
    flow.start(manifest([now], {"s": f"k BIGINT, x {schemas[1]}, i {schemas[1]}"}, onBadTuple="deadLetter"))
    try:
        flow.batch(s=pa.table({"k": [1], "x": pa.array([6], types[schemas[1]]), "i": pa.array([7], types[schemas[1]])}))
    finally:
        assert flow.last.batch == 0


def test_ranked_value_that_a_narrower_column_does_not_hold_is_no_tuples_fault(tmp_path: Path) -> None:
    with pytest.raises(
        TopologyFailed, match=r"the state of [ix] is of a former run, in which the column had another type than"
    ):
        next_run(tmp_path, TOP, ("BIGINT", "INT"), {})


@pytest.mark.parametrize(
    ("operator", "changed", "sentence"),
    [
        (TOP, {"id": "x", "by": "i"}, "top_values stands for x in it, and for i now"),
        (SPREAD, {"min": 100, "max": 200}, "histogram stands for x from 0 to 100 in it, and for x from 100 to 200 now"),
        (SPREAD, {"column": "i"}, "histogram stands for x from 0 to 100 in it, and for i from 0 to 100 now"),
    ],
)
def test_numbers_of_another_meaning_are_not_mixed(
    tmp_path: Path, operator: dict[str, Any], changed: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(TopologyFailed, match=sentence):
        next_run(tmp_path, operator, ("BIGINT", "BIGINT"), changed)


def test_state_of_before_meanings_were_kept_takes_them_up() -> None:
    """An old file cannot say what its numbers are; what is written next says it, also after the zone of a time changed."""
    fields = (Field("last", np.dtype("i8"), merge="max"),)
    old = KeyedStateSchema(fields, KEY)
    meant = KeyedStateSchema((replace(fields[0], means="timestamp[us]"),), KEY)
    taken = meant.fitted(filled(old, [1, 2]).snapshot())
    assert taken.schema.field("last").metadata == {b"means": b"timestamp[us]"}
    assert meant.fitted(taken).schema.equals(taken.schema, check_metadata=True)
    (merged_part,) = merged([taken], [], meant, 1 << 20)
    assert merged_part.schema.equals(taken.schema, check_metadata=True)
    with pytest.raises(StateError, match=re.escape("last stands for timestamp[us] in it, and for something else now")):
        old.fitted(taken)


COUNTERS = """
import numpy as np
import pyarrow as pa
from streamtopology.api import Field, Operator

class First(Operator):
    fields = (Field("n", np.int32),)

    def process(self, rows, state):
        np.add.at(state.column(self.fields[0].name), state.slots(rows.keys), 1)

class Second(First):
    fields = (Field("seen", np.int64), Field("since", np.float64, initial=7, added=True))

    def upgrade(self, rows):
        return rows.rename_columns(["k", "seen"])

class Third(First):
    fields = (Field("seen", np.int64), Field("since", np.float64))
"""


def topology(folder: Path, cls: str) -> dict[str, Any]:
    (folder / "counters.py").write_text(COUNTERS)
    operator = {"name": "n", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": f"counters.py:{cls}"}
    return {**manifest([operator], {"s": "k BIGINT"}), "spec": {**manifest([operator], {"s": "k BIGINT"})["spec"], "sinks": []}}


def drawn(seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(0, 40, 60).tolist()


def test_topology_resumes_with_another_version_of_its_operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flow = Flow(tmp_path, topology(tmp_path, "First"), compaction=partial(Compaction, most_deltas=3))
    for seed in range(7):
        flow.batch(s=pa.table({"k": drawn(seed)}))
    flow.driver.compaction.close()
    path = tmp_path / "flow.yaml"
    for cls, code, output in [
        ("First", 0, "undamaged\n"),
        ("Second", 0, "of a former version"),
        ("Third", 1, "do not fit state"),
    ]:
        path.write_text(json.dumps(_readable(topology(tmp_path, cls), flow, tmp_path)))
        assert main(["state", "check", str(path)]) == code
        assert output in capsys.readouterr().out

    flow.start(topology(tmp_path, "Third"))
    with pytest.raises(Exception, match=r"another version of it: .*have this one upgrade it \(docs/run/upgrade\.md\)"):
        flow.batch(s=pa.table({"k": drawn(7)}))

    flow.start(topology(tmp_path, "Second"))
    table = random_table(np.random.default_rng(1), SLOTS, hash_int64(np.arange(40)))
    migrate(flow.checkpoint, flow.router.prepare({"n": table}), lambda text: None)  # reads the former version's files, too
    flow.batch(s=pa.table({"k": drawn(7)}))
    flow.router.copied()
    for seed in range(8, 14):
        flow.batch(s=pa.table({"k": drawn(seed)}))
    flow.driver.compaction.close()
    expected = Counter(key for seed in range(14) for key in drawn(seed))
    assert {row["k"]: row["seen"] for row in flow.state("n")} == expected
    assert {row["since"] for row in flow.state("n")} == {7.0}


def _readable(given: dict[str, Any], flow: Flow, folder: Path) -> dict[str, Any]:
    """The manifest as a person has it: with the checkpoint and a source that can be read."""
    given["spec"]["checkpoint"] = flow.checkpoint.uri
    given["spec"]["sources"][0]["options"] = {"path": str(folder)}
    return given


def test_a_file_that_is_not_of_the_operator_is_named(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(str(tmp_path), "flow")
    path = checkpoint.write_delta("n", 0, 3, 1, filled(BEFORE, [1]).delta())
    with pytest.raises(StateFileError, match=r"n/0/3-1\.delta is of another operator, or of other options or another version"):
        next(checkpoint.read_fitted(path, KeyedStateSchema((Field("m", np.dtype("i4")),), KEY)))
    assert decode(checkpoint.read(path), path).num_rows == 1
