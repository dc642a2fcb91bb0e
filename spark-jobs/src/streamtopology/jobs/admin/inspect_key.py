"""`streamtopology state get`: a key's state and owner, read from the checkpoint; the topology may run or not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamtopology.jobs.checkpoint import Checkpoint, CommitRecord
from streamtopology.jobs.checkpoint.location import checkpoint_uri
from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.columnar.python_values import python_rows
from streamtopology.jobs.connectors.sources.text.text_values import integers
from streamtopology.jobs.errors import TopologyFailed, WrongUse
from streamtopology.jobs.operators.partials import take_in
from streamtopology.jobs.plan.as_of import keyed_nodes, plan_as_of
from streamtopology.jobs.plan.dag import Node
from streamtopology.jobs.state import KeyedState, KeyedStateSchema
from streamtopology.topology import load

_LONGEST_TEXT = 200


def describe_key(manifest: Path, operator: str | None, key: Sequence[str], work_dir: Path) -> str:
    """The state of `key` (one text per key column) as of the newest commit, with the instance that owns it."""
    topology = load(manifest)
    checkpoint = Checkpoint.attach(checkpoint_uri(topology, work_dir))
    commit = checkpoint.last_commit()
    if commit is None:
        raise TopologyFailed(f"topology {topology.name!r} has not committed a batch yet: there is no state to show")
    plan = plan_as_of(checkpoint, commit)
    node = _node(keyed_nodes(plan), operator)
    wanted = _key_batch(node, key)
    table = plan.epoch.routes[node.name].table
    keys = KeyColumns.from_arrow(wanted, node.key)
    owner = int(table.lookup(keys.hashes)[0]) if table is not None else None
    rows = [row for found in _found(checkpoint, commit, node, wanted, owner) for row in python_rows(found)]
    where = "any instance" if owner is None else f"instance {owner}"
    head = f"operator {node.operator!r}, key {', '.join(key)}: {where}, epoch {commit.epoch}, batch {commit.batch}"
    if not rows:
        return f"{head}\n  no state"
    return "\n".join([head, *(f"  {name}: {_text(value)}" for row in rows for name, value in row.items())])


def _node(keyed: Sequence[Node], operator: str | None) -> Node:
    named = [node for node in keyed if operator in (None, node.operator)]
    if len(named) != 1:
        names = ", ".join(node.operator for node in keyed)
        raise WrongUse(f"name the operator with --operator: operators with keyed state are {names or 'none'}")
    return named[0]


def _key_batch(node: Node, key: Sequence[str]) -> pa.RecordBatch:
    """One row of the key's columns, the texts read as their types. Raises WrongUse."""
    if len(key) != len(node.key):
        raise WrongUse(f"operator {node.operator!r} has the key {', '.join(node.key)}: give {len(node.key)} values")
    schema = next(iter(node.inputs.values()))
    arrays = [_value(node, name, schema.field(name).type, text) for name, text in zip(node.key, key, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(node.key))


def _value(node: Node, column: str, kind: pa.DataType, text: str) -> pa.Array:
    try:
        texts = pa.array([None if text == "NULL" else text], pa.string())
        return integers(texts, kind) if pa.types.is_integer(kind) else texts.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise WrongUse(
            f"operator {node.operator!r}: key column {column} is of type {kind}, and {text!r} is none; give such a value, or "
            "NULL"
        ) from error


def _found(
    checkpoint: Checkpoint, commit: CommitRecord, node: Node, wanted: pa.RecordBatch, owner: int | None
) -> list[pa.RecordBatch]:
    """The rows that the operator shows of the wanted key, of each instance that has any; parts on their way are the owner's."""
    operator, found = node.make(), list[pa.RecordBatch]()
    assert isinstance(node.state, KeyedStateSchema)
    one = KeyColumns.from_arrow(wanted, wanted.schema.names).hashes[0]
    held, partials = commit.state.get(node.name, {}), commit.partials.get(node.name, ())
    for instance in sorted({*held, owner} if owner is not None and partials else held):
        state = checkpoint.load_state(held[instance], node.state) if instance in held else KeyedState(node.state)
        assert isinstance(state, KeyedState)
        if instance == owner:
            take_in(partials, operator, state, lambda hashes: hashes == one)
        slots = state.live()
        keys = pa.RecordBatch.from_arrays(state.keys(slots), names=node.state.key_types.names)
        mine = slots[KeyColumns.from_arrow(keys, wanted.schema.names).hashes == one] if len(slots) else np.zeros(0, np.int64)
        if len(mine):
            found.append(operator.shown(state, mine))
    return found


def _text(value: Any) -> str:
    """A value as people write it: texts as they are, times without Python's names."""
    if isinstance(value, list):
        text = ", ".join(_text(each) for each in value)
    elif isinstance(value, bytes):
        text = value.decode(errors="backslashreplace")
    elif isinstance(value, datetime):
        text = value.isoformat(" ")
    else:
        text = "NULL" if value is None else str(value)
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}... ({len(text)} characters)"
