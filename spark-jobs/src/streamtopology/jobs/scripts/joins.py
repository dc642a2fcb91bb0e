"""An inner join of two streams of a script as an operator.

The operator pairs rows of equal keys whose times are near enough. What the script asks of a pair besides is Spark's, above it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from streamtopology.jobs.scripts import catalyst
from streamtopology.jobs.scripts.catalyst import Node
from streamtopology.jobs.scripts.parts import NotCut, Part, RowsBelow, Step, Watermarked, watermark_below
from streamtopology.topology import format_duration

_NAMES = ("one", "other")
# Comparisons of a time of one stream with one of the other: whether they bound the first from below, and from above.
_BOUNDS = {
    "GreaterThan": (True, False), "GreaterThanOrEqual": (True, False), "LessThan": (False, True),
    "LessThanOrEqual": (False, True), "EqualTo": (True, True), "EqualNullSafe": (True, True),
}  # fmt: skip


@dataclass(frozen=True)
class _Side:
    name: str
    plan: Node
    columns: list[Node]
    watermark: Watermarked

    @staticmethod
    def of(name: str, plan: Node, spark: SparkSession) -> _Side:
        columns = list(catalyst.elements(plan.output()))
        watermark = watermark_below(plan, columns, spark)
        if watermark is None:
            raise NotCut("a join of two streams needs withWatermark on both, and their columns among the rows")
        place = next(place for place, column in enumerate(columns) if catalyst.same(column, watermark.attribute))
        return _Side(name, plan, columns, replace(watermark, column=_column(place)))

    def has(self, expression: Node) -> bool:
        """True if the expression is of this side's columns alone."""
        return not expression.references().isEmpty() and expression.references().subsetOf(self.plan.outputSet())

    def rows(self, keys: list[tuple[Node, bool]], spark: SparkSession) -> DataFrame:
        """The rows, their columns under names of ours, without those whose key cannot be equal to any."""
        made = [catalyst.column(column, spark).alias(_column(place)) for place, column in enumerate(self.columns)]
        key = [catalyst.column(expression, spark).alias(_key(place)) for place, (expression, _) in enumerate(keys)]
        rows = catalyst.frame_of(spark, self.plan).select(*key, *made)
        for place, (_, joins_null) in enumerate(keys):
            rows = rows if joins_null else rows.where(rows[_key(place)].isNotNull())
        return rows


def part_of(node: Node, spark: SparkSession) -> Part:
    """The part that a node `Join` of two streams becomes. Raises NotCut."""
    kind = node.joinType().sql()
    if kind != "INNER" or not node.condition().isDefined():
        raise NotCut(
            f"a {kind.lower()} join of two streams{'' if kind != 'INNER' else ' without a condition'} is not taken over yet"
        )
    one, other = (_Side.of(name, plan, spark) for name, plan in zip(_NAMES, (node.left(), node.right()), strict=True))
    asked = list(_all_of(node.condition().get(), spark))
    keys = [pair for each in asked if (pair := _equal(each, one, other))]
    if not keys:
        raise NotCut("a join of two streams needs a column of one that equals one of the other")
    options = {
        "time": {side.name: side.watermark.column for side in (one, other)},
        "within": format_duration(_most_apart(asked, one, other, spark)),
        "select": [
            f"{side.name}.{_column(place)} AS {side.name}_{place}"
            for side in (one, other)
            for place in range(len(side.columns))
        ],
    }

    def stand_in(rows: DataFrame) -> Node:
        plan = catalyst.plan_of(rows)
        pairs = zip([*one.columns, *other.columns], catalyst.elements(plan.output()), strict=True)
        made = [
            catalyst.named(spark, catalyst.cast_to(found, like.dataType(), spark), like.name(), like) for like, found in pairs
        ]
        return catalyst.filtered(spark, node.condition().get(), catalyst.project(spark, made, plan))

    inputs = (
        RowsBelow(one.rows([(left, joins_null) for left, _, joins_null in keys], spark), one.watermark, one.name),
        RowsBelow(other.rows([(right, joins_null) for _, right, joins_null in keys], spark), other.watermark, other.name),
    )
    step = Step("join", "window-join", options, tuple(map(_key, range(len(keys)))))
    return Part((step,), inputs, stand_in)


def _column(place: int) -> str:
    return f"column_{place}"


def _key(place: int) -> str:
    return f"key_{place}"


def _all_of(condition: Node, spark: SparkSession) -> Iterator[Node]:
    """The conditions that `condition` joins by AND."""
    if catalyst.kind(condition) == "Between":
        condition = catalyst.without_common(condition.replacement(), spark)
    if catalyst.kind(condition) != "And":
        yield condition
        return
    for each in catalyst.children(condition):
        yield from _all_of(each, spark)


def _equal(condition: Node, one: _Side, other: _Side) -> tuple[Node, Node, bool] | None:
    """(of one, of the other, whether NULL equals NULL) for a condition that two expressions are equal."""
    if catalyst.kind(condition) not in ("EqualTo", "EqualNullSafe"):
        return None
    left, right = catalyst.children(condition)
    joins_null = catalyst.kind(condition) == "EqualNullSafe"
    if one.has(left) and other.has(right):
        return left, right, joins_null
    return (right, left, joins_null) if one.has(right) and other.has(left) else None


def _most_apart(asked: list[Node], one: _Side, other: _Side, spark: SparkSession) -> float:
    """The seconds that the times of a pair are apart at most. Raises NotCut."""
    least: list[float] = []
    most: list[float] = []
    for condition in asked:
        if catalyst.kind(condition) not in _BOUNDS:
            continue
        left, right = (_shifted(each, spark) for each in catalyst.children(condition))
        if left is None or right is None:
            continue
        from_below, from_above = _BOUNDS[catalyst.kind(condition)]
        (first, ahead), (second, behind) = left, right
        apart = behind - ahead
        if _are(first, second, other, one):
            from_below, from_above, apart = from_above, from_below, -apart
        elif not _are(first, second, one, other):
            continue
        least += [apart] if from_below else []
        most += [apart] if from_above else []
    if not least or not most:
        raise NotCut(
            "a join of two streams needs bounds of the one's event time by the other's, from below and from above; without "
            "them all rows are kept for ever"
        )
    return max(abs(max(least)), abs(min(most)))


def _are(first: Node, second: Node, one: _Side, other: _Side) -> bool:
    """True if these are the event times of the two sides."""
    return catalyst.same(first, one.watermark.attribute) and catalyst.same(second, other.watermark.attribute)


def _shifted(expression: Node, spark: SparkSession) -> tuple[Node, float] | None:
    """(column, seconds) of an expression that adds a constant to a column; None for any other."""
    if catalyst.is_replaceable(expression, spark):
        return _shifted(expression.replacement(), spark)
    if catalyst.kind(expression) == "Cast" and expression.dataType().sameType(expression.child().dataType()):
        return _shifted(expression.child(), spark)
    if catalyst.kind(expression) == "AttributeReference":
        return expression, 0.0
    if catalyst.kind(expression) != "TimestampAddInterval":
        return None
    start, interval = catalyst.children(expression)
    shifted, seconds = _shifted(start, spark), catalyst.seconds_of(interval)
    return None if shifted is None or seconds is None else (shifted[0], shifted[1] + seconds)
