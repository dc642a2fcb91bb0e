"""The streams of `mixed-throughput`: they change as section 5 of mixed-routing says, and are the same for every scheme."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.histories import sent_on

from streamtopology.jobs.observe.history import BatchOutcome
from streamtopology.lab.reproduce.on_spark import mixed
from streamtopology.lab.reproduce.on_spark.changing import Changes, write_trades, write_words
from streamtopology.lab.reproduce.on_spark.mixed import MIXED_THROUGHPUT
from streamtopology.lab.simulate.streams import zipf_probabilities
from streamtopology.routing.load.load_report import LoadReport
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.table import RoutingTable

SMALL = {**MIXED_THROUGHPUT.parameters, "rows": 20_000, "trades": 20_000, "words": 5_000, "batches": 6}


def loads(keys: np.ndarray, weights: np.ndarray | None = None, instances: int = 8) -> np.ndarray:
    owners = RoutingTable.uniform(range(instances)).lookup(hash_int64(keys))
    return np.bincount(owners, weights, instances)


@pytest.mark.parametrize("fluctuation", [0.3, 0.8])
def test_from_interval_to_interval_one_instance_gains_f_times_the_mean_by_hash(fluctuation: float):
    changes, keys = Changes(12, 4, 8, fluctuation), np.arange(10_000)
    shares = changes.shares(zipf_probabilities(10_000, 0.85), keys, np.random.default_rng(1))
    assert [changes.interval_of(batch) for batch in (0, 2, 3, 11)] == [0, 0, 1, 3]
    assert changes.first_changed == 3
    for before, after in pairwise(shares):
        grown = loads(keys, after) - loads(keys, before)
        assert grown.max() * 8 == pytest.approx(fluctuation, abs=0.3)
        assert sorted(before) == pytest.approx(sorted(after))  # frequencies have been swapped, no more


@pytest.mark.parametrize("write", [write_words, write_trades])
def test_files_follow_the_shares_of_their_interval_and_only_those(write, tmp_path: Path):
    for name in ("one", "two"):
        write(tmp_path / name, SMALL, 3)
    files, again = (sorted((tmp_path / name).iterdir()) for name in ("one", "two"))
    assert [file.read_bytes() for file in files] == [file.read_bytes() for file in again]
    assert len(files) == SMALL["batches"]
    by_batch = [loads(pq.read_table(file)[0 if write is write_words else 1].to_numpy()) / 20_000 for file in files]
    within = np.abs(by_batch[0] - by_batch[1]).max()
    across = np.abs(by_batch[1] - by_batch[2]).max()
    assert across > 3 * within


def test_throughput_is_by_the_clock_and_ideal_divides_all_work():
    def worked(number: int, busy: tuple[float, float], committed_at: float) -> BatchOutcome:
        reports = [
            LoadReport("counts", instance, instance, rows, seconds, seconds)
            for instance, (rows, seconds) in enumerate(zip((100, 300), busy, strict=True))
        ]
        return replace(sent_on(number, 0, edge=("a", "b")), rows=400, reports=tuple(reports), committed_at=committed_at)

    changes = Changes(batches=4, intervals=2, instances=2, fluctuation=1.0)
    batches = [worked(0, (9, 1), 0), worked(1, (9, 1), 10), worked(2, (1, 3), 15), worked(3, (1, 5), 20)]
    assert mixed.rows_per_second(batches, changes) == 80
    assert mixed.waiting_seconds(batches[3]) == 2
    assert mixed.rows_per_second(batches, changes, divided=True) == pytest.approx(800 / 7)
    assert mixed.unevenness(batches) == 3
