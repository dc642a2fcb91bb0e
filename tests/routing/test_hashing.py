"""The key hash is a file format: what it gave once it gives for ever; and it spreads any keys over any buckets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.routing.table.hashing import CANONICAL_NAN, NULL_HASH, canonical_float, hash_bytes, hash_int64
from streamtopology.routing.table.table import bucket_of

MASK = 2**64 - 1


def columns(keys: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.cumsum([0, *map(len, keys)]).astype(np.int64)
    return offsets, np.frombuffer(b"".join(keys), np.uint8)


def splitmix64(value: int) -> int:
    mixed = (value + 0x9E3779B97F4A7C15) & MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
    return mixed ^ (mixed >> 31)


def xxh64(data: bytes) -> int:
    """XXH64 with seed 0, written from the specification."""
    p1, p2, p3, p4, p5 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)

    def rotate(word: int, bits: int) -> int:
        return ((word << bits) | (word >> (64 - bits))) & MASK

    def step(lane: int, word: int) -> int:
        return rotate((lane + word * p2) & MASK, 31) * p1 & MASK

    rest, hashed = data, p5
    if len(data) >= 32:
        lanes = [(p1 + p2) & MASK, p2, 0, -p1 & MASK]
        while len(rest) >= 32:
            lanes = [step(lane, int.from_bytes(rest[8 * i : 8 * i + 8], "little")) for i, lane in enumerate(lanes)]
            rest = rest[32:]
        hashed = sum(rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
        for lane in lanes:
            hashed = ((hashed ^ step(0, lane)) * p1 + p4) & MASK
    hashed = (hashed + len(data)) & MASK
    while len(rest) >= 8:
        hashed = (rotate(hashed ^ step(0, int.from_bytes(rest[:8], "little")), 27) * p1 + p4) & MASK
        rest = rest[8:]
    if len(rest) >= 4:
        hashed = (rotate(hashed ^ (int.from_bytes(rest[:4], "little") * p1 & MASK), 23) * p2 + p3) & MASK
        rest = rest[4:]
    for byte in rest:
        hashed = rotate(hashed ^ (byte * p5 & MASK), 11) * p1 & MASK
    hashed = (hashed ^ (hashed >> 33)) * p2 & MASK
    hashed = (hashed ^ (hashed >> 29)) * p3 & MASK
    return hashed ^ (hashed >> 32)


def test_golden_hashes_of_integers() -> None:
    values = np.array([0, 1, -1, 5, 2**63 - 1, -(2**63)], np.int64)
    assert [f"{value:016x}" for value in hash_int64(values)] == [
        "e220a8397b1dcdaf",
        "910a2dec89025cc1",
        "e4d971771b652c20",
        "63033b0ca389c35a",
        f"{splitmix64(2**63 - 1):016x}",
        f"{splitmix64(2**63):016x}",
    ]
    assert int(NULL_HASH) == 0xA0761D6478BD642F


def test_golden_hashes_of_bytes_are_those_published_for_xxh64() -> None:
    keys = [b"", b"a", b"abc", b"Nobody inspects the spammish repetition"]
    assert [f"{value:016x}" for value in hash_bytes(*columns(keys))] == [
        "ef46db3751d8e999",
        "d24ec4f1a98c6e5b",
        "44bc2cf5ad770999",
        "fbcea83c8a378bf1",
    ]


@settings(max_examples=50)
@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_integers_hash_as_the_plain_formula(values: list[int]) -> None:
    assert hash_int64(np.array(values, np.int64)).tolist() == [splitmix64(value & MASK) for value in values]


@settings(max_examples=100)
@given(st.lists(st.binary(max_size=100)), st.binary(max_size=9))
def test_bytes_hash_as_the_specification_wherever_they_lie(keys: list[bytes], before: bytes) -> None:
    offsets, data = columns([before, *keys])
    assert hash_bytes(offsets[1:], data).tolist() == [xxh64(key) for key in keys]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.uint8, np.uint32])
def test_a_number_hashes_alike_in_every_width(dtype: Any) -> None:
    assert (hash_int64(np.array([5, 100, 0], dtype)) == hash_int64(np.array([5, 100, 0], np.int64))).all()


def test_strided_and_read_only_columns_hash_as_their_values() -> None:
    table = np.arange(20, dtype=np.int64).reshape(10, 2)
    borrowed = np.frombuffer(np.arange(10, dtype=np.int64).tobytes(), np.int64)
    assert (hash_int64(table[:, 0]) == hash_int64(table[:, 0].copy())).all()
    assert (hash_int64(borrowed) == hash_int64(borrowed.copy())).all()


def test_null_is_one_key_whatever_lies_beneath_it() -> None:
    valid = np.array([True, False, False])
    numbers = hash_int64(np.array([1, 2, 3]), valid)
    texts = hash_bytes(*columns([b"x", b"", b"beneath"]), valid)
    assert set(numbers[1:].tolist()) == set(texts[1:].tolist()) == {int(NULL_HASH)}
    assert numbers[0] == hash_int64(np.array([1]))[0]
    assert hash_bytes(*columns([b""]))[0] != NULL_HASH


def test_every_nan_is_one_key_and_minus_zero_is_zero() -> None:
    nans = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000123], np.uint64).view(np.float64)
    assert set(canonical_float(nans).tolist()) == {int(CANONICAL_NAN)}
    assert canonical_float(np.array([-0.0]))[0] == canonical_float(np.array([0.0]))[0] == 0
    assert canonical_float(np.array([0.5, -1.5, np.inf])).view(np.float64).tolist() == [0.5, -1.5, np.inf]
    assert canonical_float(np.array([0.5], np.float32))[0] == canonical_float(np.array([0.5]))[0]


@pytest.mark.parametrize("n_buckets", [7, 100, 4096])
@pytest.mark.parametrize("stride", [1, 4096, 2**32, 2**52])
def test_regular_keys_spread_evenly_over_buckets(n_buckets: int, stride: int) -> None:
    n = min(400_000, 2**62 // stride)
    keys = np.arange(n, dtype=np.int64) * stride
    counts = np.bincount(bucket_of(hash_int64(keys), n_buckets), minlength=n_buckets)
    expected = n / n_buckets
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    # Mean n_buckets - 1, standard deviation sqrt(2 (n_buckets - 1)); 6 more for the long tail of few buckets.
    assert abs(chi_square - (n_buckets - 1)) < 6 * np.sqrt(2 * (n_buckets - 1)) + 6


def test_text_keys_spread_evenly_over_buckets() -> None:
    keys = [f"N{number:05d}".encode() for number in range(100_000)]
    counts = np.bincount(bucket_of(hash_bytes(*columns(keys)), 1024), minlength=1024)
    expected = len(keys) / 1024
    assert abs(float(((counts - expected) ** 2 / expected).sum()) - 1023) < 6 * np.sqrt(2 * 1023)


def test_every_input_bit_flips_every_output_bit_half_the_time() -> None:
    keys = np.random.default_rng(3).integers(-(2**63), 2**63 - 1, 20_000)
    plain = hash_int64(keys)
    for bit in range(64):
        flipped = plain ^ hash_int64(keys ^ np.int64(-(2**63) if bit == 63 else 1 << bit))
        shares = np.unpackbits(flipped.view(np.uint8).reshape(-1, 8), axis=1).mean(axis=0)
        assert np.abs(shares - 0.5).max() < 0.03


def test_wrong_columns_are_refused_with_a_sentence() -> None:
    with pytest.raises(TypeError, match="must be int64, not float64"):
        hash_int64(np.array([1.5]))
    with pytest.raises(TypeError, match="integers are canonical"):
        canonical_float(np.array([1]))
    with pytest.raises(ValueError, match="valid has 1 values for 2 keys"):
        hash_int64(np.array([1, 2]), np.array([True]))
    with pytest.raises(ValueError, match="key 1 would be bytes 2 to 9 of a buffer of 3 bytes"):
        hash_bytes(np.array([0, 2, 9]), np.zeros(3, np.uint8))
    with pytest.raises(ValueError, match="offsets must rise"):
        hash_bytes(np.array([2, 0]), np.zeros(3, np.uint8))
    with pytest.raises(ValueError, match="at least one"):
        hash_bytes(np.empty(0, np.int64), np.zeros(3, np.uint8))
