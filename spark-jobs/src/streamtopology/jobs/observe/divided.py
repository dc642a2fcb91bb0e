"""The keys that routers divided over several instances in a batch, from its load reports. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from streamtopology.contract.divided_key import DividedKey
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.routing.load.key_label import label_of
from streamtopology.routing.load.load_report import LoadReport
from streamtopology.topology import groupings

# Divided keys that are named, those with most rows.
MOST_NAMED = 3


@dataclass(frozen=True)
class Divided:
    """`counts`: divided keys by operator whose routers may divide some. `heaviest`: of all operators, most rows first."""

    counts: Mapping[str, int] = field(default_factory=dict)
    heaviest: tuple[DividedKey, ...] = ()


def divided(batch: BatchOutcome, policies: Mapping[str, str]) -> Divided:
    """The divided keys of the batch. A key counts where it is heavy at more than one instance.

    `policies`: by operator; of others than those that pour, keys have one owner, or all are split.
    """
    reports: defaultdict[str, list[LoadReport]] = defaultdict(list)
    for report in batch.reports:
        if _pours(policies.get(report.operator, "")):
            reports[report.operator].append(report)
    counts: dict[str, int] = {}
    heaviest: list[DividedKey] = []
    for operator, of_operator in reports.items():
        counts[operator], named = _of_operator(operator, of_operator)
        heaviest += named
    return Divided(counts, tuple(sorted(heaviest, key=lambda one: (-one.rows, one.operator, one.key))[:MOST_NAMED]))


def _of_operator(operator: str, reports: Sequence[LoadReport]) -> tuple[int, list[DividedKey]]:
    """The number of its divided keys, and the heaviest of them."""
    hashes = np.concatenate([report.heavy_hashes[report.heavy_rows > 0] for report in reports])
    rows = np.concatenate([report.heavy_rows[report.heavy_rows > 0] for report in reports])
    keys, of_key, instances = np.unique(hashes, return_inverse=True, return_counts=True)
    total = np.bincount(of_key, rows, len(keys))
    found = np.flatnonzero(instances > 1)
    first = found[np.argsort(-total[found], kind="stable")][:MOST_NAMED]
    named = [
        DividedKey(operator, label_of(operator, f"{int(keys[at]):016x}", reports), int(total[at]), int(instances[at]))
        for at in first
    ]
    return len(found), named


def _pours(policy: str) -> bool:
    return policy in groupings.GROUPINGS and groupings.GROUPINGS[policy].pours
