"""Rows by bucket say what dense counters say, however many buckets have rows, in bytes of those that have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.contract.wire_values import from_wire, to_wire
from streamtopology.routing.control.slot_model import SlotModel
from streamtopology.routing.load.bucket_rows import MOST_BUCKETS, NO_BUCKETS, BucketRows
from streamtopology.routing.load.load_report import LoadReport, merge
from streamtopology.routing.load.load_sum import LoadSum
from streamtopology.routing.load.planner_load import planner_load_of
from streamtopology.routing.table.table import bucket_of

Dense = npt.NDArray[np.int64]

COUNT = 40
MODEL = SlotModel(np.array([1.0, 0.7]), {"count": 900.0}, {"count": np.full(2, 900.0)}, {"count": np.zeros(2)})

few = st.dictionaries(st.integers(0, COUNT - 1), st.integers(1, 2**40), max_size=4)
every = st.lists(st.integers(1, 300), min_size=COUNT, max_size=COUNT).map(lambda rows: dict(enumerate(rows)))
counters = (few | every).map(lambda rows: np.array([rows.get(bucket, 0) for bucket in range(COUNT)], np.int64))


def report(dense: Dense, instance: int, keys: Sequence[int], seconds: float) -> LoadReport:
    rows = np.array([10 + key % 7 for key in keys], np.int64)
    return LoadReport(
        "count", instance, instance % 2, int(dense.sum() + rows.sum()), 2.0, 2.0,
        heavy_hashes=np.array(keys, np.uint64), heavy_rows=rows, heavy_seconds=np.full(len(keys), seconds),
        heavy_bytes=np.full(len(keys), 48, np.int64), heavy_labels=("",) * len(keys), bucket_rows=BucketRows.of(dense),
    )  # fmt: skip


# Dense counters, an instance, and its heavy keys.
given_reports = st.lists(
    st.tuples(counters, st.integers(0, 3), st.sets(st.integers(0, 2**64 - 1), max_size=3).map(sorted)), min_size=1, max_size=5
)


@given(counters)
def test_counters_come_back_from_memory_and_from_the_wire(dense: Dense) -> None:
    sparse = BucketRows.of(dense)
    back = from_wire(BucketRows, json.loads(json.dumps(to_wire(sparse))))
    for one in (sparse, back):
        assert one.dense().tolist() == dense.tolist()
        assert one.numbers.tolist() == np.flatnonzero(dense).tolist()


@settings(max_examples=60)
@given(given_reports, st.integers(0, 6))
def test_merged_reports_have_the_sum_of_dense_counters(given: list[tuple[Dense, int, list[int]]], max_heavy: int) -> None:
    reports = [report(dense, instance, keys, 0.0) for dense, instance, keys in given]
    merged, exact = merge(reports, max_heavy), merge(reports, None)
    expected = np.stack([dense for dense, _, _ in given]).sum(axis=0)
    light = ~np.isin(exact.heavy_hashes, merged.heavy_hashes)
    np.add.at(expected, bucket_of(exact.heavy_hashes[light], COUNT), exact.heavy_rows[light])
    assert merged.bucket_rows.dense().tolist() == expected.tolist()


@settings(max_examples=60)
@given(given_reports, st.integers(0, 6))
def test_load_sums_have_the_sums_of_dense_counters_by_instance(
    given: list[tuple[Dense, int, list[int]]], max_heavy: int
) -> None:
    summed = LoadSum.of([report(dense, instance, keys, 0.0) for dense, instance, keys in given], max_heavy).reports()
    assert sum(len(one.heavy_hashes) for one in summed) <= max_heavy
    for one in summed:
        mine = [(dense, keys) for dense, instance, keys in given if instance == one.instance]
        keys = np.array([key for _, named in mine for key in named], np.uint64)
        rows = 10 + (keys % np.uint64(7)).astype(np.int64)
        expected = np.stack([dense for dense, _ in mine]).sum(axis=0)
        light = ~np.isin(keys, one.heavy_hashes)
        np.add.at(expected, bucket_of(keys[light], COUNT), rows[light])
        assert one.bucket_rows.dense().tolist() == expected.tolist()


@settings(max_examples=60)
@given(given_reports, st.sampled_from([0.0, 0.001]))
def test_planners_load_is_that_of_dense_counters_to_the_bit(given: list[tuple[Dense, int, list[int]]], seconds: float) -> None:
    load = planner_load_of([report(dense, instance, keys, seconds) for dense, instance, keys in given], 3, MODEL)
    expected = np.zeros(COUNT, np.int64)
    for dense, instance, keys in given:
        if seconds and keys:  # tuples are timed: rows of average cost
            light = (2.0 - float(np.full(len(keys), seconds).sum())) * (900.0 * float(MODEL.speeds[instance % 2]))
            dense = np.round(dense * (light / max(int(dense.sum()), 1))).astype(np.int64)
        expected += dense
    assert load.bucket_loads.tolist() == (expected / 3).tolist()


def test_reports_without_buckets_add_nothing() -> None:
    none, some = LoadReport("count", 0, 0, 0, 0.0, 0.0), report(np.arange(COUNT), 0, [], 0.0)
    assert merge([none, none]).bucket_rows.count == 0
    assert merge([none, some]).bucket_rows.dense().tolist() == list(range(COUNT))
    assert NO_BUCKETS.plus(np.array([7], np.uint64), np.array([3])).count == 0
    assert planner_load_of([none], 1, MODEL).bucket_loads.tolist() == []


@pytest.mark.parametrize("count", [4096, 65_536])
@pytest.mark.parametrize("used", [0, 1, 16, 4096])
def test_bytes_in_memory_and_on_the_wire_are_of_buckets_with_rows(count: int, used: int) -> None:
    dense = np.zeros(count, np.int64)
    dense[np.linspace(0, count - 1, used).astype(np.int64)] = 1_000
    text = json.dumps(to_wire(BucketRows.of(dense)))
    back = from_wire(BucketRows, json.loads(text))
    assert back.numbers.nbytes + back.rows.nbytes <= 6 * used
    assert back.numbers.base is back.rows.base is None, "nothing larger is kept alive"
    assert len(text) <= 100 + 12 * used


def test_what_does_not_fit_is_refused() -> None:
    one = BucketRows(np.array([3]), np.array([5]), 4)
    for damage in ({"count": 3}, {"numbers": np.array([-1])}, {"rows": np.array([1, 2])}, {"count": MOST_BUCKETS + 1}):
        with pytest.raises(ValueError, match=r"differ in length|is not among|more than anybody has"):
            replace(one, **damage)
    with pytest.raises(ValueError, match="different numbers of buckets"):
        BucketRows.summed([one, BucketRows.without_rows(8)])
