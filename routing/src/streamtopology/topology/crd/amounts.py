"""Checks of the admission policy for CPU, memory and storage, which a pod takes as a text, a whole number or a fraction.

The schema cannot say that: its `int-or-string` refuses `cpu: 0.5`. Its rules do not see a field without a type, a policy
does.
"""

from __future__ import annotations

from collections.abc import Iterator

from streamtopology.topology.checks import DRIVER_TOO_SMALL, EXECUTOR_TOO_SMALL, STORAGE_TOO_SMALL
from streamtopology.topology.crd.fields import Schema
from streamtopology.topology.crd.rules import sentence
from streamtopology.topology.limits import LEAST_DRIVER_MEMORY, LEAST_EXECUTOR_MEMORY, LEAST_STORAGE
from streamtopology.topology.quantities import (
    CPU_EXPECTED,
    MEMORY_EXPECTED,
    MOST_CORES,
    NEGATIVE,
    NUMBER_AND_WORD,
    STORAGE_EXPECTED,
    UNITS,
    WITHOUT_CPU,
)

# Of an amount `a` of the variables: its place in the manifest, the value as text, and as sentences show it.
_PLACE, _TEXT, _SHOWN = "a[0]", "a[1]", "a[2]"

_IS_QUANTITY = f"isQuantity({_TEXT}) && {_TEXT}.matches('[0-9]')"

_EXECUTORS = "object.spec.executors"
_DRIVER = "('driver' in object.spec ? [object.spec.driver] : [])"
_MIGRATION = "('migration' in object.spec ? [object.spec.migration] : [])"
_STATES = "object.spec.operators.filter(o, 'state' in o).map(o, o.state)"
_JOB = f"{_MIGRATION}.filter(m, 'resources' in m).map(m, m.resources)"

_OF_EXECUTOR, _OF_DRIVER, _OF_MIGRATION, _OF_JOB, _OF_STATE = (
    "'spec.executors, ' + x.name + ': '", "'spec.driver.'", "'spec.migration.'", "'spec.migration.resources.'",
    "'spec.operators[].state.'",
)  # fmt: skip


def variables() -> dict[str, str]:
    """The amounts of a manifest, by kind."""
    memory = (
        "variables.executorsMemory",
        "variables.driversMemory",
        _amounts(_MIGRATION, _OF_MIGRATION, "threshold"),
        _amounts(_MIGRATION, _OF_MIGRATION, "portion"),
        _amounts(_JOB, _OF_JOB, "memory"),
        _amounts(_STATES, _OF_STATE, "memory"),
    )
    owners = ((_EXECUTORS, _OF_EXECUTOR), (_DRIVER, _OF_DRIVER), (_JOB, _OF_JOB))
    return {
        "cpus": " + ".join(_amounts(of, place, "cpu") for of, place in owners),
        "executorsMemory": _amounts(_EXECUTORS, _OF_EXECUTOR, "memory"),
        "driversMemory": _amounts(_DRIVER, _OF_DRIVER, "memory"),
        "memory": " + ".join(memory),
        "storage": " + ".join(_amounts(of, place, "storage") for of, place in owners),
    }


def validations() -> Iterator[Schema]:
    quantity = f"quantity({_TEXT})"
    against_zero = f"{quantity}.compareTo(quantity('0'))"
    is_negative = f"{against_zero} < 0"
    yield from _checks("cpus", CPU_EXPECTED, [
        (is_negative, NEGATIVE),
        (f"{against_zero} == 0", WITHOUT_CPU),
        (f"{quantity}.compareTo(quantity('{MOST_CORES}')) > 0", f"at most {MOST_CORES} cores"),
    ])  # fmt: skip
    yield from _checks("memory", MEMORY_EXPECTED, [(is_negative, NEGATIVE)])
    yield from _checks("storage", STORAGE_EXPECTED, [(is_negative, NEGATIVE)])
    bytes_found = f"({quantity}.isInteger() ? string({quantity}.asInteger()) : {_TEXT}) + ' bytes'"
    for items, least, why in (
        ("executorsMemory", LEAST_EXECUTOR_MEMORY, EXECUTOR_TOO_SMALL),
        ("driversMemory", LEAST_DRIVER_MEMORY, DRIVER_TOO_SMALL),
        ("storage", LEAST_STORAGE, STORAGE_TOO_SMALL),
    ):
        is_small = f"{_IS_QUANTITY} && {against_zero} >= 0 && {quantity}.compareTo(quantity('{least}')) < 0"
        yield _check(items, is_small, f"found %s, {why}", bytes_found)


def _amounts(owners: str, place: str, name: str) -> str:
    """The amounts with that name of these mappings."""
    value = f"x.{name}"
    is_text, is_number = f"type({value}) == string", f"(type({value}) == int || type({value}) == double)"
    text = f"{is_text} || {is_number} ? string({value}) : 'of another kind'"
    shown = f"{is_text} ? '\\'' + {value} + '\\'' : {is_number} ? string({value}) : 'another kind'"
    return f"{owners}.filter(x, '{name}' in x && {value} != null).map(x, [{place} + '{name}', {text}, {shown}])"


def _checks(items: str, expected: str, checks: list[tuple[str, str]]) -> Iterator[Schema]:
    """A check for what is no quantity, with or without a unit, and those for quantities; one mistake is one sentence."""
    strange, of_a_unit = f"!({_IS_QUANTITY})", f"{_TEXT}.matches('^{NUMBER_AND_WORD}$')"
    yield _check(items, f"{strange} && !{of_a_unit}", f"found %s, expected {expected}")
    yield _check(items, f"{strange} && {of_a_unit}", f"found %s, expected {expected}: {UNITS}")
    for wrong, why in checks:
        yield _check(items, f"{_IS_QUANTITY} && {wrong}", f"found %s, expected {expected}: {why}")


def _check(items: str, wrong: str, words: str, shown: str = _SHOWN) -> Schema:
    return {
        "expression": f"!variables.{items}.exists(a, {wrong})",
        "messageExpression": f"variables.{items}.filter(a, {wrong}).map(a, {sentence(f'%s: {words}', _PLACE, shown)})[0]",
        "message": words.replace("%s", "..."),
    }
