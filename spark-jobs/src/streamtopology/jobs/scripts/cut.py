"""The cut of a streaming plan at its stateful node.

What is below the node stays a frame of Spark and becomes the topology's source. The node becomes an operator of ours. What
stands above it runs on the rows of each batch, when they are committed.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame

from streamtopology.contract.errors import StreamTopologyError
from streamtopology.jobs.scripts import catalyst
from streamtopology.jobs.scripts.catalyst import Node

_PROCESSOR = "TransformWithStateInPySpark"
_WATERMARK = "EventTimeWatermark"
# Nodes that keep state between batches, and what people call them.
_STATEFUL = {
    _PROCESSOR: "transformWithState",
    "TransformWithState": "transformWithState",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "FlatMapGroupsWithState": "flatMapGroupsWithState",
    "Aggregate": "an aggregate (groupBy().agg())",
    "Distinct": "distinct",
    "Deduplicate": "dropDuplicates",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "GlobalLimit": "limit",
    "UpdateEventTimeWatermarkColumn": "eventTimeColumnName",
}
# Nodes above the cut that do the same with each batch's rows as with the stream.
_ROW_BY_ROW = {
    "Project", "Filter", "SubqueryAlias", "View", "Generate", "MapInPandas", "MapInArrow", "Join", "Repartition",
    "RepartitionByExpression", "ResolvedHint",
}  # fmt: skip
# Nodes through which every row passes, so that the newest time is the same above and below.
_KEEPING = {"Project", "SubqueryAlias", "View", "Repartition", "RepartitionByExpression", _WATERMARK}


class NotCut(StreamTopologyError):
    """A query that cannot become a topology; the message says what of it stands in the way."""


@dataclass(frozen=True)
class Watermarked:
    """The column that the watermark follows, and how far behind it is, in seconds."""

    column: str
    delay_seconds: float


@dataclass(frozen=True)
class Cut:
    """A plan in its parts.

    name: of the operator. below: the rows that it reads. options: of a processor that was pickled. node, path: see
    `catalyst.above`.
    """

    name: str
    below: DataFrame
    key: tuple[str, ...]
    watermark: Watermarked | None
    options: dict[str, Any]
    node: Node
    path: tuple[tuple[Node, int], ...]

    def above(self, rows: DataFrame) -> DataFrame:
        """What the script does with the operator's rows, on those of one batch."""
        return catalyst.above(self.path, self.node, rows) if self.path else rows


def cut(frame: DataFrame) -> Cut:
    """Cut the plan of a streaming frame. Raises NotCut."""
    plan = catalyst.plan_of(frame)
    found = list(_stateful(plan))
    if not found:
        raise NotCut("it keeps no state")
    node, path = found[-1]
    if len(found) > 1:
        names = [_STATEFUL.get(catalyst.kind(each), "a join of two streams") for each, _ in found]
        raise NotCut(f"{names[0]} stands on {names[-1]}, and a topology of a script has one stateful operator")
    if catalyst.kind(node) != _PROCESSOR:
        raise NotCut(f"{_STATEFUL.get(catalyst.kind(node), 'a join of two streams')} is not taken over yet")
    for parent, _ in path:
        if catalyst.kind(parent) not in _ROW_BY_ROW:
            raise NotCut(f"{catalyst.kind(parent)} stands on its stateful operator, and would see one batch at a time")
    return _cut_processor(frame, node, tuple(path))


def _stateful(plan: Node) -> Iterator[tuple[Node, list[tuple[Node, int]]]]:
    """The nodes that keep state between batches, each with the path to it from the top, those above first."""
    if not plan.isStreaming():
        return
    below = catalyst.children(plan)
    if catalyst.kind(plan) in _STATEFUL or (catalyst.kind(plan) == "Join" and all(each.isStreaming() for each in below)):
        yield plan, []
    for place, child in enumerate(below):
        for node, path in _stateful(child):
            yield node, [(plan, place), *path]


def _cut_processor(frame: DataFrame, node: Node, path: tuple[tuple[Node, int], ...]) -> Cut:
    if node.hasInitialState():
        raise NotCut("transformWithState has an initialState, which is not taken over yet")
    spark, child = frame.sparkSession, node.child()
    output = list(catalyst.elements(child.output()))
    key, columns = output[: node.groupingAttributesLen()], output[node.groupingAttributesLen() :]
    processor = _processor(frame, node)
    watermark = _watermark(child, columns)
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
    below = catalyst.with_columns(spark, child, columns)
    names = tuple(next(one.name() for one in columns if catalyst.same(one, each)) for each in key)
    return Cut(type(processor).__name__, below, names, watermark, options, node, path)


def _processor(frame: DataFrame, node: Node) -> Any:
    try:
        function = catalyst.python_function(frame.sparkSession, node.functionExpr())
    except Exception as error:
        raise NotCut(
            f"its StatefulProcessor cannot be taken over ({type(error).__name__}: {error}): it holds a broadcast variable, or "
            "more than Spark sends with a task"
        ) from error
    return function.__self__._stateful_processor


def _watermark(plan: Node, columns: Sequence[Node]) -> Watermarked | None:
    """The watermark of the rows that a stateful node reads; None if there is none. Raises NotCut if it is not one."""
    marks = [node for node in catalyst.nodes(plan) if catalyst.kind(node) == _WATERMARK]
    if not marks:
        return None
    if len(marks) > 1:
        raise NotCut("it has several watermarks, and a topology of a script has one")
    node = plan
    while catalyst.kind(node) != _WATERMARK:
        if catalyst.kind(node) not in _KEEPING:
            raise NotCut(
                f"{catalyst.kind(node)} stands between withWatermark and its stateful operator, and may drop rows that the "
                "watermark follows; call withWatermark last before groupBy"
            )
        (node,) = catalyst.children(node)
    for column in columns:
        if catalyst.has_watermark(column):
            return Watermarked(column.name(), catalyst.delay_seconds(node))
    return None


def _ddl(frame: DataFrame) -> str:
    return ", ".join(f"`{field.name.replace('`', '``')}` {field.dataType.simpleString()}" for field in frame.schema.fields)
