"""dropDuplicates() and dropDuplicatesWithinWatermark() of a script as an operator.

Columns below the cut have names of ours, since a frame may have two of one name. Nested columns that are compared come once
more, as texts that are equal where they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    FloatType,
    StructType,
    TimestampType,
    UserDefinedType,
)

from streamtopology.jobs.connectors.sources.spark.native import types_in
from streamtopology.jobs.scripts import catalyst
from streamtopology.jobs.scripts.catalyst import Node
from streamtopology.jobs.scripts.parts import NotCut, Part, RowsBelow, Step, Watermarked, watermark_below
from streamtopology.topology import format_duration


@dataclass(frozen=True)
class Comparison:
    """How a node `Deduplicate` or `DeduplicateWithinWatermark` compares the rows below it: an operator.

    columns: those by which it does, under the operator's names.
    """

    step: Step
    columns: Mapping[str, Column]
    watermark: Watermarked | None

    @staticmethod
    def of(node: Node, spark: SparkSession) -> Comparison:
        """Raises NotCut."""
        child = node.child()
        output, types = list(catalyst.elements(child.output())), _types(child, spark)
        columns: dict[str, Column] = {}
        for attribute in catalyst.elements(node.keys()):
            place = _place_of(attribute, output)
            column, is_nested = catalyst.column(attribute, spark), isinstance(types[place], ArrayType | StructType)
            columns[f"key_{place}" if is_nested else _name(place)] = text_of(column, types[place]) if is_nested else column
        if not columns:
            raise NotCut("dropDuplicates compares no columns")
        key, watermark = tuple(columns), _watermark(child, output, spark)
        options: dict[str, Any] = {} if watermark is None else {"time": watermark.column}
        if watermark is not None:
            columns[watermark.column] = catalyst.column(watermark.attribute, spark)
        if catalyst.kind(node) == "DeduplicateWithinWatermark":
            if watermark is None:
                raise NotCut("dropDuplicatesWithinWatermark needs withWatermark before it, and its column among the rows")
            options["within"] = format_duration(watermark.delay_seconds)
        return Comparison(Step("deduplicate", "deduplicate", options, key), columns, watermark)


def part_of(node: Node, spark: SparkSession) -> Part:
    """The part that a node `Deduplicate` or `DeduplicateWithinWatermark` becomes. Raises NotCut."""
    child = node.child()
    output = list(catalyst.elements(child.output()))
    for attribute, kind in zip(output, _types(child, spark), strict=True):
        if any(isinstance(held, UserDefinedType) for held in types_in(kind)):
            raise NotCut(f"column {attribute.name()!r} is or holds a {type(kind).__name__}, which is not taken over yet")
    comparison = Comparison.of(node, spark)
    columns = {_name(place): catalyst.column(attribute, spark) for place, attribute in enumerate(output)}

    def stand_in(rows: DataFrame) -> Node:
        plan = catalyst.plan_of(rows)
        pairs = zip(output, catalyst.elements(plan.output()), strict=False)
        made = [
            catalyst.named(spark, catalyst.cast_to(found, like.dataType(), spark), like.name(), like) for like, found in pairs
        ]
        return catalyst.project(spark, made, plan)

    made = [column.alias(name) for name, column in {**columns, **comparison.columns}.items()]
    below = RowsBelow(catalyst.frame_of(spark, child).select(*made), comparison.watermark)
    return Part((comparison.step,), (below,), stand_in)


def _types(plan: Node, spark: SparkSession) -> list[DataType]:
    return [field.dataType for field in catalyst.frame_of(spark, plan).schema.fields]


def _name(place: int) -> str:
    return f"column_{place}"


def _place_of(attribute: Node, output: list[Node]) -> int:
    return next(place for place, column in enumerate(output) if catalyst.same(column, attribute))


def _watermark(child: Node, output: list[Node], spark: SparkSession) -> Watermarked | None:
    """The watermark, by which rows are late, of the column as it is called below; None if no column has one."""
    timed = [column for column in output if catalyst.has_watermark(column)]
    found = watermark_below(child, timed, spark)
    if found is None and not timed:
        return None
    if found is None or not all(catalyst.same(column, found.attribute) for column in timed):
        raise NotCut("the column of its watermark is not among the rows as withWatermark had it; call withWatermark last")
    return replace(found, column=_name(_place_of(found.attribute, output)))


def text_of(value: Column, kind: DataType) -> Column:
    """A text for each value, the same for those that Spark takes for equal; never NULL. Raises NotCut."""
    if isinstance(kind, StructType):
        parts = [text_of(value.getField(field.name), field.dataType) for field in kind.fields]
        text = reduce(F.concat, parts, F.lit("("))
    elif isinstance(kind, ArrayType):
        element = kind.elementType
        text = F.concat(
            F.size(value).cast("string"), F.lit("["), F.array_join(F.transform(value, lambda e: text_of(e, element)), "")
        )
    else:
        plain = _plain_text(value, kind)
        text = F.concat(F.length(plain).cast("string"), F.lit(":"), plain)
    return F.when(value.isNull(), F.lit("-")).otherwise(text)


def _plain_text(value: Column, kind: DataType) -> Column:
    if isinstance(kind, BinaryType):
        return F.hex(value)
    if isinstance(kind, DoubleType | FloatType):
        return (value + F.lit(0.0).cast(kind)).cast("string")  # -0.0 is 0.0, and every NaN is NaN
    return F.unix_micros(value).cast("string") if isinstance(kind, TimestampType) else value.cast("string")
