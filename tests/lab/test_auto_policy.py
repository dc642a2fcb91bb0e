"""The simulated policy `auto`: split keys are levelled, merged at home and planned; where they cannot be, it is a table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streamtopology.lab.simulate.auto import AutoContender, start
from streamtopology.lab.simulate.comparison import Comparison, Result, Site
from streamtopology.lab.simulate.site import Batch
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.topology.groupings import GROUPINGS

COST, ROWS = 10e-6, 100_000
SITE = Site(*("counts", 4, (1.0, 1.0, 1.0, 0.3), "mixed"), combinable=True, fixed_seconds=0.02, most_part_seconds=3e-6)
# All end together, with their fixed seconds.
CEILING = (ROWS * COST / 3.3) / ((ROWS * COST + 4 * 0.02) / 3.3)


def batches(count: int, hot: float, moves: int = 1_000) -> list[Batch]:
    random = np.random.default_rng(3)
    others = random.integers(100, 20_000, (count, ROWS))
    keys = [np.where(random.random(ROWS) < hot, number // moves, others[number]) for number in range(count)]
    return [Batch.of(hash_int64(of_batch), COST) for of_batch in keys]


def compared(site: Site, stream: list[Batch]) -> tuple[dict[str, Result], AutoContender]:
    judged = AutoContender(site, 1)
    comparison = Comparison(site, {"mixed": GROUPINGS["mixed"]}, 1, [judged, AutoContender(site, 1, apart=False)])
    for batch in stream:
        comparison.take(batch)
    return {result.policy: result for result in comparison.results()}, judged


def test_hot_key_is_split_and_its_merging_is_all_that_is_lost() -> None:
    results, judged = compared(SITE, batches(15, 0.6))
    line = ROWS * COST / 3.3 / CEILING
    assert results["auto"].share_of_bound == pytest.approx(ROWS * COST / 3.3 / (line + 0.02), rel=0.01)
    assert results["auto, carried"].share_of_bound == pytest.approx(CEILING, rel=0.01)
    assert results["auto"].merging == pytest.approx(0.02 / (line + 0.02), rel=0.05)
    assert results["mixed"].share_of_bound < 0.6
    table = judged.route.table
    assert table is not None
    assert table.splits.hashes.tolist() == hash_int64(np.array([0])).tolist()
    assert int(table.lookup(table.splits.hashes)[0]) != 3, "the slow instance is no home"


def test_hot_key_that_moves_costs_no_slow_batch() -> None:
    results, _ = compared(SITE, batches(24, 0.6, moves=5))
    rates = np.array(results["auto"].rows_per_second_of[6:])
    assert np.median(rates) / rates.min() < 1.3
    assert results["auto"].share_of_bound > 0.77


def test_state_that_cannot_be_combined_is_never_split() -> None:
    results, judged = compared(replace(SITE, combinable=False), batches(15, 0.6))
    assert results["auto"].share_of_bound >= 0.98 * results["mixed"].share_of_bound
    assert (results["auto"].merging, results["auto"].copies) == (0.0, 1.0)
    table = judged.route.table
    assert table is not None
    assert not len(table.splits)


def test_keys_that_balance_whole_are_not_split() -> None:
    results, judged = compared(replace(SITE, cpu=(1.0,) * 4), batches(12, 0.0))
    assert results["auto"].share_of_bound >= 0.99 * results["mixed"].share_of_bound
    table = judged.route.table
    assert table is not None
    assert not len(table.splits)
    assert results["auto"].copies == 1.0


def test_reports_of_a_poured_batch_have_each_row_once() -> None:
    judged, stream = AutoContender(SITE, 1), batches(4, 0.6)
    seen = np.unique(np.concatenate([batch.keys for batch in stream]))
    for batch in stream[:3]:
        judged.take(batch, seen, ROWS * COST / 3.3)
    dealt = judged.deal(stream[3], seen)
    assert sum(report.rows for report in dealt.reports) == ROWS
    for report in dealt.reports:
        assert int(report.heavy_rows.sum() + report.bucket_rows.rows.sum()) == report.rows
    hot = hash_int64(np.array([0]))[0]
    of_key = [int(report.heavy_rows[report.heavy_hashes == hot].sum()) for report in dealt.reports]
    assert sum(of_key) == int(stream[3].rows[stream[3].keys == hot][0])
    assert all(of_key), "every instance has a part of it"


def test_turns_of_routers_start_apart() -> None:
    assert len({start(turn) % 2**32 for turn in range(10_000)}) == 10_000
