"""map and filter: SQL expressions on each tuple, no state."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from streamtopology.jobs.columnar import expressions
from streamtopology.jobs.operators.base import Operator, Output, Rows
from streamtopology.jobs.operators.behind import Behind
from streamtopology.jobs.operators.options import OptionError, expressions_of

# A column as it is, or under another name.
_COLUMN = re.compile(r"\s*(?P<name>\w+)(\s+AS\s+(?P<other>\w+))?\s*", re.IGNORECASE)


class _Expressions(Operator):
    """Applies `_select` and `_where` to the tuples of its one input."""

    _select: tuple[str, ...] = ()
    _where: str | None = None

    def prepare(self, inputs: Mapping[str, pa.Schema], key: tuple[str, ...]) -> pa.Schema | None:
        schemas = [expressions.output_schema(schema, self._select, self._where) for schema in inputs.values()]
        if any(not schema.equals(schemas[0]) for schema in schemas):
            raise OptionError(f"the inputs {', '.join(inputs)} give different columns; give each a map of its own")
        self.output = schemas[0]
        return self.output

    def process(self, rows: Rows, state: Any) -> Output:
        return expressions.project(rows.batch, self._select, self._where)


class Map(_Expressions):
    """`select`: SQL expressions that make the output's columns; `where`: the condition for tuples to be emitted."""

    def __init__(self, select: list[str], where: str | None = None, **common: Any) -> None:
        super().__init__(**common)
        self._select, self._where = expressions_of(select, "select"), where

    @classmethod
    def reads_mentioned_columns(cls, options: Mapping[str, Any]) -> bool:
        return True

    @classmethod
    def behind(cls, options: Mapping[str, Any], given: Behind, own: float) -> Behind:
        """Of what is computed nothing is known but of what."""
        plain = filter(None, map(_COLUMN.fullmatch, expressions_of(options["select"], "select")))
        return given.renamed({match["other"] or match["name"]: match["name"] for match in plain})


class Filter(_Expressions):
    """`where`: the SQL condition for tuples to be emitted; false and NULL leave them out."""

    def __init__(self, where: str, **common: Any) -> None:
        super().__init__(**common)
        self._where = where
