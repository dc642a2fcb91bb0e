"""A failing case made smaller: operators, steps, events and rows are left out as long as it fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from support.differential.case import Case, Spec, Step, Version
from support.differential.operators import inputs_of

MOST_TRIES = 200


def shrunk(case: Case, differences: Callable[[Case], list[str]], tries: int = MOST_TRIES) -> Case:
    """The smallest case found whose first difference is of the same kind, after at most `tries` runs."""
    wanted = _kind(differences(case))
    left, is_smaller = tries, True
    while is_smaller:
        is_smaller = False
        for smaller in _smaller(case):
            if not left:
                return case
            left -= 1
            if _kind(differences(smaller)) == wanted:
                case, is_smaller = smaller, True
                break
    return case


def _kind(differences: list[str]) -> str:
    """The subject of the first difference: a sink, the watermark, or the class of the exception that ended the run."""
    first = "".join(differences[:1])
    return ":".join(first.split(":")[: 2 if first.startswith("the run") else 1])


def _smaller(case: Case) -> Iterator[Case]:
    """Smaller cases, those first that leave out most."""
    names = dict.fromkeys(spec["name"] for version in (case.first, *case.versions()) for spec in version.operators)
    for name in reversed(names):
        fewer = _with_versions(case, lambda version, name=name: replace(version, operators=_without(version.operators, name)))
        if all(version.operators for version in (fewer.first, *fewer.versions())):
            yield fewer
    yield from _with_fewer_steps(case)
    for at, step in enumerate(case.steps):
        if step.edit is not None:
            yield _with_step(case, at, replace(step, edit=None))
        for event in step.events:
            yield _with_step(case, at, replace(step, events=tuple(other for other in step.events if other != event)))
    for change in _PLAINER:
        plainer = _with_versions(case, lambda version, change=change: _each_changed(version, change))
        if plainer != case:
            yield plainer
    yield from _with_fewer_rows(case)


def _with_versions(case: Case, change: Callable[[Version], Version]) -> Case:
    steps = tuple(replace(step, edit=step.edit and change(step.edit)) for step in case.steps)
    return replace(case, first=change(case.first), steps=steps)


def _without(operators: tuple[Spec, ...], name: str) -> tuple[Spec, ...]:
    """The operators but that one, and but those that read it."""
    gone = {name}
    for spec in operators:
        if any(item["from"] in gone for item in inputs_of(spec).values()):
            gone.add(spec["name"])
    return tuple(spec for spec in operators if spec["name"] not in gone)


def _each_changed(version: Version, change: Callable[[dict[str, Any]], None]) -> Version:
    changed = []
    for spec in version.operators:
        copy: dict[str, Any] = {**spec, "with": dict(spec.get("with", {}))}
        change(copy)
        changed.append(copy)
    return replace(version, operators=tuple(changed))


def _drop(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda spec: None if spec["run"] == "filter" else (spec.pop(name, None), spec["with"].pop(name, None))[0]


def _hash(spec: dict[str, Any]) -> None:
    key = spec.get("grouping", {}).get("key", ())
    if key:
        spec["grouping"] = {"policy": "fields", "key": key}


_PLAINER = (*map(_drop, ("parallelism", "aggregateEvery", "late", "where", "allowedLateness", "slide", "cost")), _hash)


def _with_fewer_steps(case: Case) -> Iterator[Case]:
    """Without some steps; an edit of theirs is made in the next step."""
    steps = case.steps
    for size in sorted({len(steps) // 2, 1} - {0}, reverse=True):
        for start in range(0, len(steps) - size + 1, size):
            left_out, later = steps[start : start + size], steps[start + size :]
            edit = next((step.edit for step in reversed(left_out) if step.edit is not None), None)
            if edit is not None and later and later[0].edit is None:
                later = (replace(later[0], edit=edit), *later[1:])
            if steps[:start] or later:
                yield replace(case, steps=(*steps[:start], *later))


def _with_fewer_rows(case: Case) -> Iterator[Case]:
    for at, step in enumerate(case.steps):
        for source, table in step.rows.items():
            size = len(table) // 2 or len(table)
            while size:
                for start in range(0, len(table) - size + 1, size):
                    kept = pa.concat_tables([table.slice(0, start), table.slice(start + size)])
                    yield _with_step(case, at, replace(step, rows={**step.rows, source: kept}))
                size = size // 2 if len(table) < 8 or size > len(table) // 4 else 0


def _with_step(case: Case, at: int, step: Step) -> Case:
    return replace(case, steps=(*case.steps[:at], step, *case.steps[at + 1 :]))
