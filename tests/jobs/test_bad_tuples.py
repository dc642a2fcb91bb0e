"""A tuple is blamed only for an error that repeats: outages, full memory and checkpoint errors set no good tuple aside."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.stages import Flow, manifest

from streamtopology.jobs.connectors.sinks.dead_letters import DEAD_LETTERS
from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.worker.bad_tuples import MOST_OUTAGES

ASKING = '''
import numpy as np
from streamtopology.api import Field, Operator, TupleOperator


def ask(folder, value):
    """Ask a service, which fails for as many calls as the file `away` says, and for ever on 666."""
    calls = folder / "calls"
    calls.write_text(str(int(calls.read_text()) + 1))
    away = int((folder / "away").read_text())
    if away:
        (folder / "away").write_text(str(away - 1))
        raise {"text": ValueError, "memory": MemoryError, "network": ConnectionError}[(folder / "error").read_text()]("away")
    if value == 666:
        raise ValueError("666 is no number")


class AtOnce(Operator):
    fields = (Field("n", np.int64),)

    def process(self, rows, state):
        np.add.at(state.column("n"), state.slots(rows.keys), 1)
        values = rows.column("v").to_pylist()
        ask(self.base_dir, 666 if 666 in values else 0)


class OneByOne(TupleOperator):
    fields = (Field("n", np.int64),)

    def process_tuple(self, row, state):
        state["n"] += 1
        ask(self.base_dir, row["v"])


class EverySecond(Operator):
    """Fails on every other call, whatever it is given."""

    def process(self, rows, state):
        calls = self.base_dir / "calls"
        calls.write_text(str(int(calls.read_text()) + 1))
        if int(calls.read_text()) % 2:
            raise ValueError("now and then")


class FromTheThird(TupleOperator):
    """A tuple alone is no fault: only as the third of its key."""

    fields = (Field("n", np.int64),)

    def process_tuple(self, row, state):
        if state["n"] == 2:
            raise ValueError("too many")
        state["n"] += 1
'''
BOTH = pytest.mark.parametrize("operator", ["AtOnce", "OneByOne"])


def asking(folder: Path, operator: str, away: int, error: str = "text", on_bad_tuple: str = "deadLetter") -> Flow:
    (folder / "asking.py").write_text(ASKING)
    (folder / "error").write_text(error)
    (folder / "calls").write_text("0")
    (folder / "away").write_text(str(away))
    counts = {"name": "counts", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, "run": f"asking.py:{operator}"}
    made: dict[str, Any] = manifest([counts], {"s": "k BIGINT, v BIGINT"}, onBadTuple=on_bad_tuple)
    made["spec"]["sinks"] = []
    return Flow(folder, made)


def table_of(rows: Sequence[tuple[int, int]]) -> pa.Table:
    return pa.table({"k": pa.array([k for k, _ in rows], pa.int64()), "v": pa.array([v for _, v in rows], pa.int64())})


def counted(flow: Flow) -> Counter[int]:
    return Counter({row["k"]: row["n"] for row in flow.state("counts")})


def set_aside(flow: Flow) -> list[tuple[int, int]]:
    tuples = (json.loads(letter["tuple"]) for letter in flow.published(DEAD_LETTERS).to_pylist())
    return [(row["k"], row["v"]) for row in tuples]


def calls(folder: Path) -> int:
    return int((folder / "calls").read_text())


@BOTH
@pytest.mark.parametrize("away", [1, 2, 3])
@pytest.mark.parametrize("rows", [1, 2, 40])
def test_service_that_is_away_for_three_calls_costs_no_tuple(tmp_path: Path, operator: str, away: int, rows: int) -> None:
    flow = asking(tmp_path, operator, away)
    given = [(7, v) for v in range(rows)]
    flow.batch(s=table_of(given))
    assert set_aside(flow) == []
    assert counted(flow) == {7: rows}


@BOTH
def test_bad_tuple_is_found_during_an_outage_and_it_alone(tmp_path: Path, operator: str) -> None:
    flow = asking(tmp_path, operator, 2)
    given = [(k, v) for k in range(4) for v in range(10)]
    flow.batch(s=table_of([*given[:13], (2, 666), *given[13:]]))
    assert set_aside(flow) == [(2, 666)]
    (letter,) = flow.published(DEAD_LETTERS).to_pylist()
    assert "666 is no number" in letter["reason"]
    assert counted(flow) == Counter(k for k, _ in given)


def test_tuple_that_fails_only_after_others_is_set_aside(tmp_path: Path) -> None:
    flow = asking(tmp_path, "FromTheThird", 0)
    flow.batch(s=table_of([(1, 1), (1, 2), (1, 3), (2, 4)]))
    assert set_aside(flow) == [(1, 3)]
    assert counted(flow) == {1: 2, 2: 1}


@BOTH
@pytest.mark.parametrize(("error", "named"), [("memory", "MemoryError"), ("network", "ConnectionError")])
def test_full_memory_and_network_errors_are_no_tuples_fault(tmp_path: Path, operator: str, error: str, named: str) -> None:
    flow = asking(tmp_path, operator, 1, error)
    given = table_of([(7, v) for v in range(20)])
    with pytest.raises(TopologyFailed, match=rf"operator 'counts', instance \d: away(.|\n)*{named}"):
        flow.batch(s=given)
    assert calls(tmp_path) == 1, "the operator is not run again to find a tuple"
    flow.batch(s=given)
    assert set_aside(flow) == []
    assert counted(flow) == {7: 20}


def test_network_error_in_a_tuple_operator_names_the_tuple_it_was_at(tmp_path: Path) -> None:
    flow = asking(tmp_path, "OneByOne", 1, "network", on_bad_tuple="fail")
    with pytest.raises(TopologyFailed, match=r"OneByOne was at key k=7"):
        flow.batch(s=table_of([(7, 1)]))


def test_unreadable_state_is_no_tuples_fault(tmp_path: Path) -> None:
    flow = asking(tmp_path, "AtOnce", 0)
    flow.batch(s=table_of([(7, 1)]))
    before = calls(tmp_path)
    (file,) = (path for path in (tmp_path / "checkpoint" / "state").rglob("*") if path.is_file())
    file.write_bytes(file.read_bytes()[:-9])
    for slot in flow.slots:
        flow.forget(slot)
    with pytest.raises(TopologyFailed, match=file.name):
        flow.batch(s=table_of([(7, 1)]))
    assert calls(tmp_path) == before


@BOTH
def test_error_that_does_not_repeat_blames_no_tuple(tmp_path: Path, operator: str) -> None:
    flow = asking(tmp_path, operator, 1, on_bad_tuple="fail")
    with pytest.raises(TopologyFailed) as raised:
        flow.batch(s=table_of([(7, 1), (7, 2)]))
    sentence = str(raised.value)
    for part in ("operator 'counts'", "batch 0", "instance", "away", "did not repeat", "start again"):
        assert part in sentence
    assert "one tuple" not in sentence
    flow.batch(s=table_of([(7, 1), (7, 2)]))
    assert counted(flow) == {7: 2}


def test_operator_that_fails_now_and_then_ends_the_run(tmp_path: Path) -> None:
    flow = asking(tmp_path, "EverySecond", 0)
    with pytest.raises(TopologyFailed, match=r"now and then(.|\n)*did not repeat"):
        flow.batch(s=table_of([(7, 1)]))
    assert calls(tmp_path) == 2 * (MOST_OUTAGES + 1)
