"""The heaviest keys on the page, from the load reports of the newest batch. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from streamtopology.contract.formatting import clipped
from streamtopology.contract.page import MOST_LABEL, MOST_SHORT_LABEL, HeaviestKey, KeyOwner, KeySummary, PageKey
from streamtopology.contract.reasons import PARTIAL
from streamtopology.jobs.observe.fair_share import Loads
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.jobs.view.page.figures import rounded
from streamtopology.routing.epochs.epoch import Epoch
from streamtopology.routing.load.load_report import LoadReport

MOST_KEYS = 12
# Owners that are named of a key that is split over more.
MOST_OWNERS = 4


@dataclass(frozen=True)
class ShownKey:
    """A heavy key of one stage: `rows` of `of_rows`, and by slot; `seconds` of busy time, by the stage's mean cost."""

    stage: str
    hash: int
    label: str
    state_bytes: int
    rows: int
    of_rows: int
    seconds: float
    by_slot: Mapping[int, int]


def heavy_keys(batch: BatchOutcome, loads: Loads) -> Sequence[ShownKey]:
    """The heaviest keys over all stages by busy time, and at least as many of each that routes by key."""
    weighed: list[ShownKey] = []
    for stage, reports in _routing_stages(batch).items():
        busy = sum(done.seconds for done in loads.work.get(stage, {}).values())
        weighed += _heaviest(stage, reports, busy)
    return sorted(weighed, key=lambda key: (-key.seconds, key.stage, key.hash))


def page_keys(
    weighed: Sequence[ShownKey], batch: BatchOutcome, names: Mapping[int, str], routing: Epoch | None
) -> tuple[tuple[PageKey, ...], tuple[KeySummary, ...]]:
    """The heaviest of them with their owners, and the weight of each operator's."""
    return tuple(_key(key, batch, names, routing) for key in weighed[:MOST_KEYS]), tuple(_summaries(weighed, batch))


def heaviest_of(slot: int, batch: BatchOutcome, loads: Loads) -> HeaviestKey | None:
    """The key with the largest share of what this slot has of one operator."""
    best: HeaviestKey | None = None
    for stage, reports in _routing_stages(batch).items():
        rows = loads.work.get(stage, {}).get(slot)
        mine = [report for report in reports if report.slot == slot and len(report.heavy_rows)]
        if rows is None or not rows.rows or not mine:
            continue
        report = max(mine, key=lambda one: int(one.heavy_rows.max()))
        at = int(report.heavy_rows.argmax())
        share = min(1.0, float(report.heavy_rows[at]) / rows.rows)
        if best is None or share > best.share:
            best = HeaviestKey(stage.removesuffix(PARTIAL), clipped(report.heavy_labels[at], MOST_SHORT_LABEL), rounded(share))
    return best


def _routing_stages(batch: BatchOutcome) -> Mapping[str, Sequence[LoadReport]]:
    """Stage -> its reports; of an operator whose keys are split, the stage that gets its rows."""
    stages: dict[str, list[LoadReport]] = {}
    for report in batch.reports:
        stages.setdefault(report.operator, []).append(report)
    return {stage: reports for stage, reports in stages.items() if stage + PARTIAL not in stages}


def _heaviest(stage: str, reports: Sequence[LoadReport], busy: float) -> Sequence[ShownKey]:
    hashes = np.concatenate([report.heavy_hashes for report in reports])
    if not len(hashes):
        return ()
    rows = np.concatenate([report.heavy_rows for report in reports])
    of = np.repeat(np.arange(len(reports)), [len(report.heavy_hashes) for report in reports])
    unique, inverse = np.unique(hashes, return_inverse=True)
    sums = np.bincount(inverse, weights=rows, minlength=len(unique))
    of_rows = sum(report.rows for report in reports)
    weighed: list[ShownKey] = []
    for chosen in np.argsort(-sums, kind="stable")[:MOST_KEYS]:
        holders = [reports[at] for at in of[inverse == chosen]]
        key, total = int(unique[chosen]), int(sums[chosen])
        if total > 0:
            seconds = busy * total / of_rows if of_rows else 0.0
            weighed.append(
                ShownKey(stage, key, *_label_and_state(key, holders), total, of_rows, seconds, _by_slot(key, holders))
            )
    return weighed


def _place(key: int, report: LoadReport) -> int:
    """The index of a key that the report has: they are sorted by hash."""
    return int(np.searchsorted(report.heavy_hashes, np.uint64(key)))


def _label_and_state(key: int, holders: Sequence[LoadReport]) -> tuple[str, int]:
    label = holders[-1].heavy_labels[_place(key, holders[-1])]
    return label, sum(int(report.heavy_bytes[_place(key, report)]) for report in holders)


def _by_slot(key: int, holders: Sequence[LoadReport]) -> Mapping[int, int]:
    rows: dict[int, int] = {}
    for report in holders:
        rows[report.slot] = rows.get(report.slot, 0) + int(report.heavy_rows[_place(key, report)])
    return rows


def _key(key: ShownKey, batch: BatchOutcome, names: Mapping[int, str], routing: Epoch | None) -> PageKey:
    route = routing.routes.get(key.stage) if routing is not None else None
    table = route.table if route is not None else None
    has_entry = table is not None and bool(table.has_entry(np.array([key.hash], np.uint64))[0])
    first = sorted(key.by_slot, key=lambda slot: (-key.by_slot[slot], slot))[:MOST_OWNERS]
    return PageKey(
        operator=key.stage.removesuffix(PARTIAL),
        hash=f"{key.hash:016x}",
        label=clipped(key.label, MOST_LABEL),
        share=rounded(key.rows / key.of_rows),
        rows_per_second=rounded(key.rows / batch.seconds) if batch.seconds > 0 else None,
        owners=tuple(KeyOwner(slot, names.get(slot, f"slot {slot}"), rounded(key.by_slot[slot] / key.rows)) for slot in first),
        owned_by=len(key.by_slot),
        entry=has_entry,
        state_bytes=key.state_bytes,
    )


def _summaries(weighed: Sequence[ShownKey], batch: BatchOutcome) -> Sequence[KeySummary]:
    summaries: list[KeySummary] = []
    for stage in dict.fromkeys(key.stage for key in weighed):
        mine = [key for key in weighed if key.stage == stage]
        operator = stage.removesuffix(PARTIAL)
        total = sum(report.state_keys for report in batch.reports if report.operator == operator)
        if total:
            share = min(1.0, sum(key.rows for key in mine) / mine[0].of_rows)
            summaries.append(KeySummary(operator, len(mine), total, rounded(share)))
    return summaries
