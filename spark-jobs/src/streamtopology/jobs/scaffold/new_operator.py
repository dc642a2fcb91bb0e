"""`streamtopology new-operator`: a class with its test, both of which pass as they are written."""

from __future__ import annotations

import importlib.util
import keyword
import re
from pathlib import Path
from string import Template

from streamtopology.jobs.errors import WrongUse

_CLASS = Template('''\
"""The operator $name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.api import Field, OptionError, TupleOperator, key_schema, require_number


class $name(TupleOperator):
    """Let a tuple through if its `column` is above `limit`, with the number of such tuples of its key so far."""

    fields = (Field("above", np.dtype(np.int64)),)  # kept for each key; it moves with the key when that is re-routed

    def __init__(self, column: str, limit: float, **common: Any) -> None:  # the manifest's `with`
        super().__init__(**common)
        if limit < 0:
            raise OptionError(f"option 'limit' is {limit!r}; allowed: a number of 0 or more")
        self.column, self.limit = column, limit

    def prepare(self, inputs: Mapping[str, pa.Schema], key: tuple[str, ...]) -> pa.Schema | None:
        super().prepare(inputs, key)
        (name, schema), *_ = inputs.items()
        kind = require_number(inputs, self.column, name)  # else an OptionError: before anything starts
        self.output = pa.schema([*key_schema(inputs, key), (self.column, kind), ("above", pa.int64())])
        return self.output

    def process_tuple(self, row: dict[str, Any], state: Any) -> dict[str, Any] | None:
        value = row[self.column]  # None for NULL; NaN is above no limit
        if value is not None and value > self.limit:
            state["above"] += 1
            return {**{name: row[name] for name in self.output.names[:-1]}, "above": state["above"]}
''')

_TEST = Template('''\
"""$name, without Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest
from $module import $name

from streamtopology.api import BatchInfo, OptionError, Rows, new_state

READINGS = pa.record_batch({"sensor": ["a", "b", "a", "a"], "celsius": [31.0, 12.0, 33.5, None]})


def results(operator: $name, *batches: pa.RecordBatch) -> list[dict]:
    """All that `operator` emits for these batches, of which each continues with the state of the former."""
    operator.prepare({"readings": batches[0].schema}, key=("sensor",))
    state, emitted = new_state(operator.state), []
    for number, batch in enumerate(batches):
        operator.begin(BatchInfo(number=number))
        for rows in (
            operator.accept(Rows.of(batch, "readings", key=("sensor",)), state),
            operator.finish(BatchInfo(number=number), state),
        ):
            emitted += [] if rows is None else rows.to_pylist()
    return emitted


def test_tuples_above_the_limit_pass_and_are_counted_by_key():
    assert results($name(column="celsius", limit=30), READINGS, READINGS) == [
        {"sensor": "a", "celsius": 31.0, "above": 1},
        {"sensor": "a", "celsius": 33.5, "above": 2},
        {"sensor": "a", "celsius": 31.0, "above": 3},
        {"sensor": "a", "celsius": 33.5, "above": 4},
    ]


def test_wrong_options_are_refused():
    with pytest.raises(OptionError, match="limit"):
        $name(column="celsius", limit=-1)
    with pytest.raises(OptionError, match="kelvin"):
        results($name(column="kelvin", limit=30), READINGS)
''')


def new_operator(name: str, folder: Path) -> str:
    """Write the class `name` and its test into `folder`; returns the next steps. Raises WrongUse, and writes nothing then."""
    module = _module(name)
    files = {f"{module}.py": _CLASS, f"test_{module}.py": _TEST}
    for file in files:
        if (folder / file).exists():
            raise WrongUse(f"{folder / file} exists and is not overwritten; choose another name or --to another folder")
    _refuse_hiding(module)
    if not folder.is_dir():
        raise WrongUse(f"no folder {folder}; create it first")
    for file, template in files.items():
        (folder / file).write_text(template.substitute(name=name, module=module), encoding="utf-8")
    return (
        f"wrote {folder / f'{module}.py'} and {folder / f'test_{module}.py'}; next:\n\n"
        f"  python -m pytest {folder / f'test_{module}.py'}\n\n"
        "and in a manifest in the same folder:\n\n"
        f"  - name: {module.replace('_', '-')}\n"
        "    inputs: [readings]\n"
        "    grouping: {key: sensor}\n"
        f"    run: {module}.py:{name}\n"
        "    with: {column: celsius, limit: 30}"
    )


def _module(name: str) -> str:
    """The module of class `name`. Raises WrongUse for a name that no class has."""
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", name) or keyword.iskeyword(name):
        words = re.findall(r"[A-Za-z0-9]+", name)
        better = "".join(word[:1].upper() + word[1:] for word in words).lstrip("0123456789")
        hint = f"; did you mean {better}?" if better and better != name and not keyword.iskeyword(better) else ""
        raise WrongUse(f"{name!r} is no name of a class: use letters and digits, a capital first, as in SessionLength{hint}")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _refuse_hiding(module: str) -> None:
    if importlib.util.find_spec(module) is not None or keyword.iskeyword(module):
        raise WrongUse(f"{module}.py would hide the Python module {module}; choose a longer name")
