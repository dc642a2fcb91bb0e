"""Random operators of a user's own: their rows arrive as plain Python has them, or one sentence names what does not fit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from support.differential.own_values import MODULE, case_of
from support.stages import Flow, manifest

from streamtopology.jobs.errors import TopologyFailed


def flow_of(folder: Path, cls: str, seed: int) -> Flow:
    (folder / "own.py").write_text(MODULE.replace("{SEED}", str(seed)))
    own = {"name": "own", "inputs": ["s"], "grouping": {"policy": "shuffle"}, "run": f"own.py:{cls}"}
    then = {"name": "next", "inputs": ["own"], "grouping": {"policy": "fields", "key": "k"}, "run": "own.py:Next"}
    return Flow(folder, manifest([own, then], {"s": "k BIGINT"}))


# Of values that do not fit, Arrow makes no batch in the code of the user.
CASES = [(seed, cls) for seed in range(40) for cls in ("Tuples", "Batches") if cls == "Tuples" or case_of(seed).unfit is None]


@pytest.mark.parametrize(("seed", "cls"), CASES)
def test_random_values_arrive_equal_or_are_refused_by_name(tmp_path: Path, seed: int, cls: str) -> None:
    case = case_of(seed)
    flow = flow_of(tmp_path, cls, seed)
    batch = pa.table({"k": pa.array(case.values, pa.int64())})
    if case.unfit is None:
        flow.batch(s=batch)
        found = {row.pop("k"): row for row in flow.published("next").to_pylist()}
        assert found == case.values
        return
    with pytest.raises(TopologyFailed, match=rf"Tuples emits .* as '{case.unfit}', which its `output` declares as"):
        flow.batch(s=batch)
    assert flow.checkpoint.commits() == []
