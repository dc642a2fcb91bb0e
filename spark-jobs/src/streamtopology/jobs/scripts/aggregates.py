"""groupBy().agg() of a script as an operator.

What the functions are of, and the columns of the group, are computed by Spark below the cut, under names of ours. The operator
keeps the functions' state. What the script makes of the functions' results is computed by Spark above it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streamtopology.jobs.scripts import catalyst
from streamtopology.jobs.scripts.catalyst import Node
from streamtopology.jobs.scripts.duplicates import text_of
from streamtopology.jobs.scripts.parts import Chain, NotCut, Part, RowsBelow, Step, watermark_below

_EMITS = {"append": "closed", "update": "updates", "complete": "all"}
_FUNCTIONS = {
    "Count": "count", "Sum": "sum", "Average": "mean", "Min": "min", "Max": "max",
    "StddevSamp": "stddev", "StddevPop": "stddev_pop", "VarianceSamp": "variance", "VariancePop": "var_pop",
    "First": "first", "Last": "last", "CollectList": "collect_list", "CollectSet": "collect_set",
    "HyperLogLogPlusPlus": "approx_count_distinct", "MaxBy": "arg_max", "MinBy": "arg_min",
}  # fmt: skip
# The error of an approx_count_distinct that asks for none.
_USUAL_ERROR = 0.05
# The only field of a struct around values of which NULL is one.
_BOXED = "boxed"
# The fields of a struct of which the one with the greatest or least `by` is kept.
_BY, _VALUE = "by", "value"
_TIME = "time"
# The columns of our operator's rows that have the bounds of a session.
_SESSION = ("session_start", "session_end")


@dataclass(frozen=True)
class _Group:
    """A column of the group, or a window: its expression, and the columns that it becomes, the one that closes it last.

    is_nested: the column is a text in the place of an array or a struct, of which the first one is kept. is_session: it is a
    session window, and becomes the time of a row and its gap.
    """

    expression: Node
    names: tuple[str, ...]
    closes: bool
    is_nested: bool = False
    is_session: bool = False

    @property
    def is_window(self) -> bool:
        return len(self.names) == 2

    @property
    def kept(self) -> str:
        """The name of the column, and of the function's result, that is the array or struct itself."""
        return f"{self.names[0]}_kept"

    def columns(self, rows: DataFrame) -> dict[str, Column]:
        """The columns, of the rows below."""
        whole = catalyst.column(self.expression, rows.sparkSession)
        if self.is_nested:
            return {self.names[0]: text_of(whole, rows.select(whole).schema[0].dataType), self.kept: whole}
        bounds = [whole["start"], whole["end"] - whole["start"] if self.is_session else whole["end"]] if self.is_window else []
        return dict(zip(self.names, bounds or [whole], strict=True))

    def of(self, rows: DataFrame) -> Column:
        """The column or window, of the operator's rows."""
        if not self.is_window:
            return rows[self.kept if self.is_nested else self.names[0]]
        bounds = _SESSION if self.is_session else self.names
        return F.struct(*[rows[name].alias(part) for name, part in zip(bounds, ("start", "end"), strict=True)])


