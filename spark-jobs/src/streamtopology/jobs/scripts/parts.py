"""The parts of a plan that is cut at its stateful node, and the watermark of what is below."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streamtopology.contract.errors import StreamTopologyError
from streamtopology.jobs.scripts import catalyst
from streamtopology.jobs.scripts.catalyst import Node

_MARK = "EventTimeWatermark"
# Nodes through which every row passes, so that the newest time is the same above and below.
_KEEPING = {"Project", "Expand", "SubqueryAlias", "View", "Repartition", "RepartitionByExpression"}


class NotCut(StreamTopologyError):
    """A query that cannot become a topology; the message says what of it stands in the way."""


@dataclass(frozen=True)
class Watermarked:
    """The attribute that a watermark follows, the column that it is among the rows, and how far it is behind, in seconds."""

    attribute: Node
    column: str
    delay_seconds: float


@dataclass(frozen=True)
class RowsBelow:
    """Rows below a stateful node, which become the source `name`. key: if the operator's has other names among them."""

    rows: DataFrame
    watermark: Watermarked | None
    name: str = "input"
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """An operator `run` with `options`, called `name`, of rows by their `key`; without one, it keeps no state."""

    name: str
    run: str
    options: dict[str, Any]
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """What a stateful node becomes, with one below it if there is one: operators, each on the rows of the one before.

    The first is on the rows of `inputs`. stand_in: the plan that has the node's output, on a frame of the last one's rows.
    words: what the script says where the operators have names of ours.
    """

    steps: tuple[Step, ...]
    inputs: tuple[RowsBelow, ...]
    stand_in: Callable[[DataFrame], Node]
    words: Mapping[str, str] = field(default_factory=dict[str, str])

    def in_words(self, sentence: str) -> str:
        """A sentence about an operator, in the script's words."""
        return re.sub(r"\w+", lambda name: self.words.get(name[0], name[0]), sentence)


@dataclass(frozen=True)
class Chain:
    """Operators before another one. plan: of the rows that the first one reads. columns: of those, what the operators need.

    passes: tells the rows that reach that one at all.
    """

    steps: tuple[Step, ...]
    plan: Node
    columns: Sequence[Column]
    watermark: Watermarked | None
    passes: Column | None = None

    def of_passing(self, value: Column) -> Column:
        """The value, NULL for rows that do not pass: of others its expression might raise what Spark does not."""
        return value if self.passes is None else F.when(self.passes, value)


@dataclass(frozen=True)
class Cut:
    """A plan in its parts. path: see `catalyst.in_place_of`."""

    part: Part
    path: tuple[tuple[Node, int], ...]

    def above(self, rows: DataFrame) -> Above:
        """What the script makes of the operator's rows. rows: a frame of such rows, of any number."""
        return Above(rows, catalyst.in_place_of(self.path, self.part.stand_in(rows), rows.sparkSession))


class Above:
    """The plan above a cut, made once: each batch has only its rows put in. `frame`: it on the rows that it was made with."""

    def __init__(self, rows: DataFrame, frame: DataFrame) -> None:
        self.frame = frame
        self._rows = catalyst.plan_of(rows)
        path = catalyst.path_to(self._rows, catalyst.plan_of(frame))
        assert path is not None, "the plan stands on these rows"
        self._path = path

    def of(self, rows: DataFrame) -> DataFrame:
        """What the script makes of a batch's rows. Its columns are those of this batch: a script may join it to an earlier."""
        spark = rows.sparkSession
        plan = catalyst.in_the_name_of(catalyst.plan_of(rows), self._rows, spark)
        frame = catalyst.in_place_of(self._path, plan, spark)
        return frame.toDF(*self.frame.columns)


def watermark_below(plan: Node, columns: Sequence[Node], spark: SparkSession) -> Watermarked | None:
    """The watermark of the rows that a stateful node reads, if its column is among theirs; None if there is none.

    Raises NotCut if there are several, or rows may be dropped above it. A filter of other columns drops its rows
    before the watermark sees them: so Spark's optimizer has it.
    """
    if not any(catalyst.kind(node) == _MARK for node in catalyst.nodes(plan)):
        return None
    plan = catalyst.filters_pushed(plan, spark)
    marks = [node for node in catalyst.nodes(plan) if catalyst.kind(node) == _MARK]
    if len(marks) > 1:
        raise NotCut("it has several watermarks, and a topology of a script has one")
    node, time = plan, marks[0].eventTime()
    while catalyst.kind(node) != _MARK:
        if catalyst.kind(node) not in _KEEPING and not _drops_no_times(node, time):
            if catalyst.kind(node) == "Filter" and catalyst.kind(node.condition()) == "IsNotNull":
                raise NotCut("window() is of another time than the one that withWatermark follows; call withWatermark on that")
            raise NotCut(
                f"{catalyst.kind(node)} stands between withWatermark and its stateful operator, and may drop rows that the "
                "watermark follows; call withWatermark behind it"
            )
        (node,) = catalyst.children(node)
    attribute = next((column for column in columns if _is_time(column, time)), None)
    return None if attribute is None else Watermarked(attribute, attribute.name(), catalyst.delay_seconds(node))


def _is_time(column: Node, time: Node) -> bool:
    """True for the time that a watermark follows, also under another name: an alias keeps the mark, as `window()` does."""
    return catalyst.same(column, time) or is_followed(column)


def is_followed(column: Node) -> bool:
    """True for a time that a watermark follows. `window()` marks its windows, too, which are none."""
    return catalyst.has_watermark(column) and not (catalyst.is_window(column) or catalyst.is_session(column))


def _drops_no_times(node: Node, time: Node) -> bool:
    """True for a filter that drops no row of the newest time: those that `window()` puts on its rows."""
    if catalyst.kind(node) != "Filter":
        return False
    condition, (below,) = node.condition(), catalyst.children(node)
    if catalyst.kind(condition) == "IsNotNull" and catalyst.kind(condition.child()) == "AttributeReference":
        return _is_time(condition.child(), time)
    return catalyst.kind(below) == "Expand"
