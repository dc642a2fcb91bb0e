"""Nexmark's PersonGenerator, AuctionGenerator and BidGenerator, for many event ids at once.

Each event has random numbers of its own, those of `new SplittableRandom(base + event id)`, so that any slice of a stream can
be made alone. Ids of people and auctions are counted from 0 here. Proportions are those of people, of auctions and of all.
An `extra` is a place in the long string: its start and its length.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from streamtopology.lab.nexmark.splittable_random import next_int, next_price, next_string, next_up_to, seeded
from streamtopology.lab.nexmark.texts import CHANNELS, FIRST_NAMES, HOT_CHANNELS, LAST_NAMES, STATES

CARD_LENGTH = 19

_LEAD = 10  # people and auctions that events name before they come
_HOT_BATCH = 100  # the hot one of so many
_CATEGORIES = 5
_LONG_STRING = 1024 * 1024
_NAME, _DESCRIPTION, _MAILBOX, _HOST, _SPACE = 20, 100, 7, 5, ord(" ")
_EMAIL = _MAILBOX + len("@.com") + _HOST
_AUCTION_NUMBERS, _BID_NUMBERS = 48, 32
_PERSON_SIZE, _AUCTION_SIZE, _BID_SIZE = 200, 500, 100
_FIRST_NAMES, _LAST_NAMES, _STATES, _HOT_CHANNELS = len(FIRST_NAMES), len(LAST_NAMES), len(STATES), len(HOT_CHANNELS)


@njit(cache=True, nogil=True)
def _last_person(event: Any, proportions: Any) -> Any:
    """The person whom this event is, or else the last one before it; may be -1."""
    people, _, total = proportions
    return event // total * people + min(event % total, people - 1)


@njit(cache=True, nogil=True)
def _last_auction(event: Any, proportions: Any) -> Any:
    """The auction that this event, no person, is, or else the last one before it; may be -1."""
    people, auctions, total = proportions
    return event // total * auctions + min(event % total - people, auctions - 1)


@njit(cache=True, nogil=True)
def _next_person(state: Any, last: Any, active: Any) -> Any:
    active = min(last + 1, active)
    return last + 1 - active + next_up_to(state, active + _LEAD)


@njit(cache=True, nogil=True)
def _next_auction(state: Any, last: Any, in_flight: Any) -> Any:
    first = max(last - in_flight, 0)
    return first + next_up_to(state, last - first + 1 + _LEAD)


@njit(cache=True, nogil=True)
def _hot(last: Any) -> Any:
    return max(last, 0) // _HOT_BATCH * _HOT_BATCH


@njit(cache=True, nogil=True)
def _next_extra(state: Any, size: Any, average: Any) -> Any:
    """The start and the length of an `extra` that makes events, of `size` without it, `average` long on average."""
    wanted = average - size
    delta = int(np.floor(wanted * 0.2 + 0.5))
    length = wanted - delta + next_int(state, 2 * delta)
    return next_int(state, _LONG_STRING - length), length


@njit(cache=True, nogil=True)
def draw_people(events: Any, base: Any, proportions: Any, name_lengths: Any, city_lengths: Any) -> Any:
    """events int64[n], base uint64 -> numbers int64[n, 6]: id, place of the name, of the city, of the state, and the extra;
    cards uint8[n * 19]; e-mail addresses uint8[] and the end of each int32[n + 1], from 0."""
    n = len(events)
    numbers = np.empty((n, 6), np.int64)
    cards = np.full(n * CARD_LENGTH, _SPACE, np.uint8)
    emails, ends = np.empty(n * _EMAIL, np.uint8), np.zeros(n + 1, np.int32)
    for i in range(n):
        state = seeded(base + np.uint64(events[i]))
        name = next_int(state, _FIRST_NAMES) * _LAST_NAMES
        name += next_int(state, _LAST_NAMES)
        end = next_string(state, _MAILBOX, _SPACE, emails, ends[i])
        emails[end] = ord("@")
        end = next_string(state, _HOST, _SPACE, emails, end + 1)
        for letter in (ord("."), ord("c"), ord("o"), ord("m")):
            emails[end] = letter
            end += 1
        ends[i + 1] = end
        for part in range(4):
            digits = next_int(state, 10_000)
            for place in range(3, -1, -1):
                cards[i * CARD_LENGTH + part * 5 + place] = ord("0") + digits % 10
                digits //= 10
        city = next_int(state, len(city_lengths))
        numbers[i, 0] = _last_person(events[i], proportions)
        numbers[i, 1], numbers[i, 2], numbers[i, 3] = name, city, next_int(state, _STATES)
        size = 8 + name_lengths[name] + end - ends[i] + CARD_LENGTH + city_lengths[city] + 2
        numbers[i, 4], numbers[i, 5] = _next_extra(state, size, _PERSON_SIZE)
    return numbers, cards, emails[: ends[n]], ends


@njit(cache=True, nogil=True)
def draw_auctions(events: Any, base: Any, proportions: Any, hot_sellers: Any, active: Any, horizons: Any) -> Any:
    """events int64[n], base uint64 -> numbers int64[n, 8]: id, seller, category, initial bid, reserve, milliseconds that the
    auction takes, and the extra; item names uint8[] and the end of each int32[n + 1], from 0; descriptions and their ends.

    horizons int64[n]: milliseconds that the auctions take on average.
    """
    n = len(events)
    numbers = np.empty((n, 8), np.int64)
    names, name_ends = np.empty(n * _NAME, np.uint8), np.zeros(n + 1, np.int32)
    texts, text_ends = np.empty(n * _DESCRIPTION, np.uint8), np.zeros(n + 1, np.int32)
    for i in range(n):
        state = seeded(base + np.uint64(events[i]))
        person = _last_person(events[i], proportions)
        is_hot = next_int(state, hot_sellers) > 0
        numbers[i, 0] = _last_auction(events[i], proportions)
        numbers[i, 1] = _hot(person) if is_hot else _next_person(state, person, active)
        numbers[i, 2] = next_int(state, _CATEGORIES)
        numbers[i, 3] = next_price(state)
        numbers[i, 5] = 1 + next_up_to(state, max(horizons[i] * 2, 1))
        name_ends[i + 1] = next_string(state, _NAME, _SPACE, names, name_ends[i])
        text_ends[i + 1] = next_string(state, _DESCRIPTION, _SPACE, texts, text_ends[i])
        numbers[i, 4] = numbers[i, 3] + next_price(state)
        size = _AUCTION_NUMBERS + name_ends[i + 1] - name_ends[i] + text_ends[i + 1] - text_ends[i]
        numbers[i, 6], numbers[i, 7] = _next_extra(state, size, _AUCTION_SIZE)
    return numbers, names[: name_ends[n]], name_ends, texts[: text_ends[n]], text_ends


@njit(cache=True, nogil=True)
def draw_bids(
    events: Any, base: Any, proportions: Any, hot_auctions: Any, hot_bidders: Any, in_flight: Any, active: Any
) -> Any:
    """events int64[n], base uint64 -> int64[n, 6]: auction, bidder, price, place of the channel, and the extra."""
    numbers = np.empty((len(events), 6), np.int64)
    for i in range(len(events)):
        state = seeded(base + np.uint64(events[i]))
        auction = _last_auction(events[i], proportions)
        is_hot = next_int(state, hot_auctions) > 0
        numbers[i, 0] = _hot(auction) if is_hot else _next_auction(state, auction, in_flight)
        person = _last_person(events[i], proportions)
        is_hot = next_int(state, hot_bidders) > 0
        numbers[i, 1] = _hot(person) + 1 if is_hot else _next_person(state, person, active)
        numbers[i, 2] = next_price(state)
        if next_int(state, 2) > 0:
            numbers[i, 3] = next_int(state, _HOT_CHANNELS)
        else:
            numbers[i, 3] = _HOT_CHANNELS + next_int(state, CHANNELS)
        numbers[i, 4], numbers[i, 5] = _next_extra(state, _BID_NUMBERS, _BID_SIZE)
    return numbers


@njit(cache=True, nogil=True)
def copy_slices(text: Any, starts: Any, lengths: Any) -> Any:
    """The slices of text uint8[], one after the other, and the end of each int32[n + 1], from 0."""
    ends = np.zeros(len(starts) + 1, np.int32)
    for i in range(len(starts)):
        ends[i + 1] = ends[i] + lengths[i]
    copied = np.empty(ends[-1], np.uint8)
    for i in range(len(starts)):
        copied[ends[i] : ends[i + 1]] = text[starts[i] : starts[i] + lengths[i]]
    return copied, ends
