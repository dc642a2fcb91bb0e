"""Columns of any type that an `output` declares are routed to the next operator as they were, or are refused by `validate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.stages import Flow, manifest

OWN = """
import pyarrow as pa
import pyarrow.compute as pc
from streamtopology.api import Operator, TupleOperator

DECLARED = pa.schema([("k", pa.int64()), ("v", {KIND})])


def value(k):
    return {VALUE}


class Batches(Operator):
    output = DECLARED

    def process(self, rows, state):
        keys = rows.column("k")
        values = pa.array([value(k) for k in keys.to_pylist()], DECLARED.field("v").type)
        return pa.record_batch([keys, values], schema=DECLARED)


class Tuples(TupleOperator):
    output = DECLARED

    def process_tuple(self, row, state):
        return {"k": row["k"], "v": value(row["k"])}


class Next(Operator):
    def prepare(self, inputs, key):
        (self.output,) = inputs.values()
        return self.output

    def process(self, rows, state):
        return rows.batch
"""
KINDS: list[tuple[str, str, Any]] = [
    ("pa.string_view()", "f'text {k} that no view holds in itself'", lambda k: f"text {k} that no view holds in itself"),
    ("pa.binary_view()", "bytes([k])", lambda k: bytes([k])),
    ("pa.run_end_encoded(pa.int32(), pa.string())", "str(k // 2)", lambda k: str(k // 2)),
    ("pa.list_(pa.string_view())", "[str(k), None]", lambda k: [str(k), None]),
    ("pa.struct({'a': pa.binary_view()})", "{'a': b'x' * k}", lambda k: {"a": b"x" * k}),
    ("pa.dictionary(pa.int8(), pa.string())", "str(9 - k)", lambda k: str(9 - k)),
    ("pa.float16()", "k / 2", lambda k: k / 2),
]


def flow_of(folder: Path, kind: str, value: str, cls: str) -> Flow:
    (folder / "own.py").write_text(OWN.replace("{KIND}", kind).replace("{VALUE}", value))
    own = {"name": "own", "inputs": ["s"], "grouping": {"policy": "shuffle"}, "run": f"own.py:{cls}"}
    then = {"name": "next", "inputs": ["own"], "grouping": {"policy": "fields", "key": "k"}, "run": "own.py:Next"}
    return Flow(folder, manifest([own, then], {"s": "k BIGINT"}))


@pytest.mark.parametrize("cls", ["Batches", "Tuples"])
@pytest.mark.parametrize(("kind", "value", "right"), KINDS, ids=lambda case: case if isinstance(case, str) else "")
def test_column_of_any_type_is_routed_as_it_was(tmp_path: Path, cls: str, kind: str, value: str, right: Any) -> None:
    flow = flow_of(tmp_path, kind, value, cls)
    flow.batch(s=pa.table({"k": pa.array(range(8), pa.int64())}))
    found = {row["k"]: row["v"] for row in flow.published("next").to_pylist()}
    assert found == {k: right(k) for k in range(8)}


@pytest.mark.parametrize(
    ("kind", "finding"),
    [
        ("pa.list_(pa.run_end_encoded(pa.int32(), pa.string()))", "in which Arrow cannot take single rows; declare its values"),
        ("pa.struct([('a', pa.int64()), ('a', pa.string())])", "with the field 'a' twice; give each field a name of its own"),
        ("pa.list_(pa.struct([('a', pa.int64()), ('a', pa.string())]))", "with the field 'a' twice"),
    ],
)
def test_type_that_cannot_be_routed_is_refused_before_the_start(tmp_path: Path, kind: str, finding: str) -> None:
    with pytest.raises(ValueError, match=rf"the `output` of Batches declares 'v' as .*{finding}"):
        flow_of(tmp_path, kind, "None", "Batches")
