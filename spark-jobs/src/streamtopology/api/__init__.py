"""All that an operator of your own imports; nothing else of the project is an interface to rely on.

>>> import numpy as np
>>> from streamtopology.api import Field, Operator
>>> class Count(Operator):
...     fields = (Field("count", np.int64, merge="sum"),)
...     def process(self, rows, state):
...         np.add.at(state.column("count"), state.slots(rows.keys), 1)

Write: `Operator`, `TupleOperator`. State: `Field`, `KeyedStateSchema`, `RowStateSchema`. Given to methods: `Rows`, `BatchInfo`,
`KeyColumns`, `KeyedState`, `RowState`, `TupleState`. Raise: `OptionError`, `BadTuple`. Read options: `require_column`,
`require_number`, `key_schema`, `one_of`, `expressions_of`, `seconds_of`. Try an operator without Spark: `new_state`.

The names are re-exported. Their classes stay in `streamtopology.jobs`, because built-in operators and the runtime use them
together with kernels that users never see: definitions here would make every room of the jobs depend on this package, and this
package on the rooms. So the rooms may move, and these names stay.
"""

from streamtopology.jobs.columnar.keys import KeyColumns, KeyTypeError
from streamtopology.jobs.operators.base import BadTuple, BatchInfo, Operator, Output, Rows, SetAside
from streamtopology.jobs.operators.columns import require_number
from streamtopology.jobs.operators.options import (
    OptionError,
    expressions_of,
    key_schema,
    one_of,
    require_column,
    seconds_of,
)
from streamtopology.jobs.operators.tuple_operator import TupleOperator, TupleState
from streamtopology.jobs.state import (
    Field,
    KeyedState,
    KeyedStateSchema,
    RowState,
    RowStateSchema,
    StateError,
    new_state,
)

__all__ = [
    "BadTuple",
    "BatchInfo",
    "Field",
    "KeyColumns",
    "KeyTypeError",
    "KeyedState",
    "KeyedStateSchema",
    "Operator",
    "OptionError",
    "Output",
    "RowState",
    "RowStateSchema",
    "Rows",
    "SetAside",
    "StateError",
    "TupleOperator",
    "TupleState",
    "expressions_of",
    "key_schema",
    "new_state",
    "one_of",
    "require_column",
    "require_number",
    "seconds_of",
]
