"""Mistakes in a user's own class: `validate` names operator, class and remedy, whatever the class does."""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from support.manifests import counting, files, manifest, memory_sink

from streamtopology.api import BadTuple, Field, Operator, Rows, StateError, TupleOperator, new_state
from streamtopology.jobs.cli.main import main

_IMPORTS = "import abc, sys\nimport numpy as np, pyarrow as pa\nfrom streamtopology.api import *\n"


def validated(
    folder: Path,
    run: str,
    capsys: pytest.CaptureFixture[str],
    options: Mapping[str, Any] | None = None,
    policy: str = "mixed",
) -> tuple[int, str]:
    """Exit code and output of `validate` for one operator."""
    (folder / "data").mkdir()
    operator = counting("own", policy, run=run, **{"with": options or {}})
    file, sinks = folder / "own.yaml", [memory_sink("kept", "own")]
    file.write_text(yaml.safe_dump(manifest("own", [files(folder / "data")], [operator], sinks, executors=[{"name": "one"}])))
    code = main(["validate", str(file)])
    printed = capsys.readouterr()
    return code, printed.err + printed.out


def written(folder: Path, code: str) -> str:
    """Write the module of a class Mine, whose code starts in line 4; returns the manifest's `run`."""
    (folder / "mine.py").write_text(_IMPORTS + code)
    return "mine.py:Mine"


_FAULTY = {
    "skips the __init__ of Operator; call super().__init__(**common) in its own": (
        "class Mine(Operator):\n    def __init__(self):\n        self.seen = 0\n"
    ),
    "Mine is abstract; override limit, or name a class that does": (
        "class Mine(Operator, abc.ABC):\n    @abc.abstractmethod\n    def limit(self): ...\n"
    ),
    "Mine raised KeyError: 'celsius' (mine.py, line 6, in prepare: inputs['celsius']); correct the class": (
        "class Mine(Operator):\n    def prepare(self, inputs, key):\n        inputs['celsius']\n"
    ),
    "exist in schema' (mine.py, line 6, in column: inputs['rows'].field('celsius')); correct the class, or raise OptionError": (
        "class Base(Operator):\n    def column(self, inputs):\n        inputs['rows'].field('celsius')\n"
        "class Mine(Base):\n    def prepare(self, inputs, key):\n        self.column(inputs)\n"
    ),
    "Mine raised SystemExit: 3 (mine.py, line 7, in __init__: sys.exit(3))": (
        "class Mine(Operator):\n    def __init__(self):\n        super().__init__()\n        sys.exit(3)\n"
    ),
    "mine.py ends the process when it is imported, by sys.exit(3) or the like; put what it does as a script below `if": (
        "class Mine(Operator): ...\nsys.exit(3)\n"
    ),
    "mine.py ends the process when it is imported, by KeyboardInterrupt or the like": (
        "class Mine(Operator): ...\nraise KeyboardInterrupt\n"
    ),
    "mine.py ends the process when it is imported, by GeneratorExit or the like": "raise GeneratorExit\n",
    "Mine raised KeyboardInterrupt: stop (mine.py, line 6, in prepare: raise KeyboardInterrupt('stop'))": (
        "class Mine(Operator):\n    def prepare(self, inputs, key):\n        raise KeyboardInterrupt('stop')\n"
    ),
    "Mine has no process(); override it": "class Mine(Operator): ...\n",
    "Mine has no process_tuple(); override it": (
        "class Mine(TupleOperator):\n    def process(self, rows, state):\n        return None\n"
    ),
    "Mine.process_tuple is async, which nothing would await; make it a plain method": (
        "class Mine(TupleOperator):\n    async def process_tuple(self, row, state):\n        return None\n"
    ),
    "Mine.prepare is async": "class Mine(Operator):\n    async def prepare(self, inputs, key):\n        return None\n",
    "Mine.process is async": "class Mine(Operator):\n    async def process(self, rows, state):\n        yield None\n",
    "Mine.finish is a generator; return what it yields at once": (
        "class Mine(Operator):\n    def process(self, rows, state): ...\n    def finish(self, batch, state):\n        yield\n"
    ),
    "Mine.process(rows) does not take what it is called with, (rows, state): too many positional arguments; declare `def": (
        "class Mine(Operator):\n    def process(self, rows):\n        return None\n"
    ),
    "Mine.process_tuple(row, state, more) does not take what it is called with, (row, state): missing": (
        "class Mine(TupleOperator):\n    def process_tuple(self, row, state, more):\n        return None\n"
    ),
    "Mine.process is a int; make it a method": "class Mine(Operator):\n    process = 3\n",
    "the `fields` of Mine are Field(name='n', ": (
        "class Mine(Operator):\n    fields = (Field('n', np.int64))\n    def process(self, rows, state): ...\n"
    ),
    "the `fields` of Mine are {'n': <class 'numpy.int64'>}; make them a tuple of Field, such as (Field(": (
        "class Mine(Operator):\n    fields = {'n': np.int64}\n    def process(self, rows, state): ...\n"
    ),
    "the `output` of Mine is a dict, {'k': 'BIGINT'}; make it a schema, such as pa.schema([": (
        "class Mine(Operator):\n    output = {'k': 'BIGINT'}\n    def process(self, rows, state): ...\n"
    ),
    "what prepare() returns of Mine is a str, 'k BIGINT'; make it a schema": (
        "class Mine(Operator):\n    def prepare(self, inputs, key):\n        return 'k BIGINT'\n"
    ),
    "the `output` of Mine has k twice; give each column a name of its own": (
        "class Mine(Operator):\n    output = pa.schema([('k', pa.int64()), ('k', pa.int64())])\n"
    ),
    "prepare() of Mine returns None, not its `output`; end it with `return self.output`": (
        "class Mine(Operator):\n    output = pa.schema([('k', pa.int64())])\n    def prepare(self, inputs, key):\n"
        "        super().prepare(inputs, key)\n"
    ),
    "prepare() of Mine returns k string, not its `output`; end it with `return self.output`": (
        "class Mine(Operator):\n    output = pa.schema([('k', pa.int64())])\n    def prepare(self, inputs, key):\n"
        "        return pa.schema([('k', pa.string())])\n"
    ),
    "prepare() of Mine returns a schema, but sets no `output`; set self.output to it": (
        "class Mine(TupleOperator):\n    def prepare(self, inputs, key):\n        super().prepare(inputs, key)\n"
        "        return pa.schema([('k', pa.string())])\n"
    ),
    "mine.py does not load: StateError: field 'x': shape is 'abc'; allowed: whole numbers such as 3, (3,) or (3, 2)": (
        "class Mine(Operator):\n    fields = (Field('x', np.int64, shape='abc'),)\n"
    ),
}


