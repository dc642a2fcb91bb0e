"""The simulated streams of `bench auto`: their shares of keys, and the bars against what today's policies reach."""

from __future__ import annotations

import numpy as np
import pytest

from streamtopology.lab.bench import auto
from streamtopology.lab.bench.auto import CASES, QUICK, Case
from streamtopology.lab.bench.auto_chain import CHAIN_CASES, POLICIES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_shares_of_keys_sum_to_one_in_every_batch(case: Case):
    for number in range(QUICK.batches):
        assert case.shares(QUICK, number).sum() == pytest.approx(1)


def test_hot_key_has_its_share_and_moves():
    heaviest = [int(np.argmax(auto.hot_moves(QUICK, number))) for number in range(13)]
    assert heaviest == [0] * 6 + [1] * 6 + [2]
    assert auto.hot_moves(QUICK, 6)[1] == pytest.approx(0.6 + 0.4 / QUICK.keys)


def test_executor_is_slowed_in_the_last_third_of_one_stream():
    slowed = [case for case in CASES if case.cpu_at(QUICK, QUICK.batches - 1) != case.cpu]
    assert [case.name for case in slowed] == ["the same, an executor slowed to half, whole run"]
    assert slowed[0].cpu_at(QUICK, 9) == (1.0, 1.0, 1.0, 0.3)
    assert slowed[0].cpu_at(QUICK, 10) == (0.5, 1.0, 1.0, 0.3)


def test_quick_run_has_every_stream_policy_and_bar():
    lines = auto.run(runs=1, quick=True)["results"]
    shares = {line["case"]: line["median"] for line in lines if line["metric"] == "share of bound"}
    bars = {line["case"]: line for line in lines if line["metric"] == "bar of auto"}
    chains = {f"{case.name}, {policy}" for case in CHAIN_CASES for policy in POLICIES}
    assert shares.keys() == chains | {f"{case.name}, {policy}" for case in CASES for policy in case.policies}
    assert bars.keys() == {case.name for case in (*CASES, *CHAIN_CASES)}
    assert all(0 < share <= 1.0001 for share in shares.values())
    for case in CASES:
        met = shares[f"{case.name}, {case.judged}"] >= bars[case.name]["median"]
        assert bars[case.name]["unit"] == f"{'met' if met else 'missed'} by {case.judged}"
    slowest = [line for line in lines if line["metric"] == "slowest batch to median"]
    assert [line["case"] for line in slowest] == ["60 % key moves every 6 batches, auto"]
    not_combinable = bars["one key 60 %, not combinable"]["median"]
    assert not_combinable == pytest.approx(0.98 * shares["one key 60 %, not combinable, mixed"])


@pytest.mark.long
def test_same_seed_gives_the_same_shares():
    assert auto.run(runs=1, quick=True)["results"] == auto.run(runs=1, quick=True)["results"]
