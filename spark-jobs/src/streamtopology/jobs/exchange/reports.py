"""Reports of tasks to the driver, as they travel in envelopes: one byte for the type, then JSON.

Driver and executors run the same version, so that the JSON needs no compatibility with others.
"""

from __future__ import annotations

import json

from streamtopology.contract.wire_values import from_wire, to_wire
from streamtopology.jobs.plan.results import InstanceResult, MovedState, SourceResult, TaskFailure

Report = InstanceResult | SourceResult | MovedState | TaskFailure

_KINDS: dict[bytes, type[Report]] = {b"I": InstanceResult, b"S": SourceResult, b"M": MovedState, b"F": TaskFailure}
_LETTERS = {kind: letter for letter, kind in _KINDS.items()}


def encode(report: Report) -> bytes:
    return _LETTERS[type(report)] + json.dumps(to_wire(report)).encode()


def decode(payload: bytes) -> Report:
    letter = payload[:1]
    if letter not in _KINDS:
        raise ValueError(f"unknown report {letter!r}: driver and executors run different versions; run one version on all")
    return from_wire(_KINDS[letter], json.loads(payload[1:]))
