"""transformWithState of a script as an operator: the object that the script gave to Spark, taken out of the plan."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from streamtopology.jobs.operators.processors.group_state import GroupStateProcessor, time_mode_of
from streamtopology.jobs.scripts import catalyst
from streamtopology.jobs.scripts.catalyst import Node
from streamtopology.jobs.scripts.parts import Chain, NotCut, Part, RowsBelow, Step, is_followed, watermark_below

_RUN = "streamtopology.jobs.operators.processors.operator:PickledProcessor"
_INITIAL = "initial"
# Each executor unpickles it once a batch, and a manifest has to hold it.
_MOST_CODE = 1_000_000


def part_of(node: Node, spark: SparkSession, chain: Chain | None = None) -> Part:
    """The part that a node `TransformWithStateInPySpark` becomes, behind the operators of a chain, if there is one.

    Raises NotCut.
    """
    rows, initial = _Rows.grouped(node.child(), node.groupingAttributesLen(), spark, chain), None
    if node.hasInitialState():
        if chain is not None:
            raise NotCut("transformWithState with an initialState stands on dropDuplicates, which is not taken over yet")
        initial = _Rows.grouped(node.initialState(), node.initGroupingAttrsLen(), spark)
    processor = _function(node, spark).__self__._stateful_processor
    mode = node.timeMode().toString().replace("NoTime", "None")
    form = "pandas" if "pandas" in node.userFacingDataType().toString() else "rows"
    return _part(node, spark, type(processor).__name__, processor, rows, mode, form, initial)


def part_of_groups(node: Node, spark: SparkSession, chain: Chain | None = None) -> Part:
    """The part that a node `FlatMapGroupsInPandasWithState` becomes: applyInPandasWithState. As `part_of`."""
    columns = catalyst.children(node.functionExpr())
    rows = _Rows.of(node.child(), list(catalyst.elements(node.groupingAttributes())), columns, spark, chain)
    function, timeout = _function(node, spark), node.timeout().toString().replace("$", "")
    state = _ddl(catalyst.fields_of(node.stateType()))
    names = [column.name() for column in rows.columns], [column.name() for column in catalyst.elements(node.output())]
    processor = GroupStateProcessor(function, state, *names, timeout, rows.time is not None)
    return _part(node, spark, function.__name__, processor, rows, time_mode_of(timeout), "pandas")


@dataclass(frozen=True)
class _Rows:
    """The rows of a node that groups them: its key, their columns, and the one of these that their watermark follows.

    below: the source of the operators behind which they come.
    """

    key: list[Node]
    columns: list[Node]
    time: str | None
    below: RowsBelow
    chain: Chain | None

    @staticmethod
    def grouped(plan: Node, key_columns: int, spark: SparkSession, chain: Chain | None = None) -> _Rows:
        """Of a plan whose first columns are the key, and the others the rows'."""
        output = list(catalyst.elements(plan.output()))
        return _Rows.of(plan, output[:key_columns], output[key_columns:], spark, chain)

    @staticmethod
    def of(plan: Node, key: list[Node], columns: list[Node], spark: SparkSession, chain: Chain | None) -> _Rows:
        if chain is None:
            watermark = watermark_below(plan, columns, spark)
            below = RowsBelow(catalyst.with_columns(spark, plan, columns), watermark)
            return _Rows(key, columns, None if watermark is None else watermark.column, below, None)
        time = next((column.name() for column in columns if chain.watermark is not None and is_followed(column)), None)
        made = [catalyst.column(column, spark) for column in columns]
        below = RowsBelow(catalyst.frame_of(spark, chain.plan).select(*made, *chain.columns), chain.watermark)
        return _Rows(key, columns, time, below, chain)

    @property
    def key_names(self) -> tuple[str, ...]:
        """Raises NotCut if the key is none of their columns."""
        return tuple(_column_of(each, self.columns) for each in self.key)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The operators before the one that groups them."""
        if self.chain is None:
            return ()
        names = [column.name().replace('"', '""') for column in self.columns]
        return (*self.chain.steps, Step("rows", "map", {"select": [f'"{name}"' for name in names]}))


def _part(
    node: Node,
    spark: SparkSession,
    name: str,
    processor: Any,
    rows: _Rows,
    time_mode: str,
    form: str,
    initial: _Rows | None = None,
) -> Part:
    options: dict[str, Any] = {
        "output": _ddl(catalyst.frame_of(spark, node).schema),
        "timeMode": time_mode,
        "form": form,
        "zone": spark.conf.get("spark.sql.session.timeZone"),
        "pickled": _pickled(processor),
    }
    if time_mode == "EventTime":
        if rows.time is None:
            raise NotCut("its timers of event time need withWatermark before groupBy, and its column among the rows")
        options["time"] = rows.time
    inputs = [rows.below]
    if initial is not None:
        options["initialState"] = _INITIAL
        inputs.append(replace(initial.below, name=_INITIAL, key=initial.key_names))

    def stand_in(frame: DataFrame) -> Node:
        plan = catalyst.plan_of(frame)
        pairs = zip(catalyst.elements(plan.output()), catalyst.elements(node.output()), strict=True)
        return catalyst.project(spark, [catalyst.named(spark, given, like.name(), like) for given, like in pairs], plan)

    return Part((*rows.steps, Step(name, _RUN, options, rows.key_names)), tuple(inputs), stand_in)


def _column_of(key: Node, columns: list[Node]) -> str:
    for column in columns:
        if catalyst.same(column, key):
            return column.name()
    raise NotCut(f"its rows are grouped by {key.name()}, which is none of their columns; give them one by withColumn first")


def _function(node: Node, spark: SparkSession) -> Any:
    try:
        return catalyst.python_function(spark, node.functionExpr())
    except Exception as error:
        raise NotCut(f"its Python code cannot be unpickled in the driver ({type(error).__name__}: {error})") from error


def _pickled(processor: Any) -> str:
    """As text, what its broadcast variables hold with it."""
    pickled = cloudpickle.dumps(processor)
    if len(pickled) > _MOST_CODE:
        found = f"{len(pickled) / 1e6:.1f} MB"
        raise NotCut(f"its Python code and what it holds, such as broadcast variables, are {found}; 1 MB is taken over")
    return base64.b64encode(pickled).decode()


def _ddl(schema: StructType) -> str:
    return ", ".join(f"`{field.name.replace('`', '``')}` {field.dataType.simpleString()}" for field in schema.fields)
