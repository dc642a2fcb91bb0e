"""Operators that are removed from a manifest: their state is kept, or forgotten for good, and never taken up stale."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.stages import Flow, manifest

from streamtopology.jobs.errors import TopologyFailed

KEYS = range(100)
BY_KEY = {"policy": "mixed", "key": "k"}
COUNTS = {"name": "counts", "inputs": ["s"], "grouping": BY_KEY, "run": "count"}
SPLIT = {"name": "split", "inputs": ["s"], "grouping": BY_KEY | {"policy": "partial-key"}, "aggregateEvery": 9, "run": "count"}
PASSING = {"name": "passing", "inputs": ["s"], "run": "map", "with": {"select": ["k"]}}
OWN = {"name": "own", "inputs": ["s"], "grouping": BY_KEY, "run": "mine.py:Mine"}


def with_operators(*operators: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return manifest(operators, {"s": "k BIGINT"}, **spec)


def each_key() -> pa.Table:
    return pa.table({"k": list(KEYS)})


def counts(flow: Flow) -> dict[int, int]:
    return {row["k"]: row["count"] for row in flow.state("counts")}


def test_removal_of_an_operator_with_state_is_refused_and_names_the_way_out(tmp_path: Path) -> None:
    flow = Flow(tmp_path, with_operators(COUNTS, PASSING))
    flow.batch(s=each_key())
    with pytest.raises(TopologyFailed) as refused:
        flow.start(with_operators(PASSING))
    assert str(refused.value) == (
        f"operator 'counts' is no longer in the manifest, and checkpoint {flow.checkpoint.uri} has its state (100 keys). State "
        "belongs to an operator's name: put the operator back under this name, or set spec.onRemove: drop to forget the state "
        "for good"
    )
    flow.start(with_operators(COUNTS, PASSING))
    flow.batch(s=each_key())
    assert counts(flow) == dict.fromkeys(KEYS, 2)


def test_operator_that_was_removed_and_comes_back_begins_without_state(tmp_path: Path) -> None:
    flow = Flow(tmp_path, with_operators(COUNTS, PASSING))
    flow.batch(s=each_key())
    flow.start(with_operators(PASSING, onRemove="drop"))
    assert flow.reported == ["operator 'counts': its state (100 keys) is forgotten with batch 1, as onRemove: drop says"]
    flow.batch(s=each_key())
    assert "counts" not in flow.last.state
    flow.reported.clear()
    flow.start(with_operators(COUNTS, PASSING))
    assert flow.reported == ["operator 'counts' was added: it begins without state, with the rows from batch 2 on"]
    flow.batch(s=each_key())
    assert counts(flow) == dict.fromkeys(KEYS, 1)


def test_state_that_no_batch_ran_without_is_not_forgotten(tmp_path: Path) -> None:
    flow = Flow(tmp_path, with_operators(COUNTS, PASSING))
    flow.batch(s=each_key())
    flow.start(with_operators(PASSING, onRemove="drop"))
    flow.start(with_operators(COUNTS, PASSING))
    flow.batch(s=each_key())
    assert counts(flow) == dict.fromkeys(KEYS, 2)


def test_operator_without_state_is_removed_without_a_question(tmp_path: Path) -> None:
    flow = Flow(tmp_path, with_operators(COUNTS, PASSING))
    flow.batch(s=each_key())
    flow.start(with_operators(COUNTS))
    flow.batch(s=each_key())
    assert counts(flow) == dict.fromkeys(KEYS, 2)


def test_operator_that_no_longer_keeps_state_is_as_one_that_was_removed(tmp_path: Path) -> None:
    flow = Flow(tmp_path, with_operators(COUNTS))
    flow.batch(s=each_key())
    stateless = PASSING | {"name": "counts"}
    with pytest.raises(TopologyFailed, match=r"operator 'counts' keeps no state any more, and checkpoint .* \(100 keys\)"):
        flow.start(with_operators(stateless))
    flow.start(with_operators(stateless, onRemove="drop"))
    flow.batch(s=each_key())
    flow.sinks.clear()
    flow.start(with_operators(COUNTS))
    flow.batch(s=each_key())
    assert counts(flow) == dict.fromkeys(KEYS, 1)


def test_tuples_that_a_removed_operator_held_back_go_with_it(tmp_path: Path) -> None:
    flow = Flow(tmp_path, with_operators(SPLIT, PASSING))
    flow.batch(s=each_key())
    flow.batch(s=each_key())
    with pytest.raises(TopologyFailed, match=re.escape("operator 'split' is no longer in the manifest")):
        flow.start(with_operators(PASSING))
    flow.start(with_operators(PASSING, onRemove="drop"))
    flow.batch(s=each_key())
    flow.start(with_operators(SPLIT, PASSING))
    flow.batch(s=each_key())
    flow.drain()
    assert {row["count"] for row in flow.state("split")} == {1}


def test_operator_can_be_removed_together_with_its_code(tmp_path: Path) -> None:
    code = "from streamtopology.jobs.operators.count import Count\nclass Mine(Count): ...\n"
    (tmp_path / "mine.py").write_text(code)
    flow = Flow(tmp_path, with_operators(COUNTS, OWN))
    flow.batch(s=each_key())
    (tmp_path / "mine.py").unlink()
    flow.start(with_operators(COUNTS, onRemove="drop"))
    flow.batch(s=each_key())
    assert counts(flow) == dict.fromkeys(KEYS, 2)
