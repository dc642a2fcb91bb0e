"""The limit of writes of each topology."""

from __future__ import annotations

import pytest

from streamtopology.k8s.io.queue import TopologyKey
from streamtopology.k8s.io.reconciler import LEAST_BURST, REFILL_SECONDS, WriteLimit, WritesLimitedError

FLOW, OTHER = TopologyKey("space", "flow"), TopologyKey("space", "other")


def test_writes_of_a_topology_are_limited_and_those_of_others_are_not():
    now = [0.0]
    limit = WriteLimit(lambda: now[0])
    for _ in range(LEAST_BURST):
        limit.spend(FLOW, 0)
    with pytest.raises(WritesLimitedError, match="space/flow: no write for 30 s"):
        limit.spend(FLOW, 0)
    limit.spend(OTHER, 0)
    now[0] += REFILL_SECONDS / 2
    for _ in range(LEAST_BURST // 2):
        limit.spend(FLOW, 0)
    with pytest.raises(WritesLimitedError):
        limit.spend(FLOW, 0)


def test_a_topology_with_more_objects_has_more_writes():
    limit = WriteLimit(lambda: 0.0)
    for _ in range(LEAST_BURST + 400):
        limit.spend(FLOW, 100)
    with pytest.raises(WritesLimitedError):
        limit.spend(FLOW, 100)