@dataclass
class _Calls:
    """The calls of functions that were met: for each its column below, if any, its text for the operator, its expression."""

    spark: SparkSession
    columns: dict[str, Column] = field(default_factory=dict[str, Column])
    texts: dict[str, str] = field(default_factory=dict[str, str])
    met: list[Node] = field(default_factory=list[Node])

    def number_of(self, call: Node) -> int:
        """The number of a call; one that was met before is the same. Raises NotCut."""
        for number, before in enumerate(self.met):
            if before.semanticEquals(call):
                return number
        function, number = _written_out(call, self.spark), len(self.met)
        value = self._value(function, call.filter())
        if value is not None:
            self.columns[f"value_{number}"] = value
        of = "" if value is None else f"value_{number}"
        self.texts[f"result_{number}"] = f"{self._name_of(function, call.isDistinct())}({of})"
        self.met.append(call)
        return number

    def result(self, call: Node, rows: DataFrame) -> Column:
        """The result of a call, of the operator's rows."""
        found, part = rows[f"result_{self.number_of(call)}"], _part_of_struct(_written_out(call, self.spark))
        return found if part is None else found[part]

    def _name_of(self, function: Node, is_distinct: bool) -> str:
        """The operator's name for a function. Raises NotCut."""
        name, known = _FUNCTIONS.get(catalyst.kind(function)), function.prettyName()
        if name is None or is_distinct:
            raise NotCut(f"{known}({'DISTINCT ' if is_distinct else ''}...) is not taken over yet")
        if name == "sum" and known != "sum":
            raise NotCut(f"{known}(...) is not taken over yet: it gives NULL where a sum is too large")
        if name == "sum" and self.spark.conf.get("spark.sql.ansi.enabled") == "false":
            raise NotCut("sum(...) is not taken over with spark.sql.ansi.enabled: false, where a sum that is too large wraps")
        if name == "approx_count_distinct" and function.relativeSD() != _USUAL_ERROR:
            raise NotCut(f"approx_count_distinct(..., {function.relativeSD()}) is not taken over; its usual {_USUAL_ERROR} is")
        return f"arg_{name}" if _part_of_struct(function) == _BY else name

    def _value(self, function: Node, condition: Any) -> Column | None:
        """What a function is of; None for the count of all rows."""
        given = [catalyst.column(child, self.spark) for child in catalyst.children(function)]
        if catalyst.kind(function) == "Count":
            asked = [one for one, child in zip(given, catalyst.children(function), strict=True) if child.nullable()]
            if not asked and not condition.isDefined():
                return None
            value = F.lit(1)
            for one in asked:
                value = F.when(one.isNotNull(), value)
        elif (part := _part_of_struct(function)) is None:
            value = given[0]
        elif part == _BOXED:
            value = F.struct(given[0].alias(_BOXED))
        else:
            fields = [given[-1].alias(_BY), *([given[0].alias(_VALUE)] if part == _VALUE else [])]
            value = F.when(given[-1].isNotNull(), F.struct(*fields))
        return F.when(catalyst.column(condition.get(), self.spark), value) if condition.isDefined() else value


def _written_out(call: Node, spark: SparkSession) -> Node:
    """The function of a call, by those that it stands for: `count_if` by a count, `bool_and` by a least one."""
    function = call.aggregateFunction()
    return function.replacement() if catalyst.is_replaceable(function, spark) else function


def _part_of_struct(function: Node) -> str | None:
    """The field of a struct that has the result, where the operator keeps a struct."""
    kind, value = catalyst.kind(function), catalyst.children(function)[:1]
    if kind in ("MaxBy", "MinBy"):
        return _VALUE
    if kind in ("Max", "Min") and catalyst.kind(value[0].dataType()) == "StructType":
        return _BY
    # NULL may be its result though there are other values: the first one is NULL.
    return _BOXED if kind in ("First", "Last") and not function.ignoreNulls() and value[0].nullable() else None


def part_of(node: Node, spark: SparkSession, output_mode: str, chain: Chain | None = None) -> Part:
    """The part that a node `Aggregate` becomes, behind the operators of a chain, if there is one. Raises NotCut."""
    if chain is None:
        child = _with_every_time(node.child())
        found = watermark_below(child, list(catalyst.elements(child.output())), spark)
        time = [] if found is None else [catalyst.column(found.attribute, spark).alias(_TIME)]
        chain = Chain((), child, time, found and replace(found, column=_TIME))
    groups = [_group(expression, number) for number, expression in enumerate(catalyst.elements(node.groupingExpressions()))]
    if not groups:
        raise NotCut("an aggregate of all rows, without groupBy, has one group: there is nothing to re-route")
    results, calls = list(catalyst.elements(node.aggregateExpressions())), _Calls(spark)
    for result in results:
        _meet(result, groups, calls)
    rows_below = catalyst.frame_of(spark, chain.plan)
    columns = {name: column for group in groups for name, column in group.columns(rows_below).items()} | calls.columns
    made = [*(chain.of_passing(column).alias(name) for name, column in columns.items()), *chain.columns]
    texts = calls.texts | {group.kept: f"first({group.kept})" for group in groups if group.is_nested}
    options: dict[str, Any] = {"aggregates": texts or {"result_0": "count()"}, "nan": "keep"}
    closing = next((group for group in groups if group.closes), None)
    if closing is not None and chain.watermark is None:
        raise NotCut("the column of its watermark is not among the rows that it groups; keep it in the select")
    session = _session_of(groups, output_mode)
    names = [name for group in groups if group is not session for name in group.names]
    keys = [name for group in groups if not group.is_window and not group.closes for name in group.names] or names[:1]
    if others := [name for name in names if name not in keys]:
        options["groupBy"] = others
    run = "aggregate" if closing is None else "window-aggregate" if session is None else "session-window"
    if session is not None:
        options |= dict(zip(("time", "gapColumn"), session.names, strict=True))
    elif closing is not None:
        options["closes"] = closing.names[-1]
    if run != "aggregate" or output_mode != "update":
        options["emit"] = _EMITS[output_mode]

    def stand_in(rows: DataFrame) -> Node:
        shown = [_as_result(result, groups, calls, rows) for result in results]
        return catalyst.project(spark, shown, catalyst.plan_of(rows))

    below = RowsBelow(rows_below.select(*made), chain.watermark)
    step = Step("aggregate", run, options, tuple(keys))
    return Part((*chain.steps, step), (below,), stand_in, _words(groups, calls))


