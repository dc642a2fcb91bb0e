"""transformWithState of a script as an operator: the object that the script gave to Spark, taken out of the plan."""

from __future__ import annotations

import base64
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from streamtopology.jobs.scripts import catalyst
from streamtopology.jobs.scripts.catalyst import Node
from streamtopology.jobs.scripts.parts import NotCut, Part, watermark_below

_RUN = "streamtopology.jobs.operators.processors.operator:PickledProcessor"


def part_of(node: Node, spark: SparkSession) -> Part:
    """The part that a node `TransformWithStateInPySpark` becomes. Raises NotCut."""
    if node.hasInitialState():
        raise NotCut("transformWithState has an initialState, which is not taken over yet")
    child = node.child()
    output = list(catalyst.elements(child.output()))
    key, columns = output[: node.groupingAttributesLen()], output[node.groupingAttributesLen() :]
    processor = _processor(node, spark)
    watermark = watermark_below(child, columns)
    options: dict[str, Any] = {
        "output": _ddl(catalyst.frame_of(spark, node)),
        "timeMode": node.timeMode().toString().replace("NoTime", "None"),
        "form": "pandas" if "pandas" in node.userFacingDataType().toString() else "rows",
        "pickled": base64.b64encode(cloudpickle.dumps(processor)).decode(),
    }
    if options["timeMode"] == "EventTime":
        if watermark is None:
            raise NotCut("timeMode EventTime needs withWatermark before groupBy, and its column among the rows")
        options["time"] = watermark.column

    def stand_in(rows: DataFrame) -> Node:
        plan = catalyst.plan_of(rows)
        pairs = zip(catalyst.elements(plan.output()), catalyst.elements(node.output()), strict=True)
        return catalyst.project(spark, [catalyst.named(spark, given, like.name(), like) for given, like in pairs], plan)

    names = tuple(next(one.name() for one in columns if catalyst.same(one, each)) for each in key)
    below = catalyst.with_columns(spark, child, columns)
    return Part(type(processor).__name__, _RUN, options, names, below, watermark, stand_in)


def _processor(node: Node, spark: SparkSession) -> Any:
    try:
        function = catalyst.python_function(spark, node.functionExpr())
    except Exception as error:
        raise NotCut(
            f"its StatefulProcessor cannot be taken over ({type(error).__name__}: {error}): it holds a broadcast variable, or "
            "more than Spark sends with a task"
        ) from error
    return function.__self__._stateful_processor


def _ddl(frame: DataFrame) -> str:
    return ", ".join(f"`{field.name.replace('`', '``')}` {field.dataType.simpleString()}" for field in frame.schema.fields)
