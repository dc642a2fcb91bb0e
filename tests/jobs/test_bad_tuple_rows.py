"""A BadTuple names tuples by position or by a mask; these alone are set aside, and anything else is an error of the class."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from support.stages import Flow, manifest

from streamtopology.jobs.connectors.sinks.dead_letters import DEAD_LETTERS
from streamtopology.jobs.errors import TopologyFailed

OWN = """
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from streamtopology.api import BadTuple, Operator


class Own(Operator):
    output = pa.schema([("k", pa.int64()), ("v", pa.int64())])

    def process(self, rows, state):
        values = rows.column("v")
        v = values.fill_null(0).to_numpy()
        mask = v < 0
        bad = np.flatnonzero(mask)
        if len(bad):
            raise BadTuple({ROWS}, "negative")
        return rows.batch
"""
GIVEN = [(1, 5), (1, -1), (1, 7), (1, -2), (1, None), (1, 9)]


def flow_of(folder: Path, rows: str, on_bad_tuple: str = "deadLetter") -> Flow:
    (folder / "own.py").write_text(OWN.replace("{ROWS}", rows))
    own = {"name": "own", "inputs": ["s"], "grouping": {"policy": "fields", "key": "k"}, "run": "own.py:Own"}
    return Flow(folder, manifest([own], {"s": "k BIGINT, v BIGINT"}, onBadTuple=on_bad_tuple))


def batch() -> pa.Table:
    keys, values = zip(*GIVEN, strict=True)
    return pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array(values, pa.int64())})


@pytest.mark.parametrize(
    "rows",
    [
        "mask", "mask.tolist()", "pa.array(mask)", "pc.less(values, 0)", "pa.chunked_array([pc.less(values, 0)])", "bad",
        "bad.tolist()", "bad[::-1]", "[*bad, *bad]", "bad.astype(np.uint8)", "pa.array(bad)",
    ],
)  # fmt: skip
def test_tuples_named_by_mask_or_position_are_set_aside_once(tmp_path: Path, rows: str) -> None:
    flow = flow_of(tmp_path, rows)
    flow.batch(s=batch())
    letters = [json.loads(letter["tuple"])["v"] for letter in flow.published(DEAD_LETTERS).to_pylist()]
    assert sorted(letters) == [-2, -1]
    assert sorted(flow.published("own").column("v").drop_null().to_pylist()) == [5, 7, 9]


@pytest.mark.parametrize("on_bad_tuple", ["deadLetter", "fail"])
@pytest.mark.parametrize(
    ("rows", "finding"),
    [
        ("bad + 0.9", r"of type float64; give it positions, whole numbers, or a boolean mask"),
        ("[-1]", "the position -1; give it positions from 0 to 5"),
        ("bad + 6", r"the position \d+; give it positions from 0 to 5"),
        ("mask[:-1]", "a mask of 5; give it one value for each of the 6 tuples"),
        ("np.nonzero(mask)", r"an array of 2 dimensions; give it positions in one, as np\.flatnonzero\(mask\)"),
        ("None", "of type object"),
        ("'1'", "of type <U1"),
        ("set(bad.tolist())", "of type object"),
    ],
)
def test_anything_but_tuples_is_an_error_of_the_class(tmp_path: Path, rows: str, finding: str, on_bad_tuple: str) -> None:
    flow = flow_of(tmp_path, rows, on_bad_tuple)
    with pytest.raises(TopologyFailed, match=rf"Own raises BadTuple\('negative'\) with (.|\n)*{finding}"):
        flow.batch(s=batch())
    assert flow.checkpoint.commits() == []
