"""State fields of half floats are gathered in parts and merged where a grouping splits keys, as plain Python would."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.stages import Flow, manifest

from streamtopology.jobs.errors import TopologyFailed

OWN = """
import numpy as np
import pyarrow as pa
from streamtopology.api import Field, Operator


class Own(Operator):
    fields = (
        Field("total", np.float16, merge="sum"), Field("least", np.float16, initial=np.inf, merge="min"),
        Field("most", np.float16, (2,), initial=-np.inf, merge="max"),
    )
    combinable = True
    output = pa.schema([("k", pa.int64()), ("total", pa.float64()), ("least", pa.float64()), ("most", pa.float64())])

    def process(self, rows, state):
        slots, values = state.slots(rows.keys), rows.column("v").to_numpy().astype(np.float16)
        np.add.at(state.column("total"), slots, values)
        np.minimum.at(state.column("least"), slots, values)
        np.maximum.at(state.column("most"), slots, values[:, None])

    def finish(self, batch, state):
        slots = state.touched()
        columns = [state.column(name)[slots].astype(np.float64) for name in ("total", "least")]
        most = state.column("most")[slots][:, 1].astype(np.float64)
        return pa.record_batch([*state.keys(slots), *map(pa.array, [*columns, most])], schema=self.output)
"""


def flow_of(folder: Path, policy: str) -> Flow:
    (folder / "own.py").write_text(OWN)
    own = {"name": "own", "inputs": ["s"], "grouping": {"policy": policy, "key": "k"}, "run": "own.py:Own"}
    return Flow(folder, manifest([own], {"s": "k BIGINT, v BIGINT"}))


@pytest.mark.parametrize("policy", ["fields", "partial-key"])
def test_half_floats_are_merged_as_python_has_them(tmp_path: Path, policy: str) -> None:
    flow = flow_of(tmp_path, policy)
    values = {1: [3, -5, 7, 9, 11, 2], 2: [100, 200], 3: [-1]}
    for half in (0, 1):
        rows = [(k, v) for k, each in values.items() for v in each[half::2]]
        flow.batch(s=pa.table({"k": [k for k, _ in rows], "v": [v for _, v in rows]}))
    found = {row["k"]: (row["total"], row["least"], row["most"]) for row in flow.published("own").to_pylist()}
    assert found == {k: (sum(each), min(each), max(each)) for k, each in values.items()}


@pytest.mark.parametrize("policy", ["fields", "partial-key"])
def test_sum_that_a_half_float_cannot_hold_is_refused(tmp_path: Path, policy: str) -> None:
    flow = flow_of(tmp_path, policy)
    with pytest.raises(TopologyFailed, match="state field 'total' is float16 and cannot hold"):
        flow.batch(s=pa.table({"k": np.ones(4, np.int64), "v": np.full(4, 60_000)}))
