"""Traits of the built-in operators, declared so that a manifest can be checked without Spark or their code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamtopology.topology.values import OperatorSpec


@dataclass(frozen=True)
class Traits:
    """The properties of an operator that validation needs.

    `stateful`: keeps something per key between rows, so each key needs one home.
    `combinable`: partial results of one key from several instances can be merged, so a policy may split its keys.
    `windowed`: closes windows by event time, so its sources need a watermark.
    `min_inputs`, `max_inputs`: how many inputs it takes (None: any number).
    """

    stateful: bool
    combinable: bool = False
    windowed: bool = False
    min_inputs: int = 1
    max_inputs: int | None = 1
    summary: str = ""


BUILTINS: Mapping[str, Traits] = {
    "count": Traits(stateful=True, combinable=True, max_inputs=None, summary="tuples per key"),
    "aggregate": Traits(stateful=True, combinable=True, max_inputs=None, summary="sum, mean, min, max, count per key"),
    "top-k": Traits(stateful=True, combinable=True, max_inputs=None, summary="the k ids with the largest values per key"),
    "quantiles": Traits(stateful=True, combinable=True, max_inputs=None, summary="quantiles of a column per key"),
    "map": Traits(stateful=False, max_inputs=None, summary="new columns by SQL expressions"),
    "filter": Traits(stateful=False, max_inputs=None, summary="the tuples for which a SQL condition holds"),
    "window-aggregate": Traits(stateful=True, windowed=True, max_inputs=None, summary="aggregates per key and window"),
    "window-join": Traits(
        stateful=True, windowed=True, min_inputs=2, max_inputs=None, summary="tuples of several inputs near in time"
    ),
    "enrich": Traits(stateful=False, max_inputs=None, summary="more columns, at a cost that may depend on the tuple"),
}


def combinable(operators: Iterable[OperatorSpec]) -> dict[str, bool]:
    """Return whether the state of a key may be gathered in parts, by operator, of those that are built in."""
    return {
        operator.name: BUILTINS[operator.run].combinable and operator.options.get("emit") != "tuples"
        for operator in operators
        if operator.run in BUILTINS and BUILTINS[operator.run].stateful
    }
