"""Traits of the built-in operators, declared so that a manifest can be checked without Spark or their code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from streamtopology.topology import groupings
from streamtopology.topology.values import OperatorSpec

# Instead of a time column: the processing time of a tuple's batch.
NOW = "now()"


@dataclass(frozen=True)
class Traits:
    """The properties of an operator that validation needs.

    `stateful`: keeps something per key between rows, so each key needs one home.
    `combinable`: partial results of one key from several instances can be merged, so a policy may split its keys.
    `windowed`: closes windows by event time, so its sources need a watermark; where `windowed_with` names an option, with it.
    `by_clock`: its windows may be of processing time, where its option `time` is `NOW`.
    `min_inputs`, `max_inputs`: how many inputs it takes (None: any number).
    """

    stateful: bool
    combinable: bool = False
    windowed: bool = False
    windowed_with: str = ""
    by_clock: bool = False
    min_inputs: int = 1
    max_inputs: int | None = 1
    summary: str = ""


BUILTINS: Mapping[str, Traits] = {
    "count": Traits(stateful=True, combinable=True, max_inputs=None, summary="tuples per key"),
    "aggregate": Traits(stateful=True, combinable=True, max_inputs=None, summary="sum, mean, min, max, count and more per key"),
    "top-k": Traits(stateful=True, combinable=True, max_inputs=None, summary="the k ids with the largest values per key"),
    "quantiles": Traits(stateful=True, combinable=True, max_inputs=None, summary="quantiles of a column per key"),
    "map": Traits(stateful=False, max_inputs=None, summary="new columns by SQL expressions"),
    "filter": Traits(stateful=False, max_inputs=None, summary="the tuples for which a SQL condition holds"),
    "window-aggregate": Traits(
        stateful=True, combinable=True, windowed=True, by_clock=True, max_inputs=None, summary="aggregates per key and window"
    ),
    "session-window": Traits(
        stateful=True, combinable=True, windowed=True, max_inputs=None, summary="aggregates per key and session"
    ),
    "window-join": Traits(
        stateful=True,
        windowed=True,
        windowed_with="time",
        min_inputs=2,
        max_inputs=None,
        summary="tuples of several inputs that meet",
    ),
    "deduplicate": Traits(
        stateful=True, windowed=True, windowed_with="time", max_inputs=None, summary="the first tuple per key"
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


def windowed(operator: OperatorSpec) -> bool:
    """Return whether an operator, one that is built in, goes by event time, so that rows may be late for it."""
    return _closes(operator) and not (BUILTINS[operator.run].by_clock and operator.options.get("time") == NOW)


def _closes(operator: OperatorSpec) -> bool:
    """Return whether it closes windows, by any time."""
    traits = BUILTINS[operator.run]
    return traits.windowed and (not traits.windowed_with or operator.options.get(traits.windowed_with) is not None)


def poured(operators: Sequence[OperatorSpec]) -> frozenset[str]:
    """Return those of `operators`, all of a topology in flow order, whose rows routers may pour over instances.

    Those are built in, and keep no state, or one whose parts can be combined. Parts reach their key's home a batch later, when
    a window may be closed; so do the rows emitted then, which must not be late for an operator behind, and of a class of a
    user's own that is not known.
    """
    known = [one for one in operators if one.run in BUILTINS and _pours(one.grouping.policy)]
    in_parts = combinable(known)
    in_time = _awaited_by_windows(operators)
    return frozenset(
        one.name
        for one in known
        if not BUILTINS[one.run].stateful or (in_parts.get(one.name, False) and not _closes(one) and one.name not in in_time)
    )


def _pours(policy: str) -> bool:
    spec = groupings.GROUPINGS.get(policy)
    return spec is not None and spec.pours


def _awaited_by_windows(operators: Sequence[OperatorSpec]) -> set[str]:
    """The operators whose rows reach one that may leave out late rows, however many operators lie between."""
    awaited: set[str] = set()
    for operator in reversed(operators):
        if operator.name in awaited or operator.run not in BUILTINS or windowed(operator):
            awaited.update(given.source for given in operator.inputs)
    return awaited
