"""DKG's learners: in parts, merged in any order, they find what one of the whole stream finds."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streamtopology.lab.groupings.dkg_learning import DkgLearning


@settings(max_examples=80)
@given(
    parts=st.lists(st.lists(st.integers(0, 40), max_size=60), min_size=1, max_size=6),
    order=st.randoms(use_true_random=False),
    eps=st.sampled_from([0.05, 0.1, 0.25]),
)
def test_learners_merged_in_any_order_find_all_heavy_hitters_and_only_near_ones(parts, order, eps):
    names = np.random.default_rng(1).integers(0, 2**64, 41, dtype=np.uint64)
    exact = Counter(names[item] for part in parts for item in part)
    assume(exact)
    theta = 2 * eps

    def merged() -> DkgLearning:
        learners = []
        for part in parts:
            learner = DkgLearning.of(eps, 8)
            for batch in np.array_split(names[np.array(part, np.int64)], 3):
                learner.learn(batch, np.ones(len(batch), np.int64))
            learners.append(learner)
        while len(learners) > 1:
            order.shuffle(learners)
            learners[0].merge(learners.pop())
        return learners[0]

    one, other = merged(), merged()
    assert one.buckets.tolist() == other.buckets.tolist()
    assert one.buckets.sum() == exact.total() == one.sketch.total
    for learnt_in_parts in (one, other):
        heavy = dict(zip(*learnt_in_parts.heavy_hitters(theta), strict=True))
        assert set(heavy) >= {item for item, n in exact.items() if n >= theta * exact.total()}
        for item, estimate in heavy.items():
            assert exact[item] <= estimate <= exact[item] + eps * exact.total()


def test_learners_of_different_mappings_do_not_add_up():
    with pytest.raises(ValueError, match="4 buckets and 6"):
        DkgLearning.of(0.1, 4).merge(DkgLearning.of(0.1, 6))
