"""A stateful operator on dropDuplicates() of a script: what stands between the two is computed below both.

A row that a filter there leaves out is among those that are compared, so the filter is an operator between the two, of a column
that says whether it passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamtopology.jobs.scripts import catalyst
from streamtopology.jobs.scripts.catalyst import Node
from streamtopology.jobs.scripts.duplicates import Comparison
from streamtopology.jobs.scripts.parts import Chain, NotCut, Step

_PASSES = "passes"
# Nodes whose rows are those below them, each once.
_SAME_ROWS = {"SubqueryAlias", "View", "ResolvedHint", "Repartition", "RepartitionByExpression"}
_REMEDIES = {
    "EventTimeWatermark": "call withWatermark before dropDuplicates",
    "Expand": "a window that slides makes several rows of one; that is not taken over yet there",
}


def chain_of(node: Node, between: Sequence[Node], spark: SparkSession) -> Chain:
    """The chain of a node `Deduplicate` or `DeduplicateWithinWatermark`, and of those between it and another stateful one.

    between: the uppermost first. Raises NotCut.
    """
    comparison = Comparison.of(node, spark)
    given = [catalyst.column(attribute, spark) for attribute in catalyst.elements(node.child().output())]
    compared = [column.alias(name) for name, column in comparison.columns.items()]
    plan = catalyst.plan_of(catalyst.frame_of(spark, node.child()).select(*given, *compared))
    rows = _Rows(plan, list(catalyst.elements(plan.output()))[len(given) :], None)
    for each in reversed(between):
        rows = rows.behind(each, spark)
    filters = [] if rows.passes is None else [Step("filter", "filter", {"where": _PASSES})]
    carried = [catalyst.column(attribute, spark) for attribute in rows.carried]
    passes = None if rows.passes is None else catalyst.column(rows.passes, spark)
    return Chain((comparison.step, *filters), rows.plan, carried, comparison.watermark, passes)


@dataclass(frozen=True)
class _Rows:
    """All rows below, as if none were left out.

    carried: the columns of theirs that the operators need. passes: the one of these that tells the rows that filters let pass.
    """

    plan: Node
    carried: list[Node]
    passes: Node | None

    def behind(self, node: Node, spark: SparkSession) -> _Rows:
        """The rows with what `node` computes of them. Raises NotCut."""
        kind = catalyst.kind(node)
        if kind in _SAME_ROWS:
            return self
        if kind == "Project":
            made = [self._of_passing(each, spark) for each in catalyst.elements(node.projectList())]
            return replace(self, plan=catalyst.project(spark, [*made, *self.carried], self.plan))
        if kind == "Filter":
            condition = self._of_passing(node.condition(), spark)
            others = [each for each in catalyst.elements(self.plan.output()) if not self._is_passes(each)]
            plan = catalyst.project(spark, [*others, catalyst.named(spark, condition, _PASSES)], self.plan)
            passes = list(catalyst.elements(plan.output()))[-1]
            return _Rows(plan, [*(each for each in self.carried if not self._is_passes(each)), passes], passes)
        remedy = _REMEDIES.get(kind, "that is not taken over yet there")
        raise NotCut(f"{kind} stands between dropDuplicates and the operator on it: {remedy}")

    def _is_passes(self, attribute: Node) -> bool:
        return self.passes is not None and catalyst.same(attribute, self.passes)

    def _of_passing(self, expression: Node, spark: SparkSession) -> Node:
        """The expression, NULL for rows that do not pass: of others it might raise what Spark does not."""
        if self.passes is None or catalyst.kind(expression) in ("AttributeReference", "Literal"):
            return expression
        if catalyst.kind(expression) == "Alias":
            return catalyst.with_children(spark, expression, [self._of_passing(expression.child(), spark)])
        guarded = F.when(catalyst.column(self.passes, spark), catalyst.column(expression, spark))
        return catalyst.resolved(guarded, catalyst.frame_of(spark, self.plan))