def _words(groups: list[_Group], calls: _Calls) -> dict[str, str]:
    """What the script calls the columns below."""
    values = {
        f"value_{number}": catalyst.children(call.aggregateFunction())[0].sql()
        for number, call in enumerate(calls.met)
        if f"value_{number}" in calls.columns
    }
    return {name: group.expression.sql() for group in groups for name in group.names} | values


def _group(expression: Node, number: int) -> _Group:
    is_column = catalyst.kind(expression) == "AttributeReference"
    closes = is_column and catalyst.has_watermark(expression)
    if is_column and catalyst.is_session(expression):
        return _Group(expression, (f"group_{number}_start", f"group_{number}_gap"), closes, is_session=True)
    if is_column and catalyst.is_window(expression):
        return _Group(expression, (f"group_{number}_start", f"group_{number}_end"), closes)
    is_nested = catalyst.kind(expression.dataType()) in ("ArrayType", "StructType")
    return _Group(expression, (f"group_{number}",), closes, is_nested)


def _session_of(groups: list[_Group], output_mode: str) -> _Group | None:
    """The session window by which it groups, if it does. Raises NotCut."""
    session = next((group for group in groups if group.is_session), None)
    if session is None:
        return None
    others = [group for group in groups if group is not session]
    if output_mode != "append":
        raise NotCut(f"session_window is taken over in the mode append, not in {output_mode}")
    if not session.closes:
        raise NotCut("session_window is of a time that no watermark follows")
    if not others or any(group.closes for group in others):
        raise NotCut("session_window is taken over with further columns in groupBy, none of them the time of its watermark")
    return session


def _with_every_time(plan: Node) -> Node:
    """The plan without the filter that `session_window()` puts on its rows: what that drops still moves Spark's watermark.

    The operator leaves out the same: rows without a time, and those whose gap is not positive.
    """
    if catalyst.kind(plan) != "Filter" or catalyst.kind(plan.child()) != "Project":
        return plan
    made = [each for each in catalyst.elements(plan.child().projectList()) if catalyst.kind(each) == "Alias"]
    of_sessions = any(catalyst.is_session(each) and catalyst.kind(each.child()) == "CreateNamedStruct" for each in made)
    return plan.child() if of_sessions else plan


def _meet(expression: Node, groups: list[_Group], calls: _Calls) -> None:
    """Note the calls in an expression of the result."""
    if any(group.expression.semanticEquals(expression) for group in groups):
        return
    if catalyst.kind(expression) == "AggregateExpression":
        calls.number_of(expression)
        return
    for child in catalyst.children(expression):
        _meet(child, groups, calls)


def _as_result(result: Node, groups: list[_Group], calls: _Calls, rows: DataFrame) -> Node:
    """A named expression of the result, of the operator's rows."""
    made = _of_rows(result, groups, calls, rows)
    return made if catalyst.kind(made) == "Alias" else catalyst.named(rows.sparkSession, made, result.name(), result)


def _of_rows(expression: Node, groups: list[_Group], calls: _Calls, rows: DataFrame) -> Node:
    spark = rows.sparkSession
    column = next((group.of(rows) for group in groups if group.expression.semanticEquals(expression)), None)
    if catalyst.kind(expression) == "AggregateExpression":
        column = calls.result(expression, rows)
    if column is not None:
        return catalyst.cast_to(catalyst.resolved(column, rows), expression.dataType(), spark)
    below = catalyst.children(expression)
    if not below:
        return expression
    return catalyst.with_children(spark, expression, [_of_rows(child, groups, calls, rows) for child in below])
