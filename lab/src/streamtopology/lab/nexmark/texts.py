"""Texts that events take whole: names and cities, and what nexmark draws once a run, the long string, channels and URLs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from streamtopology.lab.nexmark.splittable_random import next_int, next_string, next_uint32, unseeded

Bytes = npt.NDArray[np.uint8]

CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne")
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
NAMES = tuple(f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES)
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS = 10_000

_LONG_STRING = 1024 * 1024
_LETTERS_OF_A_DRAW = 6
_WORDS = 3  # of a URL
_LONGEST_WORD = 5


@dataclass(frozen=True)
class Texts:
    """`extra` is the ASCII uint8[2^20] that all columns `extra` are slices of; `channels` and `urls` begin with the hot."""

    extra: Bytes
    channels: pa.StringArray
    urls: pa.StringArray


@lru_cache(maxsize=4)
def texts(seed: int) -> Texts:
    """What nexmark's StringsGenerator and BidGenerator draw when Java loads them, in this order, from Java's own seed."""
    words, lengths, with_channel = _draw_urls(unseeded(seed, 1), len(HOT_CHANNELS), CHANNELS)
    parts = [bytes(word[:length]).decode() for word, length in zip(words, lengths, strict=True)]
    urls = [f"https://www.nexmark.com/{'/'.join(parts[i : i + _WORDS])}/item.htm?query=1" for i in range(0, len(parts), _WORDS)]
    for channel in np.flatnonzero(with_channel).tolist():
        urls[len(HOT_CHANNELS) + channel] += f"&channel_id={_channel_id(channel)}"
    channels = [*HOT_CHANNELS, *(f"channel-{channel}" for channel in range(CHANNELS))]
    return Texts(_draw_letters(unseeded(seed, 0), _LONG_STRING), pa.array(channels), pa.array(urls))


def _channel_id(channel: int) -> int:
    """Java's Math.abs(Integer.reverse(channel)), which leaves the least int as it is."""
    turned = int(f"{channel:032b}"[::-1], 2)
    return turned if turned < 1 << 31 else (1 << 32) - turned if turned > 1 << 31 else -turned


@njit(cache=True, nogil=True)
def _draw_letters(state: Any, length: Any) -> Any:
    """StringsGenerator.nextExactString. Java's remainders of negative numbers are negative: letters come from H to z."""
    letters = np.empty(length, np.uint8)
    left = sign = 0
    for i in range(length):
        if i % _LETTERS_OF_A_DRAW == 0:
            drawn = next_uint32(state)
            sign = 1 if drawn < 1 << 31 else -1
            left = drawn if sign > 0 else (1 << 32) - drawn
        letters[i] = ord("a") + sign * (left % 26)
        left //= 26
    return letters


@njit(cache=True, nogil=True)
def _draw_urls(state: Any, hot: Any, channels: Any) -> Any:
    """BidGenerator's words of the URLs uint8[3 a URL, longest], their lengths, and bool[channels]: names its channel."""
    words = np.empty(((hot + channels) * _WORDS, _LONGEST_WORD), np.uint8)
    lengths = np.empty(len(words), np.int64)
    with_channel = np.zeros(channels, np.bool_)
    for url in range(hot + channels):
        for word in range(url * _WORDS, (url + 1) * _WORDS):
            lengths[word] = next_string(state, _LONGEST_WORD, ord("_"), words[word], 0)
        if url >= hot:
            with_channel[url - hot] = next_int(state, 10) > 0
    return words, lengths, with_channel