@pytest.mark.parametrize("reported", _FAULTY)
def test_validate_names_what_is_wrong_with_a_class(reported: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = validated(tmp_path, written(tmp_path, _FAULTY[reported]), capsys)
    assert code == 2
    assert "own.yaml has 1 problem:" in printed
    assert "spec.operators[0].run: operator 'own': " in printed
    assert reported in printed


def test_split_keys_of_a_field_without_merge_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = written(
        tmp_path,
        "class Mine(Operator):\n    combinable, fields = True, (Field('n', np.int64),)\n"
        "    def process(self, rows, state): ...\n",
    )
    code, printed = validated(tmp_path, run, capsys, policy="partial-key")
    assert code == 2
    assert "spec.operators[0].grouping.policy: operator 'own': policy 'partial-key' may send one key to several" in printed
    assert "field 'n' of Mine has no merge; declare it (sum, min or max), or override combine()" in printed


def test_real_interrupt_while_a_module_loads_ends_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "import signal\nsignal.raise_signal(signal.SIGINT)\nclass Mine(Operator): ...\n"
    code, printed = validated(tmp_path, written(tmp_path, code), capsys)
    assert (code, "problem" in printed) == (130, False)


def test_exit_of_an_installed_module_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "exiting_module.py").write_text("import sys\nsys.exit('usage: ...')\n")
    code, printed = validated(tmp_path, "exiting_module:Mine", capsys)
    assert code == 2
    assert "module exiting_module ends the process when it is imported, by sys.exit(usage: ...)" in printed


def test_failure_over_a_guessed_column_is_not_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = (
        "class Mine(Operator):\n    def __init__(self, column, **common):\n        super().__init__(**common)\n"
        "        self.column = column\n    def prepare(self, inputs, key):\n"
        "        if not pa.types.is_string(require_column(inputs, self.column, 'rows').type):\n"
        "            raise RuntimeError('no text')\n"
    )
    _, printed = validated(tmp_path, written(tmp_path, code), capsys, {"column": "elsewhere"})
    assert "has 1 problem:" in printed
    assert "spec.operators[0].with.column: operator 'own': column 'elsewhere' does not exist" in printed


def test_error_in_a_built_in_class_shows_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def prepare(*_: object) -> None:
        raise KeyError("of the project")

    monkeypatch.setattr("streamtopology.jobs.operators.count.Count.prepare", prepare)
    with pytest.raises(KeyError, match="of the project"):
        validated(tmp_path, "count", capsys)


def test_abstract_base_class_of_operators_may_be_derived_from() -> None:
    class Base(Operator, abc.ABC):
        @abc.abstractmethod
        def limit(self) -> int: ...

    class Concrete(Base):
        def limit(self) -> int:
            return 3

    assert Concrete(costPerTuple="5ms").cost_per_tuple == 0.005


