"""Load reports add up without losing a row, stay bounded, and survive the wire."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.contract.wire_values import to_wire
from streamtopology.routing.load.bucket_rows import BucketRows
from streamtopology.routing.load.load_report import MANY, KeyPairs, LoadReport, ReportFormatError, SourceReport, merge

N_BUCKETS = 16


def report_of(rows_per_key: dict[int, int], instance: int = 0, heavy: int = 3, state: int = 100) -> LoadReport:
    """The report that an instance would make of these rows: the `heavy` largest keys by name, the others by bucket."""
    largest = sorted(sorted(rows_per_key), key=lambda key: -rows_per_key[key])[:heavy]
    hashes = np.array(sorted(largest), np.uint64)
    light = [key for key in rows_per_key if key not in largest]
    return LoadReport(
        operator="count",
        instance=instance,
        slot=instance,
        rows=sum(rows_per_key.values()),
        busy_seconds=0.25,
        task_seconds=0.5,
        state_keys=len(rows_per_key),
        state_bytes=state,
        heavy_hashes=hashes,
        heavy_rows=np.array([rows_per_key[int(key)] for key in hashes], np.int64),
        heavy_seconds=np.zeros(len(hashes)),
        heavy_bytes=np.full(len(hashes), state, np.int64),
        heavy_labels=tuple(f"key {key}" for key in hashes),
        bucket_rows=BucketRows.of_keys(np.array(light, np.uint64), np.array([rows_per_key[key] for key in light]), N_BUCKETS),
    )


keys = st.integers(0, 2**64 - 1)
loads = st.dictionaries(keys, st.integers(1, 50), max_size=12)


@settings(max_examples=80)
@given(batches=st.lists(loads, min_size=1, max_size=6), max_heavy=st.integers(0, 8))
def test_merging_keeps_every_row_and_the_bound(batches, max_heavy):
    merged = merge([report_of(rows) for rows in batches], max_heavy)
    assert merged.rows == sum(sum(rows.values()) for rows in batches)
    assert merged.heavy_rows.sum() + merged.bucket_rows.rows.sum() == merged.rows
    assert len(merged.heavy_hashes) <= max_heavy
    assert (merged.heavy_hashes[1:] > merged.heavy_hashes[:-1]).all()


@settings(max_examples=50)
@given(rows=loads)
def test_heavy_keys_are_exact_over_the_instances_of_a_batch(rows):
    owned = [{key: n for key, n in rows.items() if key % 3 == i} for i in range(3)]
    merged = merge([report_of(of_instance, i, heavy=4) for i, of_instance in enumerate(owned)], None)
    assert {int(h): int(n) for h, n in zip(merged.heavy_hashes, merged.heavy_rows, strict=True)} == {
        key: n for of_instance in owned for key, n in sorted(sorted(of_instance.items()), key=lambda item: -item[1])[:4]
    }


def test_state_is_the_last_of_each_instance_and_work_adds_up():
    merged = merge([report_of({1: 5}, 0, state=100), report_of({2: 5}, 1, state=70), report_of({1: 5, 3: 1}, 0, state=130)])
    assert (merged.state_bytes, merged.state_keys) == (200, 3)
    assert (merged.instance, merged.slot) == (MANY, MANY)
    assert (merged.busy_seconds, merged.task_seconds) == (0.75, 1.5)
    assert merged.heavy_bytes.tolist() == [130, 70, 130]
    assert merged.heavy_labels == ("key 1", "key 2", "key 3")


def test_merging_one_instance_over_batches_stays_that_instance():
    merged = merge([report_of({1: 5}, 2), report_of({1: 6}, 2)])
    assert (merged.instance, merged.slot, merged.heavy_rows.tolist()) == (2, 2, [11])


def test_reports_that_do_not_add_up_are_refused():
    with pytest.raises(ValueError, match="no report"):
        merge([])
    with pytest.raises(ValueError, match="'sum'"):
        merge([LoadReport("sum", 0, 0, 1, 0.0, 0.0), report_of({1: 1})])
    with pytest.raises(ValueError, match="different numbers of buckets"):
        merge([report_of({1: 1}), LoadReport("count", 0, 0, 0, 0.0, 0.0, bucket_rows=BucketRows.without_rows(8))])
    with pytest.raises(ValueError, match="differ in length"):
        LoadReport("count", 0, 0, 0, 0.0, 0.0, heavy_hashes=np.zeros(2, np.uint64))


pair_counts = st.dictionaries(st.tuples(st.integers(0, 4), keys), st.integers(1, 50), max_size=12)


def with_pairs(counts: dict[tuple[int, int], int], operator: str = "next") -> LoadReport:
    ends = np.array(list(counts), np.uint64).reshape(-1, 2)
    rows = np.array(list(counts.values()), np.int64)
    pairs = KeyPairs.summed(ends[:, 0], ends[:, 1], rows, int(rows.sum()), None)
    return LoadReport("count", 0, 0, int(rows.sum()), 0.0, 0.0, key_pairs={operator: pairs})


def as_dict(pairs: KeyPairs) -> dict[tuple[int, int], int]:
    return dict(zip(zip(pairs.upstream.tolist(), pairs.downstream.tolist(), strict=True), pairs.rows.tolist(), strict=True))


@settings(max_examples=80)
@given(batches=st.lists(pair_counts, min_size=1, max_size=5), max_pairs=st.integers(0, 10), seed=st.integers(0, 99))
def test_key_pairs_add_up_and_the_most_frequent_stay(batches, max_pairs, seed):
    exact: dict[tuple[int, int], int] = {}
    for counts in batches:
        for pair, rows in counts.items():
            exact[pair] = exact.get(pair, 0) + rows
    shuffled = [batches[i] for i in np.random.default_rng(seed).permutation(len(batches))]
    merged = merge([with_pairs(counts) for counts in shuffled], max_pairs=max_pairs).key_pairs["next"]
    kept = as_dict(merged)
    assert kept == dict(sorted(exact.items(), key=lambda item: (-item[1], item[0]))[:max_pairs])
    assert list(kept) == sorted(kept)
    assert merged.seen == sum(exact.values())


def test_key_pairs_are_kept_apart_by_the_operator_that_comes_next():
    merged = merge([with_pairs({(1, 2): 3}, "left"), with_pairs({(1, 2): 4}, "right"), with_pairs({(1, 2): 5}, "left")])
    assert {name: as_dict(pairs) for name, pairs in merged.key_pairs.items()} == {"left": {(1, 2): 8}, "right": {(1, 2): 4}}


@settings(max_examples=30)
@given(counts=pair_counts)
def test_key_pairs_survive_the_wire(counts):
    wire = json.loads(json.dumps(with_pairs(counts).to_wire()))
    back = LoadReport.from_wire(wire).key_pairs["next"]
    assert (as_dict(back), back.seen) == (counts, sum(counts.values()))


def test_merged_parts_add_up_and_survive_the_wire():
    reports = [replace(report_of({1: 1}, instance), parts_merged=3, merge_seconds=0.25, rows_away=5) for instance in range(2)]
    merged = merge(reports)
    assert (merged.parts_merged, merged.merge_seconds, merged.rows_away) == (6, 0.5, 10)
    wire = json.loads(json.dumps(merged.to_wire()))
    back = LoadReport.from_wire(wire)
    assert (back.parts_merged, back.merge_seconds, back.rows_away) == (6, 0.5, 10)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ({"next": {"upstream": "AAAA"}}, r"load report: key_pairs\.next\.upstream is damaged"),
        (
            {"next": {**with_pairs({(1, 2): 3}).to_wire()["key_pairs"]["next"], "rows": to_wire(KeyPairs())["rows"]}},
            "in length",
        ),
        ({"next": {}}, r"load report: key_pairs\.next\.upstream is missing"),
        ([], r"load report: key_pairs is \[\], not a JSON object"),
    ],
)
def test_damaged_key_pairs_are_refused_with_the_reason(pairs, message):
    with pytest.raises(ReportFormatError, match=message):
        LoadReport.from_wire({**report_of({1: 1}).to_wire(), "key_pairs": pairs})


@settings(max_examples=40)
@given(rows=loads)
def test_a_load_report_survives_the_wire(rows):
    report = report_of(rows, instance=3)
    back = LoadReport.from_wire(json.loads(json.dumps(report.to_wire())))
    for name, value in vars(report).items():
        returned = getattr(back, name)
        if isinstance(value, BucketRows):
            value, returned = value.dense(), returned.dense()
        assert np.array_equal(returned, value) if isinstance(value, np.ndarray) else returned == value
        assert type(returned) is type(value)


def test_a_source_report_survives_the_wire():
    report = SourceReport(2, 1000, 0.5, 0.75, {"flights": 1e9, "idle": -np.inf})
    assert SourceReport.from_wire(json.loads(json.dumps(report.to_wire()))) == report


BUCKETS = to_wire(BucketRows.of(np.arange(N_BUCKETS)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 1}, "format 1"),
        ({"heavy_rows": "not base64!"}, "load report: heavy_rows is damaged"),
        ({"bucket_rows": {**BUCKETS, "rows": "AAAA"}}, "load report: bucket_rows.rows is damaged"),
        ({"bucket_rows": {**BUCKETS, "count": 3}}, "load report: bucket_rows does not hold: a bucket's number is not among 3"),
        ({"rows": "many"}, "load report: rows is 'many', not a whole number"),
        ({"heavy_labels": ["one too many", "and another"]}, "differ in length"),
    ],
)
def test_damaged_reports_are_refused_with_the_reason(change, message):
    with pytest.raises(ReportFormatError, match=message):
        LoadReport.from_wire({**report_of({1: 1}).to_wire(), **change})


def test_missing_fields_are_named():
    wire = report_of({1: 1}).to_wire()
    del wire["slot"]
    with pytest.raises(ReportFormatError, match="load report: slot is missing"):
        LoadReport.from_wire(wire)
    with pytest.raises(ReportFormatError, match="source report: rows is missing"):
        SourceReport.from_wire({"format": 2, "slot": 0})
