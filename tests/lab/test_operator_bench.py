"""The bench of the operator measures one shard of several among the topologies of all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtopology.jobs.errors import WrongUse
from streamtopology.k8s.settings import read_settings
from streamtopology.lab.bench.operator import environment_of, shares


def test_five_shards_of_five_thousand_have_a_thousand_each() -> None:
    assert shares(5000, 5) == [1000] * 5
    assert shares(100, 1) == [100]


@given(st.integers(1, 60), st.integers(1, 60))
def test_shards_share_all_topologies_evenly_or_are_refused(topologies: int, shards: int) -> None:
    if shards > topologies:
        with pytest.raises(WrongUse, match=f"{shards} shards of {topologies} topologies"):
            shares(topologies, shards)
        return
    counts = shares(topologies, shards)
    assert (len(counts), sum(counts)) == (shards, topologies)
    assert max(counts) - min(counts) <= 1
    assert min(counts) > 0


def test_shards_operator_watches_its_namespace_and_a_lone_one_all() -> None:
    assert read_settings([], environment_of("shard-2", 8000, watches_own=True)).namespaces == ("shard-2",)
    assert read_settings([], environment_of("bench-1", 8000, watches_own=False)).namespaces == ()
