"""enrich: adds columns to each tuple, at a cost in CPU that may depend on the tuple. No state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from streamtopology.jobs.columnar import expressions
from streamtopology.jobs.lazy import LazyModule
from streamtopology.jobs.operators.base import MOST_COST_SECONDS, BadTuple, Operator, Output, Rows
from streamtopology.jobs.operators.columns import numbers
from streamtopology.jobs.operators.lookup import Lookup
from streamtopology.jobs.operators.options import OptionError

if TYPE_CHECKING:
    from streamtopology.jobs.operators import declared_cost
else:
    declared_cost = LazyModule("streamtopology.jobs.operators.declared_cost")

_COST = "tuple_cost_us"


class Enrich(Operator):
    """`add`: new column -> SQL expression. `lookup`: a small table; see `Lookup`.

    `cost`: a SQL expression giving microseconds of CPU for a tuple, burnt for real, on top of `costPerTuple`; NULL, NaN
    and negative costs are 0.
    """

    def __init__(
        self,
        add: Mapping[str, str] | None = None,
        lookup: Mapping[str, Any] | None = None,
        cost: str | None = None,
        **common: Any,
    ) -> None:
        super().__init__(**common)
        if add is not None and not isinstance(add, Mapping):
            raise OptionError(
                f"option 'add' is {add!r}; allowed: columns with SQL expressions, {{km: miles * 1.609}}", about="add"
            )
        if not (add or lookup or cost):
            raise OptionError("enrich has nothing to do; give at least one of the options add, lookup, cost")
        self.add = dict(add or {})
        self.lookup_options = lookup
        self.lookup: Lookup | None = None
        self.cost = cost
        self._cost_of_last: tuple[Rows, np.ndarray] | None = None

    def prepare(self, inputs: Mapping[str, pa.Schema], key: tuple[str, ...]) -> pa.Schema | None:
        if self.lookup_options is not None:
            self.lookup = Lookup.from_options(self.lookup_options, self.base_dir)
            for alias, schema in inputs.items():
                self.lookup = self.lookup.on_types(schema, alias)
        schemas = [self._output_of(schema, alias) for alias, schema in inputs.items()]
        if any(not schema.equals(schemas[0]) for schema in schemas):
            raise OptionError(f"the inputs {', '.join(inputs)} give different columns; give each an enrich of its own")
        self.output = schemas[0]
        return self.output

    def over(self, table: pa.Table) -> Lookup:
        """The lookup in another version of its table."""
        assert self.lookup is not None, "a table is kept for operators that look up in one"
        return self.lookup.over(table)

    def process(self, rows: Rows, state: Any) -> Output:
        if self.cost is not None:
            micros = self._micros(rows)
            endless = np.flatnonzero(micros > MOST_COST_SECONDS * 1e6)
            if len(endless):
                raise BadTuple(endless, f"its cost of {micros[endless[0]]:g} microseconds is more than an hour")
            self._cost_of_last = (rows, micros)
            declared_cost.burn_each(np.rint(self._cost_of_last[1] * (self.iterations_per_second / 1e6)).astype(np.int64))
        batch = rows.batch
        if self.lookup is not None:
            batch = self.lookup.join(batch)
        return expressions.project(batch, self._select) if self.add else batch

    def tuple_weights(self, rows: Rows) -> np.ndarray | None:
        """Microseconds declared for each tuple, both costs together."""
        if self.cost is None:
            return None
        last = self._cost_of_last
        micros = last[1] if last is not None and last[0] is rows else self._micros(rows)
        return micros + self.cost_per_tuple * 1e6

    @property
    def _select(self) -> list[str]:
        return ["*", *(f"({expression}\n) AS {expressions.quoted(name)}" for name, expression in self.add.items())]

    def _output_of(self, schema: pa.Schema, alias: str) -> pa.Schema:
        if self.cost is not None:
            kind = expressions.output_schema(schema, [f"({self.cost}\n) AS {_COST}"]).field(_COST).type
            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
                raise OptionError(f"option 'cost' gives {kind}; allowed: SQL that gives microseconds as a number", about="cost")
        if self.lookup is not None:
            schema = self.lookup.output_schema(schema, alias)
        try:
            return expressions.output_schema(schema, self._select) if self.add else schema
        except expressions.ExpressionError as error:
            if self.lookup is None or not self.lookup.hint:
                raise
            raise expressions.ExpressionError(f"{error}{self.lookup.hint}", error.about) from error

    def _micros(self, rows: Rows) -> np.ndarray:
        """float64[n]: the tuple's own cost."""
        column = expressions.project(rows.batch, [f"CAST(({self.cost}\n) AS DOUBLE) AS {_COST}"]).column(0)
        micros, _ = numbers(column)
        return np.maximum(micros, 0.0)
