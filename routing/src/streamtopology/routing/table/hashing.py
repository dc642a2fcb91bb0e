"""The one 64-bit hash that routes keys: equal keys hash alike in every process, on every platform, in every version.

A checkpoint remembers where a key lives by this hash, so changing it is changing a file format. The functions take raw
column buffers; the caller converts Arrow or other columns to the canonical form described here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streamtopology.routing.table.kernel import njit

# The hash of NULL: a key like any other, the same for every type of key column.
NULL_HASH = np.uint64(0xA0761D6478BD642F)

CANONICAL_NAN = np.int64(0x7FF8_0000_0000_0000)

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)
_BIT_WIDTH = np.uint64(64)


def hash_int64(values: npt.NDArray[np.int64], valid: npt.NDArray[np.bool_] | None = None) -> npt.NDArray[np.uint64]:
    """Hashes of fixed-width keys: uint64[n] of int64[n]; where `valid` (bool[n]) is False the key is NULL.

    Narrower integers and booleans hash as their int64 value, floats as `canonical_float` of them. SplitMix64 (Steele,
    Lea, Flood: Fast splittable pseudorandom number generators, 2014). TypeError for floats and uint64, ValueError when
    `valid` has another length.
    """
    keys = kernel_input(values, np.int64, "hash_int64: values")
    hashes = np.empty(len(keys), np.uint64)
    if valid is None:
        _hash_int64(keys, hashes)
    else:
        _hash_nullable_int64(keys, _validity(valid, len(keys)), hashes)
    return hashes


def hash_bytes(
    offsets: npt.NDArray[np.int64], data: npt.NDArray[np.uint8], valid: npt.NDArray[np.bool_] | None = None
) -> npt.NDArray[np.uint64]:
    """Hashes of variable-width keys: uint64[n]; key i is data[offsets[i]:offsets[i + 1]], NULL where `valid` is False.

    XXH64 with seed 0 (Collet, xxHash specification 0.1.1). ValueError when a key does not lie within `data`, the bytes
    of a NULL included, or `valid` has another length.
    """
    bounds = kernel_input(offsets, np.int64, "hash_bytes: offsets")
    if not len(bounds):
        raise ValueError("hash_bytes: offsets of n keys are n + 1 numbers, so there is at least one; found none")
    n = len(bounds) - 1
    validity = _validity(np.ones(n, np.bool_) if valid is None else valid, n)
    hashes = np.empty(n, np.uint64)
    misplaced = _hash_bytes(bounds, kernel_input(data, np.uint8, "hash_bytes: data"), validity, hashes)
    if misplaced >= 0:
        raise ValueError(
            f"hash_bytes: key {misplaced} would be bytes {bounds[misplaced]} to {bounds[misplaced + 1]}"
            f" of a buffer of {len(data)} bytes; offsets must rise and stay within it"
        )
    return hashes


def canonical_float(values: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.int64]:
    """Float keys as int64[n] keys: the bits of the float64, with one pattern for every NaN and -0.0 as 0.0."""
    numbers = np.asarray(values)
    if numbers.dtype.kind != "f":
        raise TypeError(f"canonical_float takes floats, not {numbers.dtype}; integers are canonical as they are")
    with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN like any other
        bits = (numbers.astype(np.float64) + 0.0).view(np.int64)
    bits[np.isnan(numbers)] = CANONICAL_NAN
    return bits


def kernel_input(values: npt.ArrayLike, dtype: type[np.generic], name: str) -> npt.NDArray[Any]:
    """A contiguous read-only view of `values` as `dtype`, copied only if need be; TypeError if values could be lost.

    Read-only whatever came in, so that a kernel is compiled once and not once more for buffers borrowed from Arrow.
    """
    given = np.asarray(values)
    if not np.can_cast(given.dtype, dtype, "safe"):
        raise TypeError(f"{name} must be {np.dtype(dtype)}, not {given.dtype}")
    view = np.ascontiguousarray(given, dtype=dtype).view()
    view.flags.writeable = False
    return view


def frozen_copy(values: npt.ArrayLike, dtype: type[np.generic], name: str) -> npt.NDArray[Any]:
    """A read-only copy of a flat array of integers. ValueError where it is none, or one of them does not fit `dtype`."""
    given = np.asarray(values)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise ValueError(f"{name} must be a flat array of integers, not {given.dtype} of shape {given.shape}")
    copy = given.astype(dtype)
    if not np.array_equal(copy, given):
        raise ValueError(f"{name} holds numbers that do not fit {np.dtype(dtype)}")
    copy.flags.writeable = False
    return copy


def _validity(valid: npt.NDArray[np.bool_], n: int) -> npt.NDArray[np.bool_]:
    if len(valid) != n:
        raise ValueError(f"valid has {len(valid)} values for {n} keys; it needs one for each")
    return kernel_input(valid, np.bool_, "valid")


@njit(cache=True, nogil=True, inline="always")
def mix64(value: Any) -> Any:
    """SplitMix64's step on one uint64: a bijection in which every input bit changes every output bit half the time."""
    mixed = value + _GAMMA
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@njit(cache=True, nogil=True)
def _hash_int64(keys: Any, hashes: Any) -> None:
    for i in range(len(keys)):
        hashes[i] = mix64(np.uint64(keys[i]))


