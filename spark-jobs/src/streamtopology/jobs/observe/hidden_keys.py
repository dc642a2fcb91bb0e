"""The switch that keeps the stream's keys from all who may look at a run: hashes are shown in their place.

A hash tells nobody a key, but shows whether a key that somebody guesses is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from streamtopology.contract.environment import HIDE_KEYS
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.routing.load.load_report import LoadReport


def hides_keys(environ: Mapping[str, str]) -> bool:
    """Return whether the user wants keys hidden. Raises WrongUse."""
    asked = environ.get(HIDE_KEYS, "false")
    if asked not in ("true", "false"):
        raise WrongUse(f"{HIDE_KEYS}={asked!r}: expected true or false")
    return asked == "true"


def with_hidden_keys(batch: BatchOutcome) -> BatchOutcome:
    """The batch with the hash of each key in the place of its text."""
    return replace(batch, reports=tuple(_hidden(report) for report in batch.reports))


def _hidden(report: LoadReport) -> LoadReport:
    return replace(report, heavy_labels=tuple(f"{key:016x}" for key in report.heavy_hashes.tolist()))
