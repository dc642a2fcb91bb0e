"""The batches of a run, and which version of a source or operator each of them had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from support.differential.case import Source, Spec, Version


@dataclass(frozen=True)
class Batch:
    """A committed batch: its rows by source (none: a batch without rows), and whether it ends the input for good."""

    number: int
    rows: Mapping[str, pa.Table]
    version: Version
    final: bool = False


@dataclass(frozen=True)
class Era:
    """An operator from batch `first` to batch `last`."""

    first: int
    last: int
    spec: Spec


@dataclass(frozen=True)
class Life:
    """An operator from its first batch to its last. Under another name it is another operator, with no state."""

    name: str
    eras: tuple[Era, ...]


def lives(batches: Sequence[Batch]) -> list[Life]:
    """The lives of all operators; each comes after those that it ever read."""
    found: dict[str, list[Era]] = {}
    for batch in batches:
        for spec in batch.version.operators:
            eras = found.setdefault(spec["name"], [])
            if eras and eras[-1].spec == spec:
                eras[-1] = Era(eras[-1].first, batch.number, spec)
            else:
                eras.append(Era(batch.number, batch.number, spec))
    return _in_order([Life(name, tuple(eras)) for name, eras in found.items()])


def source_of(batch: Batch, name: str) -> Source | None:
    """The source as the batch read it."""
    return next((source for source in batch.version.sources if source.name == name), None)


def _in_order(found: list[Life]) -> list[Life]:
    names, ordered = {life.name for life in found}, list[Life]()
    while len(ordered) < len(found):
        done = {life.name for life in ordered}
        ordered += [life for life in found if life.name not in done and _read(life) & names <= done]
    return ordered


def _read(life: Life) -> set[str]:
    items = [item for era in life.eras for item in era.spec["inputs"]]
    return {item["from"] if isinstance(item, Mapping) else item for item in items}