@njit(cache=True, nogil=True)
def _hash_nullable_int64(keys: Any, valid: Any, hashes: Any) -> None:
    for i in range(len(keys)):
        hashes[i] = mix64(np.uint64(keys[i])) if valid[i] else NULL_HASH


@njit(cache=True, nogil=True)
def _hash_bytes(offsets: Any, data: Any, valid: Any, hashes: Any) -> int:
    """Fills `hashes`; returns the first key that does not lie within `data`, or -1."""
    for i in range(len(hashes)):
        start, end = offsets[i], offsets[i + 1]
        if start < 0 or end < start or end > len(data):
            return i
        hashes[i] = _xxh64(data, np.uint64(start), np.uint64(end)) if valid[i] else NULL_HASH
    return -1


@njit(cache=True, nogil=True)
def _xxh64(data: Any, start: Any, end: Any) -> Any:
    """XXH64 with seed 0 of data[start:end]; indices are uint64, so that no load pays for negative ones."""
    at = start
    if end - start >= np.uint64(32):
        lane_1, lane_2, lane_3, lane_4 = _PRIME_1 + _PRIME_2, _PRIME_2, np.uint64(0), np.uint64(0) - _PRIME_1
        while at + np.uint64(32) <= end:
            lane_1 = _round(lane_1, _word(data, at))
            lane_2 = _round(lane_2, _word(data, at + np.uint64(8)))
            lane_3 = _round(lane_3, _word(data, at + np.uint64(16)))
            lane_4 = _round(lane_4, _word(data, at + np.uint64(24)))
            at += np.uint64(32)
        hashed = _rotate(lane_1, 1) + _rotate(lane_2, 7) + _rotate(lane_3, 12) + _rotate(lane_4, 18)
        for lane in (lane_1, lane_2, lane_3, lane_4):
            hashed = (hashed ^ _round(np.uint64(0), lane)) * _PRIME_1 + _PRIME_4
    else:
        hashed = _PRIME_5
    hashed += end - start
    while at + np.uint64(8) <= end:
        hashed = _rotate(hashed ^ _round(np.uint64(0), _word(data, at)), 27) * _PRIME_1 + _PRIME_4
        at += np.uint64(8)
    if at + np.uint64(4) <= end:
        hashed = _rotate(hashed ^ (_half_word(data, at) * _PRIME_1), 23) * _PRIME_2 + _PRIME_3
        at += np.uint64(4)
    while at < end:
        hashed = _rotate(hashed ^ (np.uint64(data[at]) * _PRIME_5), 11) * _PRIME_1
        at += np.uint64(1)
    hashed = (hashed ^ (hashed >> np.uint64(33))) * _PRIME_2
    hashed = (hashed ^ (hashed >> np.uint64(29))) * _PRIME_3
    return hashed ^ (hashed >> np.uint64(32))


@njit(cache=True, nogil=True, inline="always")
def _round(lane: Any, word: Any) -> Any:
    return _rotate(lane + word * _PRIME_2, 31) * _PRIME_1


@njit(cache=True, nogil=True, inline="always")
def _rotate(word: Any, bits: int) -> Any:
    return (word << np.uint64(bits)) | (word >> (_BIT_WIDTH - np.uint64(bits)))


@njit(cache=True, nogil=True, inline="always")
def _word(data: Any, at: Any) -> Any:
    return _half_word(data, at) | (_half_word(data, at + np.uint64(4)) << np.uint64(32))


@njit(cache=True, nogil=True, inline="always")
def _half_word(data: Any, at: Any) -> Any:
    """Four bytes, little-endian; written byte by byte, it is one load in machine code."""
    low = np.uint64(data[at]) | (np.uint64(data[at + np.uint64(1)]) << np.uint64(8))
    high = np.uint64(data[at + np.uint64(2)]) | (np.uint64(data[at + np.uint64(3)]) << np.uint64(8))
    return low | (high << np.uint64(16))
