"""Every operator class that pages and examples show lives with NULL, NaN and empty batches, and forgets them.

People begin with a copy of such a class. One that dies of a NULL, or keeps a NaN in its sum for ever, does so in their job.
"""

from __future__ import annotations

import ast
import doctest
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamtopology.api
from streamtopology.api import BatchInfo, Operator, Rows, TupleOperator, new_state
from streamtopology.jobs.operators import load
from streamtopology.jobs.operators.base import required_options
from streamtopology.jobs.scaffold.new_operator import new_operator

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(python|pycon)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NOON = datetime(2025, 1, 31, 12, tzinfo=UTC)
NAN = float("nan")
OPTIONS = {"column": "celsius", "limit": 3, "above": 2.0, "time": "at", "pause": "10s"}
# They count each tuple, whatever its values are.
COUNT_ALL = {"docs/reference/python-api.md:Count", "docs/reference/python-api.md:Seen"}

State: TypeAlias = dict[Any, tuple[Any, ...]]


def is_operator(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, Operator) and found not in (Operator, TupleOperator)


def of_page(page: Path) -> Iterator[type[Operator]]:
    """The operator classes in the code of a page, which may leave out the imports."""
    names = {"np": np, "pa": pa, **{name: getattr(streamtopology.api, name) for name in streamtopology.api.__all__}}
    for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        parts = [text] if language == "python" else [part.source for part in doctest.DocTestParser().get_examples(text)]
        for part in ast.parse("".join(parts)).body:
            if isinstance(part, ast.Import | ast.ImportFrom | ast.ClassDef):
                exec(compile(ast.Module([part], []), str(page), "exec"), names)
            if isinstance(part, ast.ClassDef) and is_operator(names[part.name]):
                yield names[part.name]


def of_module(module: Path) -> Iterator[type[Operator]]:
    classes = [part.name for part in ast.parse(module.read_text()).body if isinstance(part, ast.ClassDef)]
    if "Operator" in module.read_text():
        yield from (load(f"{module.name}:{name}", module.parent) for name in classes)


def documented() -> dict[str, type[Operator]]:
    """Place and class of each operator in pages and examples."""
    return {
        f"{path.relative_to(ROOT)}:{operator.__name__}": operator
        for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.py")]
        for operator in (of_page(path) if path.suffix == ".md" else of_module(path))
    }


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> type[Operator]:
    folder = tmp_path_factory.mktemp("own")
    new_operator("Warm", folder)
    return load("warm.py:Warm", folder)


FOUND = documented()
WHOLE = {name: found for name, found in FOUND.items() if {"process", "process_tuple"} & set(vars(found))}

# A tuple without known values, or one with them. Whole numbers, because their sums are exact in any order.
unknown = st.sampled_from([None, NAN])
tuples = st.tuples(st.sampled_from([None, 1, 2]), st.one_of(unknown, st.integers(-9, 40)), st.integers(0, 60))
batches = st.lists(st.tuples(st.lists(tuples, max_size=6), st.integers(-30, 60)), min_size=1, max_size=5)


def is_known(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


def batch_of(rows: list[tuple[int | None, float | None, int]], kind: pa.DataType) -> pa.RecordBatch:
    """The columns that any documented class reads; all values of a tuple are known, or none is."""
    values = [value if kind == pa.float64() or is_known(value) else None for _, value, _ in rows]
    times = [NOON + timedelta(seconds=second) if is_known(value) else None for _, value, second in rows]
    return pa.record_batch(
        {
            "sensor": pa.array([key for key, _, _ in rows], pa.int32()),
            "celsius": pa.array(values, kind),
            "drift": pa.array(values, kind),
            "at": pa.array(times, pa.timestamp("us", tz="UTC")),
        }
    )


def run(found: type[Operator], given: list[Any], kind: pa.DataType) -> tuple[list[list[dict[str, Any]]], State]:
    """What each batch emits, and the state of each key in the end."""
    operator = found(**{name: OPTIONS[name] for name in required_options(found)})
    operator.prepare({"readings": batch_of([], kind).schema}, ("sensor",))
    state, emitted, closed = new_state(operator.state), [], None
    for number, (rows, second) in enumerate(given):
        watermark = max(closed or 0, NOON.timestamp() + second)
        info = BatchInfo(number, watermark, closed_until=closed)
        operator.begin(info)
        outputs = [
            operator.accept(Rows.of(batch_of(rows, kind), "readings", ("sensor",)), state),
            operator.accept(Rows.of(batch_of([], kind), "readings", ("sensor",)), state),
            operator.finish(info, state),
        ]
        emitted.append([row for output in outputs if output is not None for row in output.to_pylist()])
        state.commit()
        closed = watermark
    kept = state.snapshot().to_pylist()
    return emitted, {row.pop("sensor"): tuple(row.values()) for row in kept}


def check(found: type[Operator], given: list[Any], kind: pa.DataType, counts_all: bool) -> None:
    """State, and what is emitted of keys whose tuples all have values, is as if the other tuples had not come."""
    plain = [([(key, v if is_known(v) else 0, s) for key, v, s in rows if counts_all or is_known(v)], w) for rows, w in given]
    (emitted, state), (expected, expected_state) = run(found, given, kind), run(found, plain, kind)
    assert {key: state[key] for key in expected_state} == expected_state
    for (rows, _), now, then in zip(given, emitted, expected, strict=True):
        odd = {key for key, value, _ in rows if not is_known(value)}
        assert [row for row in now if row["sensor"] not in odd] == [row for row in then if row["sensor"] not in odd]


def test_pages_and_examples_are_searched():
    assert {Path(name.partition(":")[0]).name for name in FOUND} == {
        "first-operator.md", "python-api.md", "upgrade.md", "own_operator.py"
    }  # fmt: skip
    assert set(WHOLE) >= COUNT_ALL


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.int64()], ids=str)
@pytest.mark.parametrize("name", WHOLE)
@settings(max_examples=30)
@given(batches)
def test_a_tuple_without_a_value_is_as_none_to_later_ones(name: str, kind: pa.DataType, given: list[Any]) -> None:
    check(WHOLE[name], given, kind, name in COUNT_ALL)


@settings(max_examples=30)
@given(batches)
def test_class_of_new_operator_takes_a_tuple_without_a_value_as_none(written: type[Operator], given: list[Any]) -> None:
    check(written, given, pa.float64(), counts_all=False)


@pytest.mark.parametrize("name", sorted(set(FOUND) - set(WHOLE)))
@pytest.mark.parametrize("keys", [[], [None, 1]])
def test_documented_upgrade_takes_a_null_key_and_no_key(name: str, keys: list[int | None]) -> None:
    old = pa.record_batch({"sensor": pa.array(keys, pa.int32()), "above": pa.array([3] * len(keys), pa.int64())})
    upgraded = FOUND[name]().upgrade(old)
    assert upgraded.schema.names == ["sensor", "warnings"]
    assert upgraded.columns == old.columns