def test_dtype_of_other_machines_is_the_one_of_this() -> None:
    assert Field("x", np.dtype(">i8")) == Field("x", np.dtype("i8"))
    assert Field("x", np.dtype(">f4"), shape=(2,)).arrow_type == pa.list_(pa.float32(), 2)
    with pytest.raises(StateError, match="field 'x': state is stored in types of Arrow, which has no"):
        Field("x", np.dtype(np.longdouble))


@pytest.mark.parametrize(("dtype", "initial"), [("f4", 1e300), ("?", 2), ("i1", 200), ("i8", math.nan), ("u1", -1)])
def test_initial_value_that_a_field_cannot_hold_is_refused(dtype: str, initial: float) -> None:
    with pytest.raises(StateError, match=r"field 'x': .* cannot hold initial"):
        Field("x", np.dtype(dtype), initial=initial)
    assert Field("x", np.dtype("f4"), initial=math.inf).initial == math.inf


def test_shape_of_a_field_may_be_a_number_as_in_numpy() -> None:
    shapes: list[Any] = [3, (3,), [3], np.int64(3)]
    assert {Field("x", np.dtype(np.int64), shape=shape) for shape in shapes} == {Field("x", np.dtype(np.int64), shape=(3,))}
    for shape in ("abc", 2.5, (2, None)):
        with pytest.raises(StateError, match=r"field 'x': shape is .*; allowed: whole numbers"):
            Field("x", np.dtype(np.int64), shape=shape)  # pyright: ignore[reportArgumentType]
    with pytest.raises(StateError, match="at least 1"):
        Field("x", np.dtype(np.int64), shape=(0,))
    with pytest.raises(StateError, match="field 'x': dtype is 'money'; allowed: a numpy type such as"):
        Field("x", "money")  # pyright: ignore[reportArgumentType]


class Emitting(TupleOperator):
    """Emit all that the tuple's list holds."""

    fields = (Field("seen", np.dtype(np.int64)),)
    output = pa.schema([("sensor", pa.int64()), ("times", pa.int64())])

    def __init__(self, emitted: Mapping[int, Any]) -> None:
        super().__init__()
        self.emitted = emitted

    def process_tuple(self, row: dict[str, Any], state: Any) -> Any:
        state["seen"] += 1
        yield from self.emitted[row["sensor"]]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"sensor": 7, "tmes": 1}, r"emits a dict without 'times', .*has: sensor, tmes\) on key sensor=7"),
        ({}, r"emits a dict without 'sensor', .*has: none\)"),
        ([7, 1], r"emits \[7, 1\], which is no dict on key sensor=7"),
    ],
)
def test_emitted_dict_without_a_column_of_the_output_is_refused(wrong: Any, reason: str) -> None:
    right = {"sensor": 8, "times": None, "more": "is left out"}
    operator, batch = Emitting({7: [right, wrong], 8: [right]}), pa.record_batch({"sensor": [7, 8]})
    operator.prepare({"readings": batch.schema}, ("sensor",))
    assert operator.state is not None
    rows = Rows.of(batch, "readings", ("sensor",))
    with pytest.raises(BadTuple, match=f"^Emitting {reason}"):
        operator.accept(rows, new_state(operator.state))
    state = new_state(operator.state)
    emitted = operator.accept(rows, state, dead_letter=True)
    assert isinstance(emitted, pa.RecordBatch)
    assert emitted.to_pylist() == [{"sensor": 8, "times": None}]  # nothing of the tuple that was set aside
    assert [aside.batch.to_pylist() for aside in operator.set_aside] == [[{"sensor": 7}]]
    assert state.snapshot().to_pylist() == [{"sensor": 8, "seen": 1}]


class LateFirst(Operator):
    """Leaves out late tuples before it looks at the values of the others."""

    drops_late_rows = True

    def process(self, rows: Rows, state: Any) -> None:
        kept = self.leave_out_late(rows, np.flatnonzero(rows.column("at").to_numpy() >= 10))
        bad = np.flatnonzero((rows.column("at").to_numpy() >= 10) & (rows.column("celsius").to_numpy() < -273))
        if len(bad):
            raise BadTuple(bad, "colder than cold")
        assert len(kept)


def test_tuples_that_come_with_a_bad_one_are_late_once() -> None:
    operator, batch = LateFirst(), pa.record_batch({"at": [1, 10, 11, 2], "celsius": [20, -300, 20, 20]})
    operator.late_schema = batch.schema
    for _ in range(2):
        operator.accept(Rows.of(batch, "readings"), None, dead_letter=True)
    assert [rows["at"].to_pylist() for rows in operator.late] == [[1, 2], [1, 2]]
    assert operator.late_rows == 4
    assert [aside.batch["at"].to_pylist() for aside in operator.set_aside] == [[10], [10]]
