"""The label of a key that is known by its hash, as load reports have it: of a run that hides keys they have none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from streamtopology.contract.formatting import clipped
from streamtopology.contract.reasons import Binding
from streamtopology.routing.load.load_report import LoadReport

MOST_LABEL = 32
"""Characters of a key in a sentence."""


def with_label(bound: Binding, reports: Iterable[LoadReport]) -> Binding:
    """`bound` with the label of its key as these reports have it; the hash stays where they have none."""
    for report in reports:
        if bound.key and report.operator == bound.stage:
            at = int(np.searchsorted(report.heavy_hashes, np.uint64(int(bound.key, 16))))
            if at < len(report.heavy_hashes) and int(report.heavy_hashes[at]) == int(bound.key, 16):
                return replace(bound, key=clipped(report.heavy_labels[at], MOST_LABEL) or bound.key)
    return bound
