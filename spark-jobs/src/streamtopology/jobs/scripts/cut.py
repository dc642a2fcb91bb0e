"""The cut of a streaming plan at its stateful node.

What is below the node stays a frame of Spark and becomes the topology's source. The node becomes an operator of ours. What
stands above it runs on the rows of each batch, when they are committed.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession

from streamtopology.jobs.scripts import aggregates, catalyst, chained, duplicates, joins, processors
from streamtopology.jobs.scripts.catalyst import Node
from streamtopology.jobs.scripts.parts import Chain, Cut, NotCut, Part

# Nodes that keep state between batches, and what people call them.
_STATEFUL = {
    "TransformWithStateInPySpark": "transformWithState",
    "TransformWithState": "transformWithState",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "FlatMapGroupsWithState": "flatMapGroupsWithState",
    "Aggregate": "groupBy().agg()",
    "Distinct": "distinct",
    "Deduplicate": "dropDuplicates",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "GlobalLimit": "limit",
    "UpdateEventTimeWatermarkColumn": "eventTimeColumnName",
}
_JOIN = "a join of two streams"
_GROUPED = ("Aggregate", "Distinct")
_ON_OTHERS = (*_GROUPED, "TransformWithStateInPySpark", "FlatMapGroupsInPandasWithState")
_WITHOUT_DUPLICATES = ("Deduplicate", "DeduplicateWithinWatermark")
# Nodes above the cut that do the same with each batch's rows as with the stream.
_ROW_BY_ROW = {
    "Project", "Filter", "SubqueryAlias", "View", "Generate", "MapInPandas", "MapInArrow", "Join", "Repartition",
    "RepartitionByExpression", "ResolvedHint",
}  # fmt: skip
# In mode complete a batch has the whole result, and these may stand above the cut, too.
_OF_THE_WHOLE = {"Sort", "GlobalLimit", "LocalLimit", "Offset"}


def cut(frame: DataFrame, output_mode: str) -> Cut:
    """Cut the plan of a streaming frame whose query has this output mode. Raises NotCut."""
    found = list(_stateful(catalyst.plan_of(frame)))
    if not found:
        raise NotCut("it keeps no state")
    above = _ROW_BY_ROW
    if output_mode == "complete":
        above = _ROW_BY_ROW | _OF_THE_WHOLE
        while catalyst.kind(found[0][0]) in _OF_THE_WHOLE and len(found) > 1:
            found.pop(0)
    node, path = found[0]
    below = found[1:]
    names = [_STATEFUL.get(catalyst.kind(each), _JOIN) for each, _ in found]
    if below and not _is_chain([catalyst.kind(each) for each, _ in found]):
        raise NotCut(
            f"{names[0]} stands on {names[-1]}; of two stateful operators those are taken over of which the lower one is "
            "dropDuplicates, and the upper one groupBy().agg(), transformWithState or applyInPandasWithState"
        )
    for parent, _ in path:
        if catalyst.kind(parent) not in above:
            raise NotCut(f"{catalyst.kind(parent)} stands on its stateful operator, and would see one batch at a time")
    spark = frame.sparkSession
    between = [parent for _, whole in below for parent, _ in whole[len(path) + 1 :]]
    chain = chained.chain_of(below[0][0], between, spark) if below else None
    return Cut(_part_of(node, spark, output_mode, chain), tuple(path))


def _part_of(node: Node, spark: SparkSession, output_mode: str, chain: Chain | None) -> Part:
    kind = catalyst.kind(node)
    if kind == "TransformWithStateInPySpark":
        return processors.part_of(node, spark, chain)
    if kind == "FlatMapGroupsInPandasWithState":
        return processors.part_of_groups(node, spark, chain)
    if kind in _GROUPED:
        if kind == "Distinct":  # SELECT DISTINCT of SQL, which Spark turns into an aggregate
            node = catalyst.grouped(spark, node.child())
        return aggregates.part_of(node, spark, output_mode, chain)
    if kind in _WITHOUT_DUPLICATES:
        return duplicates.part_of(node, spark)
    if kind == "Join":
        return joins.part_of(node, spark)
    raise NotCut(f"{_STATEFUL[kind]} is not taken over yet")


def _is_chain(kinds: list[str]) -> bool:
    """True for two stateful nodes, the upper one first, that become operators one behind the other."""
    return len(kinds) == 2 and kinds[0] in _ON_OTHERS and kinds[1] in _WITHOUT_DUPLICATES


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
