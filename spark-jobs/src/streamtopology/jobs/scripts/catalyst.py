"""Plans of Spark by py4j. Catalyst's classes are internal to Spark: only this module knows them."""

# What py4j returns has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from py4j.java_gateway import is_instance_of
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.types import StructType

from streamtopology.jobs.operators.processors.broadcasts import BroadcastValue, broadcast_values

# A node of a plan, or an expression in it.
Node = Any

_WATERMARK_MILLIS = "spark.watermarkDelayMs"


def plan_of(frame: DataFrame) -> Node:
    """The plan of a frame, its names resolved."""
    return cast(Any, frame)._jdf.queryExecution().analyzed()


def kind(node: Node) -> str:
    """The name of the node's class: `Project`, `Aggregate`."""
    return node.getClass().getSimpleName()


def children(node: Node) -> list[Node]:
    return list(elements(node.children()))


def elements(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala sequence."""
    return (sequence.apply(index) for index in range(sequence.size()))


def nodes(plan: Node) -> Iterator[Node]:
    """The plan's nodes, each before those below it."""
    yield plan
    for child in children(plan):
        yield from nodes(child)


def has_limits(plan: Node) -> bool:
    """True if an option of a source says how much of it a batch reads, as `maxFilesPerTrigger` does."""
    for node in nodes(plan):
        options = "" if kind(node) != "StreamingRelation" else node.dataSource().options().toString()
        if kind(node) == "StreamingRelationV2":
            options = node.extraOptions().keySet().toString()
        if "pertrigger" in options.lower():
            return True
    return False


def options_of(plan: Node, source: str) -> list[str]:
    """The names of options of the plan's streaming sources of a format, as they were given."""
    found = [node for node in nodes(plan) if kind(node) == "StreamingRelationV2" and node.sourceName() == source]
    return [name for node in found for name in node.extraOptions().asCaseSensitiveMap().keySet()]


def clone_of(spark: SparkSession) -> SparkSession:
    """A session with the settings, views and functions of another, as of now: each query of Spark has its own."""
    return SparkSession(spark.sparkContext, cast(Any, spark)._jsparkSession.cloneSession())


def frame_of(spark: SparkSession, plan: Node) -> DataFrame:
    """The frame of a plan."""
    return DataFrame(_jvm(spark).org.apache.spark.sql.classic.Dataset.ofRows(cast(Any, spark)._jsparkSession, plan), spark)


def with_columns(spark: SparkSession, plan: Node, expressions: Sequence[Node]) -> DataFrame:
    """The plan's rows with these named expressions alone."""
    return frame_of(spark, project(spark, expressions, plan))


def project(spark: SparkSession, expressions: Sequence[Node], plan: Node) -> Node:
    """A node `Project`."""
    return _jvm(spark).org.apache.spark.sql.catalyst.plans.logical.Project(_sequence(spark, expressions), plan)


def filtered(spark: SparkSession, condition: Node, plan: Node) -> Node:
    """A node `Filter`."""
    return _jvm(spark).org.apache.spark.sql.catalyst.plans.logical.Filter(condition, plan)


def grouped(spark: SparkSession, plan: Node) -> Node:
    """A node `Aggregate` whose rows are the plan's, each once."""
    logical, output = _jvm(spark).org.apache.spark.sql.catalyst.plans.logical, plan.output()
    return logical.Aggregate(output, output, plan, _none(spark))


def named(spark: SparkSession, expression: Node, name: str, like: Node | None = None) -> Node:
    """The expression under a name: in the place of the attribute `like`, or a new one."""
    expressions = _jvm(spark).org.apache.spark.sql.catalyst.expressions
    identity = expressions.NamedExpression.newExprId() if like is None else like.exprId()
    qualifier = _sequence(spark, ()) if like is None else like.qualifier()
    return expressions.Alias(expression, name, identity, qualifier, _none(spark), _sequence(spark, ()))


def in_place_of(path: Sequence[tuple[Node, int]], stand_in: Node, spark: SparkSession) -> DataFrame:
    """The plan that stands above a node, on `stand_in` in its place, whose output has the node's identities.

    path: from the plan's top, each node above, and which of its children leads to the node.
    """
    plan = stand_in
    for parent, place in reversed(path):
        beside = children(parent)
        beside[place] = plan
        plan = parent.withNewChildren(_sequence(spark, beside).toIndexedSeq())
    return frame_of(spark, plan)


def path_to(node: Node, plan: Node) -> list[tuple[Node, int]] | None:
    """The path to a node of a plan, see `in_place_of`; None if it is not there."""
    if plan.fastEquals(node):
        return []
    for place, child in enumerate(children(plan)):
        below = path_to(node, child)
        if below is not None:
            return [(plan, place), *below]
    return None


def in_the_name_of(plan: Node, other: Node, spark: SparkSession) -> Node:
    """A plan without nodes below it, such as that of given rows, whose attributes are those of `other`."""
    companion = getattr(_jvm(spark).org.apache.spark.sql.catalyst.expressions, "AttributeMap$")
    return plan.rewriteAttrs(companion.__getattr__("MODULE$").apply(plan.output().zip(other.output())))


def with_children(spark: SparkSession, expression: Node, given: Sequence[Node]) -> Node:
    return expression.withNewChildren(_sequence(spark, given).toIndexedSeq())


def without_common(expression: Node, spark: SparkSession) -> Node:
    """An expression `With`, whose parts refer to others that it names, with these in their places; any other as it is."""
    if kind(expression) != "With":
        return expression
    named_ = list(elements(expression.defs()))

    def put(part: Node) -> Node:
        if kind(part) == "CommonExpressionRef":
            return next(each.child() for each in named_ if each.id().equals(part.id()))
        below = children(part)
        return with_children(spark, part, [put(each) for each in below]) if below else part

    return put(expression.child())


def column(expression: Node, spark: SparkSession) -> Column:
    """An expression as a column."""
    return ClassicColumn(_jvm(spark).org.apache.spark.sql.classic.ExpressionUtils.column(expression))


def resolved(column: Column, rows: DataFrame) -> Node:
    """What a column of `rows` stands for."""
    plan = plan_of(rows.select(column.alias("resolved")))
    (named_,) = elements(plan.projectList())
    return named_.child()


def cast_to(expression: Node, kind: Any, spark: SparkSession) -> Node:
    """The expression as a value of this type of Spark's."""
    if expression.dataType().sameType(kind):
        return expression
    expressions = _jvm(spark).org.apache.spark.sql.catalyst.expressions
    zone = _jvm(spark).scala.Option.apply(spark.conf.get("spark.sql.session.timeZone"))
    return expressions.Cast(expression, kind, zone, expressions.EvalMode.LEGACY())


def same(one: Node, other: Node) -> bool:
    """True for an attribute and itself further up or down."""
    return one.exprId().equals(other.exprId())


def is_replaceable(expression: Node, spark: SparkSession) -> bool:
    """True for an expression that Spark's optimizer writes as others, its `replacement`."""
    name = "org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable"
    return bool(is_instance_of(spark.sparkContext._gateway, expression, name))


def filters_pushed(plan: Node, spark: SparkSession) -> Node:
    """The plan with its filters as far down as Spark's optimizer puts each of them, without aliases of frames."""
    rules = _jvm(spark).org.apache.spark.sql.catalyst
    before, plan = None, rules.analysis.EliminateSubqueryAliases.apply(plan)
    while before is None or not plan.fastEquals(before):
        before, plan = plan, rules.optimizer.PushPredicateThroughNonJoin.apply(plan)
    return plan


def has_watermark(attribute: Node) -> bool:
    return attribute.metadata().contains(_WATERMARK_MILLIS)


def is_window(attribute: Node) -> bool:
    return attribute.metadata().contains("spark.timeWindow")


def is_session(attribute: Node) -> bool:
    return attribute.metadata().contains("spark.sessionWindow")


def delay_seconds(watermark: Node) -> float:
    """The delay of a node `EventTimeWatermark`."""
    (delay,) = [attribute for attribute in elements(watermark.output()) if has_watermark(attribute)][:1]
    return delay.metadata().getLong(_WATERMARK_MILLIS) / 1000


def seconds_of(interval: Node) -> float | None:
    """The length of a constant interval of days and less; None for any other expression."""
    if not interval.foldable():
        return None
    length = interval.eval(None)
    if isinstance(length, int):
        return length / 1e6
    if length is None or not hasattr(length, "months") or length.months != 0:
        return None
    return length.days * 86_400 + length.microseconds / 1e6


def python_function(spark: SparkSession, function: Node) -> Any:
    """The function behind an expression `PythonUDF`, as the script gave it, its broadcast variables as their values.

    Raises whatever unpickling does.
    """
    sent = function.func()
    held = {each.id(): BroadcastValue.read(Path(each.value().path())) for each in sent.broadcastVars()}
    command = bytes(sent.command().toArray(_jvm(spark).scala.reflect.ClassTag.Byte()))
    with broadcast_values(held):
        loaded = cloudpickle.loads(command)
        if isinstance(loaded, BroadcastValue):  # so Spark sends what is large
            loaded = cloudpickle.loads(loaded.value)
    return loaded[0]


def fields_of(kind: Any) -> StructType:
    """A struct type of Spark's JVM as PySpark has it."""
    return StructType.fromJson(json.loads(kind.json()))


def check_streaming(frame: DataFrame, output_mode: str) -> None:
    """Raise Spark's AnalysisException for a plan that its own streaming query would refuse in this output mode."""
    analysis = _jvm(frame.sparkSession).org.apache.spark.sql.catalyst.analysis
    analysis.UnsupportedOperationChecker.checkForStreaming(plan_of(frame), _mode(frame.sparkSession, output_mode))


def interval_seconds(spark: SparkSession, text: str) -> float:
    """The seconds of a trigger's processingTime, by Spark's own rules."""
    return _jvm(spark).org.apache.spark.sql.streaming.Trigger.ProcessingTime(text.strip()).intervalMs() / 1000


def _mode(spark: SparkSession, output_mode: str) -> Any:
    return _jvm(spark).org.apache.spark.sql.catalyst.streaming.InternalOutputModes.apply(output_mode)


def _jvm(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm


def _sequence(spark: SparkSession, items: Sequence[Any]) -> Any:
    jvm = _jvm(spark)
    buffer = jvm.java.util.ArrayList()
    for item in items:
        buffer.add(item)
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(buffer).toSeq()


def _none(spark: SparkSession) -> Any:
    return _jvm(spark).scala.Option.empty()
