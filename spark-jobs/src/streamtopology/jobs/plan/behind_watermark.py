"""How far the tuples that operators get are behind the watermark, as a manifest lays them out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from streamtopology.jobs.operators import LoadError, load
from streamtopology.jobs.operators.base import Operator
from streamtopology.jobs.operators.behind import Behind
from streamtopology.topology import OperatorSpec, Problem, Topology


@dataclass(frozen=True)
class BehindWatermark:
    """seconds: by operator, how much earlier its watermark is than the topology's. problems: of those without such a bound."""

    seconds: Mapping[str, float]
    problems: tuple[Problem, ...]


def behind_watermark(topology: Topology, base_dir: Path) -> BehindWatermark:
    """Operators that do not load, and options that do not hold, are problems of their own: they count as without delay."""
    emitted = {source.name: Behind() for source in topology.sources}
    seconds: dict[str, float] = {}
    problems: list[Problem] = []
    for operator in topology.operators:
        emitted[operator.name], seconds[operator.name] = Behind(), 0.0
        try:
            cls = load(operator.run, base_dir)
            own = _behind(cls, operator, emitted)
            if math.isinf(own):
                problems.append(_unbounded(operator, cls, emitted))
            else:
                given = Behind.of_all(emitted.get(each.source, Behind()) for each in operator.inputs)
                seconds[operator.name], emitted[operator.name] = own, cls.behind(operator.options, given, own)
        except (LoadError, ValueError, KeyError, TypeError):
            continue
    return BehindWatermark(seconds, tuple(problems))


def _behind(cls: type[Operator], operator: OperatorSpec, emitted: Mapping[str, Behind]) -> float:
    """The seconds by which its tuples are behind, if it leaves out late ones."""
    if not cls.leaves_out_late(operator.options):
        return 0.0
    columns = [(each.source, cls.event_time(operator.options, each.alias)) for each in operator.inputs]
    return max(emitted.get(source, Behind()).of(column) for source, column in columns)


def _unbounded(operator: OperatorSpec, cls: type[Operator], emitted: Mapping[str, Behind]) -> Problem:
    for each in operator.inputs:
        column = cls.event_time(operator.options, each.alias)
        if math.isinf(emitted[each.source].of(column)):
            known = [f"{name!r}" for name, seconds in emitted[each.source].columns.items() if not math.isinf(seconds)]
            remedy = f"take the time {' or '.join(known)}" if known else "write them to a sink that another topology reads"
            what = "its tuples" if column is None else f"{column!r}"
            return Problem(
                f"{operator.path}.inputs",
                f"operator {operator.name!r}: it leaves out late tuples, and nothing says for how long the watermark may have "
                f"passed {what} of {each.source!r}; {remedy}",
            )
    raise AssertionError("an input is without bound")
