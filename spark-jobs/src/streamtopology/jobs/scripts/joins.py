"""A join of two streams of a script as an operator.

The operator pairs rows of equal keys whose times are near enough. What the script asks of a pair besides is Spark's, above it.
An outer or semi join has to know which rows have a pair: so all that it asks of pairs is of keys and times, which the operator
knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamtopology.jobs.scripts import catalyst
from streamtopology.jobs.scripts.catalyst import Node
from streamtopology.jobs.scripts.parts import NotCut, Part, RowsBelow, Step, Watermarked, watermark_below

_NAMES = ("one", "other")
_OF_SEVERAL = "spark.sql.streaming.multipleWatermarkPolicy"
_SEMI = "LEFT SEMI"
# Joins that keep rows without a pair: of which sides.
_KEPT: Mapping[str, Sequence[str]] = {
    "INNER": (),
    _SEMI: (),
    "LEFT OUTER": ("one",),
    "RIGHT OUTER": ("other",),
    "FULL OUTER": ("one", "other"),
}
# Comparisons of a time of one stream with one of the other: whether they bound the first from below, from above, strictly.
_BOUNDS = {
    "GreaterThan": (True, False, True), "GreaterThanOrEqual": (True, False, False), "LessThan": (False, True, True),
    "LessThanOrEqual": (False, True, False), "EqualTo": (True, True, False), "EqualNullSafe": (True, True, False),
}  # fmt: skip


@dataclass(frozen=True)
class _Side:
    name: str
    plan: Node
    columns: list[Node]
    watermark: Watermarked | None

    @staticmethod
    def of(name: str, plan: Node, spark: SparkSession) -> _Side:
        columns = list(catalyst.elements(plan.output()))
        watermark = watermark_below(plan, columns, spark)
        if watermark is None:
            return _Side(name, plan, columns, None)
        place = next(place for place, column in enumerate(columns) if catalyst.same(column, watermark.attribute))
        return _Side(name, plan, columns, replace(watermark, column=_column(place)))

    @property
    def time(self) -> Watermarked:
        """Raises NotCut."""
        if self.watermark is None:
            raise NotCut("a join of two streams by time needs withWatermark on both, and their columns among the rows")
        return self.watermark

    def has(self, expression: Node) -> bool:
        """True if the expression is of this side's columns alone."""
        return not expression.references().isEmpty() and expression.references().subsetOf(self.plan.outputSet())

    def rows(self, keys: list[tuple[Node, bool]], asked: list[Node], kept: Sequence[str], spark: SparkSession) -> DataFrame:
        """The rows that are as `asked`, their columns under names of ours.

        Those whose key can be equal to none are left out. Of a side that is `kept` they get a key of their own; both sides of
        such a join have it.
        """
        made = [catalyst.column(column, spark).alias(_column(place)) for place, column in enumerate(self.columns)]
        key = [catalyst.column(expression, spark).alias(_key(place)) for place, (expression, _) in enumerate(keys)]
        rows = catalyst.frame_of(spark, self.plan)
        for condition in asked:
            rows = rows.where(catalyst.column(condition, spark))
        rows = rows.select(*key, *made)
        meets_none = [rows[_key(place)].isNull() for place, (_, joins_null) in enumerate(keys) if not joins_null]
        if self.name in kept:
            alone = reduce(or_, meets_none, F.lit(False))
            return rows.withColumn(_key(len(keys)), F.when(alone, F.lit(self.name)))
        if kept:
            rows = rows.withColumn(_key(len(keys)), F.lit(None).cast("string"))
        for condition in meets_none:
            rows = rows.where(~condition)
        return rows


def part_of(node: Node, spark: SparkSession) -> Part:
    """The part that a node `Join` of two streams becomes. Raises NotCut."""
    kind = node.joinType().sql()
    if kind not in _KEPT or not node.condition().isDefined():
        lacks = " without a condition" if kind in _KEPT else ""
        raise NotCut(f"a {kind.lower()} join of two streams{lacks} is not taken over yet")
    if (of_several := spark.conf.get(_OF_SEVERAL)) != "min":
        raise NotCut(f"{_OF_SEVERAL} is {of_several}, and the watermark of a topology is the least of its streams'")
    sides = [_Side.of(name, plan, spark) for name, plan in zip(_NAMES, (node.left(), node.right()), strict=True)]
    one, other = sides
    asked = list(_all_of(node.condition().get(), spark))
    keys = [pair for each in asked if (pair := _equal(each, one, other))]
    if not keys:
        raise NotCut("a join of two streams needs a column of one that equals one of the other")
    kept, is_semi = _KEPT[kind], kind == _SEMI
    is_exact = bool(kept) or is_semi
    own = {
        side.name: [each for each in asked if side.has(each)] if is_exact and side.name not in kept else [] for side in sides
    }
    shown = sides[:1] if is_semi else sides
    options: dict[str, Any] = {
        "select": [
            f"{side.name}.{_column(place)} AS {side.name}_{place}" for side in shown for place in range(len(side.columns))
        ],
    }
    if is_exact:
        _check_pairs(asked, one, other, kept, spark)
    if is_exact or any(side.watermark is not None for side in sides):  # else all rows are kept for ever, as Spark does
        options |= _in_time(asked, one, other, is_exact, spark)
    if kept:
        _check_outer(asked, one, other, kept, spark)
        options["outer"] = list(kept)
    if is_semi:
        options["semi"] = one.name

    below = [
        side.rows([(pair[place], pair[2]) for pair in keys], own[side.name], kept, spark) for place, side in enumerate(sides)
    ]
    inputs = tuple(RowsBelow(rows, side.watermark, side.name) for rows, side in zip(below, sides, strict=True))
    step = Step("join", "window-join", options, tuple(map(_key, range(len(keys) + bool(kept)))))
    return Part((step,), inputs, lambda rows: _stand_in(node, rows, not is_exact, spark))


