"""The rows that a simulated operator gets: drawn from a description, or read from a trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from streamtopology.contract.errors import InvalidInput
from streamtopology.jobs.columnar import expressions
from streamtopology.jobs.columnar.expressions import ExpressionError
from streamtopology.jobs.columnar.keys import KeyColumns
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.operators.columns import numbers
from streamtopology.jobs.operators.options import seconds_of
from streamtopology.lab.simulate.site import Batch
from streamtopology.lab.simulate.streams import draw, zipf_probabilities
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.topology import OperatorSpec, Source

KEYS, ZIPF, ROWS, BATCHES = 100_000, 1.2, 200_000, 30
# The cost of a row on one core where neither the command nor the manifest has one.
COST_SECONDS = 10e-6

SEED = 1
_COST = "tuple_cost_us"

# Operator -> its value; "" is for all that are not named.
PerOperator = Mapping[str, float]


@dataclass(frozen=True)
class Stream:
    """The rows as the command describes them. With a `trace`, keys are read from it and `rows` 0 divides it into `batches`."""

    keys: PerOperator = field(default_factory=dict)
    zipf: PerOperator = field(default_factory=dict)
    cost_seconds: PerOperator = field(default_factory=dict)
    rows: int = 0
    batches: int = BATCHES
    trace: Path | None = None


class NotInTrace(InvalidInput):
    """The trace lacks the columns of an operator's key; the message says which, and what it has."""


@dataclass(frozen=True)
class Arrivals:
    """All rows of one operator, in batches: hashes uint64[n], seconds on one core float64[n] or one for all."""

    hashes: np.ndarray
    seconds: np.ndarray | float
    rows: int
    notes: tuple[str, ...] = ()

    @property
    def batches(self) -> int:
        return max(1, len(self.hashes) // self.rows)

    @property
    def seconds_per_row(self) -> float:
        return float(np.mean(self.seconds))

    def __iter__(self) -> Iterator[Batch]:
        for start in range(0, self.batches * self.rows, self.rows):
            part = slice(start, start + self.rows)
            yield Batch.of(self.hashes[part], self.seconds[part] if isinstance(self.seconds, np.ndarray) else self.seconds)


def arrivals(operator: OperatorSpec, stream: Stream, sources: Sequence[Source] = ()) -> Arrivals:
    """The rows of `operator`. A key that a trace lacks is made by the select of the operator's own source among `sources`.

    Raises NotInTrace, or WrongUse for a trace that cannot be read.
    """
    if stream.trace is None:
        return _drawn(operator, stream)
    trace = _read(stream.trace, operator, next((each for each in sources if each.name == operator.inputs[0].source), None))
    key = operator.key_of(operator.inputs[0].alias)
    hashes = KeyColumns.from_arrow(trace, key).hashes
    seconds, notes = _seconds(operator, stream, trace)
    return Arrivals(hashes, seconds, min(stream.rows or -(-len(hashes) // stream.batches), len(hashes)), notes)


def _drawn(operator: OperatorSpec, stream: Stream) -> Arrivals:
    """Keys 0, 1, ... with Zipf's shares, independent of each other: the same for every policy and every time."""
    keys = int(_value(stream.keys, operator, KEYS))
    share = zipf_probabilities(keys, _value(stream.zipf, operator, ZIPF))
    rows = stream.rows or ROWS
    items = draw(share, rows * stream.batches, np.random.default_rng(SEED))
    seconds, notes = _seconds(operator, stream, pa.record_batch({"nothing": [0]}))
    return Arrivals(hash_int64(items), seconds, rows, notes)


def _value(given: PerOperator, operator: OperatorSpec, default: float) -> float:
    return given.get(operator.name, given.get("", default))


def _seconds(operator: OperatorSpec, stream: Stream, rows: pa.RecordBatch) -> tuple[np.ndarray | float, tuple[str, ...]]:
    """Seconds on one core: the command's, else what the manifest declares, else the default; and notes for the user."""
    given = _value(stream.cost_seconds, operator, 0.0)
    if given:
        return given, ()
    declared = seconds_of(operator.options.get("costPerTuple", 0), "costPerTuple")
    expression = operator.options.get("cost") if operator.run == "enrich" else None
    notes: tuple[str, ...] = ()
    if expression is not None:
        try:
            of_tuple = _micros(rows, str(expression)) * 1e-6 + declared
            return (of_tuple if len(of_tuple) > 1 else float(of_tuple[0])), ()
        except ExpressionError:
            notes = (f"what a row costs depends on it ({expression}); only a trace with those columns shows that",)
    if declared:
        return declared, notes
    return COST_SECONDS, (*notes, "the manifest declares no cost per row: 10 us are taken, or say it with --cost")


def _micros(rows: pa.RecordBatch, expression: str) -> np.ndarray:
    """float64[n]: what `enrich` would burn for each row; NULL, NaN and negative costs are 0."""
    column = expressions.project(rows, [f"CAST({expression} AS DOUBLE) AS {_COST}"]).column(0)
    values, valid = numbers(column)
    return np.maximum(values if valid is None else np.where(valid, values, 0.0), 0.0)


def _read(path: Path, operator: OperatorSpec, source: Source | None) -> pa.RecordBatch:
    """The trace's rows: the columns of the key, or all where a cost may depend on them."""
    try:
        trace = ds.dataset(path, format="parquet")
    except (OSError, pa.ArrowInvalid) as error:
        raise WrongUse(f"{path} is no trace: a parquet file, or a folder of them ({error})") from error
    key = operator.key_of(operator.inputs[0].alias)
    missing = [column for column in key if column not in trace.schema.names]
    selected = _selected(trace.schema, source) if source is not None and missing else None
    if not key or (missing and (selected is None or not set(key) <= set(selected.names))):
        what = f"its key {missing[0]!r} is no column of the trace" if missing else "it has no key to look for in the trace"
        raise NotInTrace(f"{operator.name}: {what}, which has {', '.join(trace.schema.names)}")
    columns = None if operator.run == "enrich" or missing else list(key)
    batches = trace.to_table(columns=columns).combine_chunks().to_batches()
    if source is not None and missing:
        batches = [expressions.project(batch, source.select, source.where) for batch in batches]
    if not any(batch.num_rows for batch in batches):
        raise WrongUse(f"{path} has no rows")
    return pa.concat_batches(batches) if len(batches) > 1 else batches[0]


def _selected(schema: pa.Schema, source: Source) -> pa.Schema | None:
    """The columns of the source's select over a trace of `schema`; None if the trace is not one of its rows."""
    try:
        return expressions.output_schema(schema, source.select, source.where)
    except ExpressionError:
        return None
