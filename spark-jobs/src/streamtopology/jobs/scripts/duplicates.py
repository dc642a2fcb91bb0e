"""dropDuplicates() and dropDuplicatesWithinWatermark() of a script as an operator.

Columns below the cut have names of ours, since a frame may have two of one name. Nested columns that are compared come once
more, as texts that are equal where they are.
"""

from __future__ import annotations

from dataclasses import replace
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
from streamtopology.jobs.scripts.parts import NotCut, Part, RowsBelow, Watermarked, watermark_below
from streamtopology.topology import format_duration


def part_of(node: Node, spark: SparkSession) -> Part:
    """The part that a node `Deduplicate` or `DeduplicateWithinWatermark` becomes. Raises NotCut."""
    child = node.child()
    output = list(catalyst.elements(child.output()))
    types = [field.dataType for field in catalyst.frame_of(spark, child).schema.fields]
    for attribute, kind in zip(output, types, strict=True):
        if any(isinstance(held, UserDefinedType) for held in types_in(kind)):
            raise NotCut(f"column {attribute.name()!r} is or holds a {type(kind).__name__}, which is not taken over yet")
    given = [catalyst.column(attribute, spark) for attribute in output]
    columns = [column.alias(_name(place)) for place, column in enumerate(given)]
    key: list[str] = []
    for attribute in catalyst.elements(node.keys()):
        place = _place_of(attribute, output)
        name = _name(place)
        if isinstance(types[place], ArrayType | StructType):
            name = f"key_{place}"
            columns.append(_as_text(given[place], types[place]).alias(name))
        key.append(name)
    if not key:
        raise NotCut("dropDuplicates compares no columns")
    watermark = _watermark(child, output, spark)
    options: dict[str, Any] = {} if watermark is None else {"time": watermark.column}
    if catalyst.kind(node) == "DeduplicateWithinWatermark":
        if watermark is None:
            raise NotCut("dropDuplicatesWithinWatermark needs withWatermark before it, and its column among the rows")
        options["within"] = format_duration(watermark.delay_seconds)

    def stand_in(rows: DataFrame) -> Node:
        plan = catalyst.plan_of(rows)
        pairs = zip(output, catalyst.elements(plan.output()), strict=False)
        made = [
            catalyst.named(spark, catalyst.cast_to(found, like.dataType(), spark), like.name(), like) for like, found in pairs
        ]
        return catalyst.project(spark, made, plan)

    below = RowsBelow(catalyst.frame_of(spark, child).select(*columns), watermark)
    return Part("deduplicate", "deduplicate", options, tuple(key), (below,), stand_in)


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


def _as_text(value: Column, kind: DataType) -> Column:
    """A text for each value, the same for those that Spark takes for equal; never NULL. Raises NotCut."""
    if isinstance(kind, StructType):
        parts = [_as_text(value.getField(field.name), field.dataType) for field in kind.fields]
        text = reduce(F.concat, parts, F.lit("("))
    elif isinstance(kind, ArrayType):
        element = kind.elementType
        text = F.concat(
            F.size(value).cast("string"), F.lit("["), F.array_join(F.transform(value, lambda e: _as_text(e, element)), "")
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
