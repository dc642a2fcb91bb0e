"""Data between stages arrives as it was sent, aligned and without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.jobs.exchange.envelope import Envelope, EnvelopeKind, Section, sections
from streamtopology.jobs.exchange.outbox import take

SCHEMA = pa.schema([("n", pa.int64()), ("t", pa.string()), ("x", pa.float64()), ("b", pa.bool_())])

rows = st.lists(
    st.fixed_dictionaries(
        {
            "n": st.none() | st.integers(-5, 5),
            "t": st.none() | st.text(max_size=5),
            "x": st.floats(allow_nan=False),
            "b": st.booleans(),
        }
    ),
    max_size=9,
)
contents = st.lists(
    st.tuples(
        st.sampled_from(EnvelopeKind),
        st.text(min_size=1, max_size=80),
        st.integers(0, 2**32 - 1),
        st.integers(0, 9),
        rows | st.binary(max_size=200),
    ),
    max_size=6,
)


def batch_of(given: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(given, schema=SCHEMA)


def sealed(given: list[tuple[EnvelopeKind, str, int, int, Any]]) -> pa.Buffer:
    envelope = Envelope()
    for kind, target, instance, order, content in given:
        if isinstance(content, bytes):
            envelope.add_bytes(kind, target, instance, order, content)
        else:
            envelope.add_batch(kind, target, instance, order, batch_of(content))
    return envelope.seal()[0]


def content_of(section: Section, like: Any) -> Any:
    return section.payload.to_pybytes() if isinstance(like, bytes) else section.batch().to_pylist()


@settings(max_examples=60)
@given(contents)
def test_sections_come_out_as_they_went_in_and_can_be_passed_on(given: list[tuple[EnvelopeKind, str, int, int, Any]]) -> None:
    buffer = sealed(given)
    passed_on = Envelope()
    for section in sections(buffer):
        passed_on.forward(section)
    assert passed_on.seal()[0].to_pybytes() == buffer.to_pybytes()
    found = [
        (section.kind, section.target, section.instance, section.order, content_of(section, like))
        for section, (*_, like) in zip(sections(buffer), given, strict=True)
    ]
    assert found == given


@settings(max_examples=40)
@given(contents, st.sampled_from([1, 2, 8]))
def test_any_number_of_blobs_holds_all_sections_in_order(
    given: list[tuple[EnvelopeKind, str, int, int, Any]], blobs: int
) -> None:
    envelope = Envelope()
    for kind, target, instance, order, content in given:
        envelope.add_bytes(kind, target, instance, order, repr(content).encode())
    sealed = envelope.seal(blobs)
    found = [section for blob in sealed for section in sections(blob)]
    assert len(sealed) == blobs
    assert [section.sequence for section in found] == list(range(len(given)))
    assert [section.payload.to_pybytes() for section in found] == [repr(content).encode() for *_, content in given]


def test_large_batches_are_divided_and_blobs_are_about_even() -> None:
    envelope = Envelope()
    envelope.add_batch(EnvelopeKind.ROWS, "n/s", 0, 0, pa.record_batch({"x": np.arange(6 << 20)}))
    blobs = envelope.seal(4)
    assert [number for blob in blobs for part in sections(blob) for number in part.batch().column(0).to_numpy()[:1]] == [
        0, 3 << 19, 6 << 19, 9 << 19,
    ]  # fmt: skip
    assert max(blob.size for blob in blobs) < 13 << 20


@settings(max_examples=30)
@given(contents)
def test_payloads_are_aligned_views_into_what_arrived(given: list[tuple[EnvelopeKind, str, int, int, Any]]) -> None:
    arrived = pa.py_buffer(sealed(given).to_pybytes())
    for section, (*_, like) in zip(sections(arrived), given, strict=True):
        assert (section.payload.address - arrived.address) % 64 == 0
        if isinstance(like, bytes) or not like:
            continue
        for part in (part for column in section.batch().columns for part in column.buffers() if part is not None and part.size):
            assert arrived.address <= part.address < arrived.address + arrived.size
            assert (part.address - arrived.address) % 8 == 0


@settings(max_examples=40)
@given(rows.filter(bool), st.data())
def test_taking_rows_is_what_arrow_takes(given: list[dict[str, Any]], data: st.DataObject) -> None:
    batch = batch_of([{}, *given]).slice(1)
    indices = np.array(data.draw(st.lists(st.integers(0, len(given) - 1))), np.int64)
    assert take(batch, indices).equals(batch.take(pa.array(indices)))