def _in_time(asked: list[Node], one: _Side, other: _Side, is_exact: bool, spark: SparkSession) -> dict[str, Any]:
    """The operator's options on the times of a pair. Raises NotCut."""
    times = {side.name: side.time.column for side in (one, other)}
    bounds = [bound for each in asked for bound in _bounds(each, one, other, spark)]
    low, high = _within(bounds, is_exact)
    return {"time": times, "within": [_micros(low), _micros(max(low, high))]}


def _stand_in(node: Node, rows: DataFrame, is_asked: bool, spark: SparkSession) -> Node:
    """The operator's rows as those of the join; where there may be more of them, those that are as it asks."""
    plan = catalyst.plan_of(rows)
    pairs = zip(catalyst.elements(node.output()), catalyst.elements(plan.output()), strict=True)
    made = [catalyst.named(spark, catalyst.cast_to(found, like.dataType(), spark), like.name(), like) for like, found in pairs]
    joined = catalyst.project(spark, made, plan)
    return catalyst.filtered(spark, node.condition().get(), joined) if is_asked else joined


def _check_pairs(asked: list[Node], one: _Side, other: _Side, kept: Sequence[str], spark: SparkSession) -> None:
    """Raise NotCut for what the operator could not ask of a pair."""
    for each in asked:
        is_key, in_time = _equal(each, one, other) is not None, bool(_bounds(each, one, other, spark))
        if is_key and in_time:
            raise NotCut("an outer or semi join of two streams by equal event times is not taken over yet")
        if not (is_key or in_time or any(side.has(each) and side.name not in kept for side in (one, other))):
            raise NotCut(f"an outer or semi join of two streams that asks {each.sql()} is not taken over yet")


def _check_outer(asked: list[Node], one: _Side, other: _Side, kept: Sequence[str], spark: SparkSession) -> None:
    """Raise NotCut for what the operator would emit in another batch than Spark does."""
    bounds = [bound for each in asked for bound in _bounds(each, one, other, spark)]
    if sorted(bound.is_least for bound in bounds) != [False, True]:
        raise NotCut("an outer join of two streams whose event time has several bounds on one side is not taken over yet")
    low, high = _within(bounds, is_exact=True)
    if low > high or ("one" in kept and high < 0) or ("other" in kept and low > 0):
        raise NotCut("an outer join of two streams whose rows come after all that they could meet is not taken over yet")


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


@dataclass(frozen=True)
class _Bound:
    """The least or the most microseconds from one's time to other's; if strict, not these themselves."""

    is_least: bool
    micros: int
    is_strict: bool


def _bounds(condition: Node, one: _Side, other: _Side, spark: SparkSession) -> list[_Bound]:
    """What a condition says of how far the times of a pair are apart."""
    if catalyst.kind(condition) not in _BOUNDS:
        return []
    left, right = (_shifted(each, spark) for each in catalyst.children(condition))
    if left is None or right is None:
        return []
    from_below, from_above, is_strict = _BOUNDS[catalyst.kind(condition)]
    (first, ahead), (second, behind) = left, right
    apart = round((behind - ahead) * 1e6)
    if _are(first, second, one, other):
        from_below, from_above, apart = from_above, from_below, -apart
    elif not _are(first, second, other, one):
        return []
    return [_Bound(is_least, apart, is_strict) for is_least, is_one in ((True, from_below), (False, from_above)) if is_one]


def _within(bounds: Sequence[_Bound], is_exact: bool) -> tuple[int, int]:
    """(least, most) microseconds from one's time to other's; a strict bound counts as itself unless exact. Raises NotCut."""
    least = [bound.micros + (is_exact and bound.is_strict) for bound in bounds if bound.is_least]
    most = [bound.micros - (is_exact and bound.is_strict) for bound in bounds if not bound.is_least]
    if not least or not most:
        raise NotCut(
            "a join of two streams with withWatermark needs bounds of the one's event time by the other's, from below and from "
            "above"
        )
    return max(least), min(most)


def _micros(count: int) -> str:
    return f"{count}us"


def _are(first: Node, second: Node, one: _Side, other: _Side) -> bool:
    """True if these are the event times of the two sides."""
    return catalyst.same(first, one.time.attribute) and catalyst.same(second, other.time.attribute)


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
