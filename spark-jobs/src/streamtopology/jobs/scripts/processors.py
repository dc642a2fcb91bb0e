"""transformWithState of a script as an operator: the object that the script gave to Spark, taken out of the plan."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from streamtopology.jobs.operators.processors.group_state import GroupStateProcessor, time_mode_of
from streamtopology.jobs.scripts import catalyst
from streamtopology.jobs.scripts.catalyst import Node
from streamtopology.jobs.scripts.parts import NotCut, Part, RowsBelow, Step, Watermarked, watermark_below

_RUN = "streamtopology.jobs.operators.processors.operator:PickledProcessor"


def part_of(node: Node, spark: SparkSession) -> Part:
    """The part that a node `TransformWithStateInPySpark` becomes. Raises NotCut."""
    if node.hasInitialState():
        raise NotCut("transformWithState has an initialState, which is not taken over yet")
    output = list(catalyst.elements(node.child().output()))
    rows = _Rows.below(node.child(), output[: node.groupingAttributesLen()], output[node.groupingAttributesLen() :], spark)
    processor = _function(node, spark).__self__._stateful_processor
    mode = node.timeMode().toString().replace("NoTime", "None")
    form = "pandas" if "pandas" in node.userFacingDataType().toString() else "rows"
    return _part(node, spark, type(processor).__name__, processor, rows, mode, form)


def part_of_groups(node: Node, spark: SparkSession) -> Part:
    """The part that a node `FlatMapGroupsInPandasWithState` becomes: applyInPandasWithState. Raises NotCut."""
    columns = catalyst.children(node.functionExpr())
    rows = _Rows.below(node.child(), list(catalyst.elements(node.groupingAttributes())), columns, spark)
    function, timeout = _function(node, spark), node.timeout().toString().replace("$", "")
    state = _ddl(catalyst.fields_of(node.stateType()))
    names = [column.name() for column in rows.columns], [column.name() for column in catalyst.elements(node.output())]
    processor = GroupStateProcessor(function, state, *names, timeout, rows.watermark is not None)
    return _part(node, spark, function.__name__, processor, rows, time_mode_of(timeout), "pandas")


@dataclass(frozen=True)
class _Rows:
    """The rows below a node that groups them: its key, their columns, and their watermark."""

    plan: Node
    key: list[Node]
    columns: list[Node]
    watermark: Watermarked | None

    @staticmethod
    def below(plan: Node, key: list[Node], columns: list[Node], spark: SparkSession) -> _Rows:
        return _Rows(plan, key, columns, watermark_below(plan, columns, spark))


def _part(node: Node, spark: SparkSession, name: str, processor: Any, rows: _Rows, time_mode: str, form: str) -> Part:
    options: dict[str, Any] = {
        "output": _ddl(catalyst.frame_of(spark, node).schema),
        "timeMode": time_mode,
        "form": form,
        "zone": spark.conf.get("spark.sql.session.timeZone"),
        "pickled": base64.b64encode(cloudpickle.dumps(processor)).decode(),
    }
    if time_mode == "EventTime":
        if rows.watermark is None:
            raise NotCut("its timers of event time need withWatermark before groupBy, and its column among the rows")
        options["time"] = rows.watermark.column

    def stand_in(frame: DataFrame) -> Node:
        plan = catalyst.plan_of(frame)
        pairs = zip(catalyst.elements(plan.output()), catalyst.elements(node.output()), strict=True)
        return catalyst.project(spark, [catalyst.named(spark, given, like.name(), like) for given, like in pairs], plan)

    names = tuple(_column_of(each, rows.columns) for each in rows.key)
    below = RowsBelow(catalyst.with_columns(spark, rows.plan, rows.columns), rows.watermark)
    return Part((Step(name, _RUN, options, names),), (below,), stand_in)


def _column_of(key: Node, columns: list[Node]) -> str:
    for column in columns:
        if catalyst.same(column, key):
            return column.name()
    raise NotCut(f"its rows are grouped by {key.name()}, which is none of their columns; give them one by withColumn first")


def _function(node: Node, spark: SparkSession) -> Any:
    try:
        return catalyst.python_function(spark, node.functionExpr())
    except Exception as error:
        raise NotCut(
            f"its Python code cannot be taken over ({type(error).__name__}: {error}): it holds a broadcast variable, or more "
            "than Spark sends with a task"
        ) from error


def _ddl(schema: StructType) -> str:
    return ", ".join(f"`{field.name.replace('`', '``')}` {field.dataType.simpleString()}" for field in schema.fields)
