"""The label of a key that is known by its hash, as load reports have it: of a run that hides keys they have none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from streamtopology.contract.formatting import clipped
from streamtopology.contract.reasons import Binding, EpochReason
from streamtopology.routing.load.load_report import LoadReport

# Characters of a key in a sentence.
MOST_LABEL = 32


def with_label(bound: Binding, reports: Sequence[LoadReport]) -> Binding:
    """`bound` with the label of its key as these reports have it; the hash stays where they have none."""
    return replace(bound, key=label_of(bound.stage, bound.key, reports)) if bound.key else bound


def with_labels(reason: EpochReason, reports: Sequence[LoadReport]) -> EpochReason:
    """`reason` with the labels of all keys in what was weighed, likewise."""
    weighed = reason.weighed
    if weighed is None:
        return reason
    keys = (replace(move, key=label_of(move.stage, move.key, reports)) for move in weighed.keys)
    links = (
        replace(
            link,
            key=label_of(link.stage, link.key, reports),
            next_key=label_of(link.next_stage, link.next_key, reports),
        )
        for link in weighed.links
    )
    bound = None if weighed.binding is None else with_label(weighed.binding, reports)
    return replace(reason, weighed=replace(weighed, binding=bound, keys=tuple(keys), links=tuple(links)))


def label_of(stage: str, key: str, reports: Sequence[LoadReport]) -> str:
    """The label of the key with this hash; `key` itself where it is no hash, as in an epoch that others have written."""
    if not re.fullmatch(r"[0-9a-f]{16}", key):
        return key
    wanted = int(key, 16)
    for report in reports:
        if report.operator == stage:
            at = int(np.searchsorted(report.heavy_hashes, np.uint64(wanted)))
            if at < len(report.heavy_hashes) and int(report.heavy_hashes[at]) == wanted:
                return clipped(_printable(report.heavy_labels[at]), MOST_LABEL) or key
    return key


def _printable(label: str) -> str:
    """The label without what would move a terminal's cursor, turn a line around, or be no character: others own the keys."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in label)
