"""`state get` shows a key's state in the words of the manifest, and answers a wrong key with a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from support.stages import Flow, manifest

from streamtopology.jobs.admin.inspect_key import describe_key
from streamtopology.jobs.errors import WrongUse


def saved(flow: Flow, given: dict[str, Any], folder: Path) -> Path:
    """The manifest as a file, with the flow's checkpoint."""
    path = folder / "flow.yaml"
    path.write_text(yaml.safe_dump({**given, "spec": {**given["spec"], "checkpoint": flow.checkpoint.uri}}))
    return path


def operator(name: str, run: str, policy: str = "mixed", **options: Any) -> dict[str, Any]:
    return {"name": name, "inputs": ["s"], "grouping": {"policy": policy, "key": "k"}, "run": run, "with": options}


@pytest.mark.parametrize("policy", ["mixed", "partial-key"])
def test_aggregates_bear_the_names_of_the_manifest(tmp_path: Path, policy: str) -> None:
    calls = {"total": "sum(v)", "middle": "mean(v)", "rows": "count()"}
    given = manifest([operator("sums", "aggregate", policy, aggregates=calls)], {"s": "k BIGINT, v BIGINT"})
    flow = Flow(tmp_path, given)
    flow.batch(s=pa.table({"k": [7, 7, 8], "v": [1, 4, 9]}))
    flow.drain(for_good=False)
    shown = describe_key(saved(flow, given, tmp_path), None, ["7"], tmp_path).splitlines()[1:]
    assert shown == ["  k: 7", "  total: 5", "  middle: 2.5", "  rows: 2"]


def test_texts_are_shown_as_texts(tmp_path: Path) -> None:
    given = manifest([operator("best", "top-k", by="v", id="name", k=2)], {"s": "k STRING, v BIGINT, name STRING"})
    flow = Flow(tmp_path, given)
    flow.batch(s=pa.table({"k": ["a", "a"], "v": [1, 2], "name": ["first", "zweite, größer"]}))
    shown = describe_key(saved(flow, given, tmp_path), "best", ["a"], tmp_path)
    assert "  name: zweite, größer, first\n  v: 2, 1" in shown


def test_open_windows_of_a_key_are_shown_with_their_bounds(tmp_path: Path) -> None:
    windows = operator("w", "window-aggregate", time="at", size="10s", aggregates={"n": "count()"})
    given = manifest([windows], {"s": "k BIGINT, at DOUBLE"}, watermarks={"s": {"column": "at", "delay": "1s"}})
    flow = Flow(tmp_path, given)
    flow.batch(s=pa.table({"k": [1, 1, 2], "at": [3.0, 14.0, 4.0]}))
    shown = describe_key(saved(flow, given, tmp_path), "w", ["1"], tmp_path)
    assert "window_start: 1970-01-01 00:00:00" in shown
    assert "window_end: 1970-01-01 00:00:20" in shown
    assert "__" not in shown


@pytest.mark.parametrize(("kind", "text"), [("BIGINT", "abc"), ("BIGINT", "0x1"), ("TIMESTAMP", "yesterday"), ("BINARY", "x")])
def test_key_of_a_wrong_type_is_refused_with_the_column_and_its_type(tmp_path: Path, kind: str, text: str) -> None:
    given = manifest([operator("n", "count")], {"s": f"k {kind}, v BIGINT"})
    flow = Flow(tmp_path, given)
    column = {"BIGINT": pa.array([1]), "TIMESTAMP": pa.array([1], pa.timestamp("us")), "BINARY": pa.array([b"x"])}[kind]
    flow.batch(s=pa.table({"k": column, "v": [1]}))
    path = saved(flow, given, tmp_path)
    if kind == "BINARY":
        assert "k: x" in describe_key(path, "n", [text], tmp_path)
        return
    with pytest.raises(WrongUse, match=rf"operator 'n': key column k is of type .*, and '{text}' is none"):
        describe_key(path, "n", [text], tmp_path)
