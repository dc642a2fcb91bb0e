"""Sums of load reports say what the reports together say, in a fraction of their size."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest
from support.observed import Stream

from streamtopology.routing.control import observed
from streamtopology.routing.control.feed import CommittedBatch
from streamtopology.routing.control.slot_model import estimate
from streamtopology.routing.control.timings import COLUMNS, Timings, stage_timings
from streamtopology.routing.control.window import MAX_SPANS, LoadSpan, Window, WindowBatch
from streamtopology.routing.load.array_codec import LARGEST_BLOCK, pack_columns, unpack_columns
from streamtopology.routing.load.load_report import KeyPairs, LoadReport, ReportFormatError, merge
from streamtopology.routing.load.load_sum import LoadSum
from streamtopology.routing.load.planner_load import planner_load_of, work_rows

CPU = (1.0, 1.0, 1.0, 1.0)


def batches(count: int, timed: bool = False) -> list[list[LoadReport]]:
    """The reports of that many batches, four instances each."""
    stream, epoch = Stream(5), Stream(5).first_epoch()
    found = [list(stream.batch(epoch)[1]) for _ in range(count)]
    rng = np.random.default_rng(1)
    if timed:
        shares = [rng.random(len(one.heavy_rows)) for reports in found for one in reports]
        found = [
            [replace(one, heavy_seconds=one.busy_seconds / 2 * (share := shares.pop()) / share.sum()) for one in reports]
            for reports in found
        ]
    return found


@pytest.mark.parametrize("timed", [False, True])
def test_a_plan_by_sums_has_the_loads_of_a_plan_by_reports(timed: bool):
    given = batches(6, timed)
    model = estimate([Timings.of(stage_timings(reports, ())) for reports in given], CPU)
    reports = [one for of_batch in given for one in of_batch]
    summed = [one for half in (given[:3], given[3:]) for one in LoadSum.of([r for rs in half for r in rs]).reports()]
    whole, folded = planner_load_of(reports, 6, model), planner_load_of(summed, 6, model)
    assert np.array_equal(folded.key_hashes, whole.key_hashes)
    off = 1.0 if timed else 0.0  # measured seconds are rounded to rows of work at other places
    np.testing.assert_allclose(folded.key_loads, whole.key_loads, rtol=1e-3 * off, atol=off)
    np.testing.assert_allclose(folded.bucket_loads.sum(), whole.bucket_loads.sum(), rtol=1e-2 if timed else 0)
    assert np.array_equal(folded.key_state, whole.key_state)
    assert sum(work_rows(one, model) for one in summed) == pytest.approx(
        sum(work_rows(one, model) for one in reports), rel=1e-3
    )


def test_a_sum_takes_a_fraction_of_its_reports():
    given = [one for of_batch in batches(16) for one in of_batch]
    whole = sum(one.bucket_rows.dense().nbytes + one.heavy_hashes.nbytes * 4 for one in given)
    assert len(LoadSum.of(given).block) < whole / 50


def test_the_lightest_keys_beyond_the_most_go_to_their_buckets_and_no_row_is_lost():
    given = batches(1)[0]
    summed = LoadSum.of(given, max_heavy=40).reports()
    assert sum(len(one.heavy_hashes) for one in summed) == 40
    assert sum(int(one.heavy_rows.sum() + one.bucket_rows.rows.sum()) for one in summed) == sum(one.rows for one in given)
    kept = np.concatenate([one.heavy_rows for one in summed])
    assert sorted(kept) == sorted(np.concatenate([one.heavy_rows for one in given]))[-40:]


def test_a_sum_gives_each_instance_its_own_keys_back_those_without_any_included():
    first, second, *others = batches(1)[0]
    given = [first, second.without_keys(), *others, replace(others[-1].without_keys(), instance=9)]
    for one, summed in zip(given, LoadSum.of(given).reports(), strict=True):
        assert (summed.instance, summed.slot, summed.rows) == (one.instance, one.slot, one.rows)
        for name in ("heavy_hashes", "heavy_rows", "heavy_bytes", "heavy_seconds"):
            assert np.array_equal(getattr(summed, name), getattr(one, name)), name


def test_pairs_of_keys_are_summed_and_bounded():
    pairs = KeyPairs(np.arange(5, dtype=np.uint64), np.arange(5, dtype=np.uint64), np.array([5, 1, 4, 2, 3]), 20)
    first = replace(batches(1)[0][0], key_pairs={"next": pairs})
    summed = LoadSum.of([first, first], max_pairs=2).reports()[0].key_pairs["next"]
    assert (summed.upstream.tolist(), summed.rows.tolist(), summed.seen) == ([0, 2], [10, 8], 40)


def test_observed_batches_are_read_back_as_they_were_written():
    stream, epoch = Stream(5), Stream(5).first_epoch()
    given = [CommittedBatch(number, 3, *stream.batch(epoch), committed_at=50.0 + number) for number in range(4)]
    sent = [batch.observed() for batch in given]
    for read, written in zip(observed.from_wire(observed.to_wire(sent)), sent, strict=True):
        assert (read.number, read.epoch, read.source_rows, read.batches) == (written.number, 3, written.source_rows, 1)
        assert (read.seconds, read.committed_at) == (written.seconds, written.committed_at)
        assert read.timings.stages == written.timings.stages
        for name in COLUMNS:
            np.testing.assert_allclose(read.timings.table[name], written.timings.table[name], rtol=1e-6)
        total = merge(read.loads["count"].reports())
        assert total.rows == merge(written.loads["count"].reports()).rows


def test_damaged_loads_are_named_and_never_unpacked_beyond_bounds():
    wire = observed.to_wire([CommittedBatch(1, 3, 1.0, batches(1)[0]).observed()])
    for damage in ({"block": "AAAA"}, {"stages": []}, {"loads": [[{"operator": "count"}]]}, {"format": 2}):
        with pytest.raises(ReportFormatError):
            observed.from_wire({**wire, **damage})
    bomb = LoadSum("count", (), zlib.compress(bytes(LARGEST_BLOCK + 1)))
    with pytest.raises(ReportFormatError, match="more than 4 MiB"):
        bomb.reports()
    strange = LoadSum("count", (), pack_columns({**unpack_columns(LoadSum.of(batches(1)[0]).block), "buckets": np.array([1])}))
    with pytest.raises(ReportFormatError, match="load of 'count'"):
        strange.reports()


def test_a_window_keeps_few_sums_and_every_row_of_its_batches():
    stream, epoch, window = Stream(5), Stream(5).first_epoch(), Window()
    rows: list[int] = []
    for number in range(40):
        batch = CommittedBatch(number, 1, *stream.batch(epoch)).observed()
        window.add(WindowBatch.of(batch, at=float(number), tolerance=0.08))
        window.add_loads(LoadSpan(number, 1, 1, batch.loads), span_seconds=20.0)
        rows.append(sum(one.rows for one in batch.loads["count"].reports()))
    spans = window.spans(window.recent(20.0))
    assert len(spans) <= MAX_SPANS
    assert 20 <= sum(span.batches for span in spans) < 24, "the window, and what is summed up with its first batch"
    covered = sum(span.batches for span in spans)
    assert sum(one.rows for span in spans for one in span.reports_of("count")) == sum(rows[-covered:])


def test_timings_take_little_memory():
    timings = stage_timings(batches(1)[0], ())
    packed = Timings.of(timings)
    assert sum(len(packed.of_stage(stage)) for stage in packed.stages) == len(timings)
    assert packed.of_stage("count")["rows"].tolist() == [one.rows for one in timings if one.stage == "count"]
    assert not len(packed.of_stage("nowhere"))
    assert packed.table.nbytes < 40 * len(timings)
