"""Any slice of a stream of Nexmark as Arrow tables, with the columns of nexmark's views `person`, `auction` and `bid`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamtopology.lab.nexmark import kernels
from streamtopology.lab.nexmark.configuration import NexmarkConfiguration
from streamtopology.lab.nexmark.splittable_random import next_long, seeded
from streamtopology.lab.nexmark.texts import CITIES, NAMES, STATES, Bytes, Texts, texts
from streamtopology.lab.numbered_files import write_batches

Numbers = npt.NDArray[np.int64]
Columns = dict[str, Numbers | pa.Array]

KINDS = ("person", "auction", "bid")
# Arrow's strings of a column have at most 2 GiB, and an auction has nearly 600 bytes of `extra`.
MOST_EVENTS_OF_A_FILE = 2_000_000
_ROW_GROUPS = 16

# The time of event number 0: 2015-07-15T00:00:00Z, as Beam's Nexmark has it; nexmark's own begins when it is started.
BASE_TIME_MS = 1_436_918_400_000

# Nexmark's source begins with event number 1, whose id is 2: by its proportions person 1000 and auction 1000 never come.
_FIRST_NUMBER = _ID_OF_NUMBER_0 = 1
_FIRST_PERSON = _FIRST_AUCTION = 1000
_FIRST_BIDDER = 2 * _FIRST_PERSON  # nexmark's BidGenerator adds it twice: bidders are not the people whom it has chosen
_FIRST_CATEGORY = 10


def make_events(configuration: NexmarkConfiguration, kind: str, first: int, count: int) -> pa.Table:
    """The events of one of `KINDS` among `count` events of a stream, from its event `first` on, counted from 0.

    They are in the order in which nexmark emits them, with their ids in the column `event_id`.
    """
    numbers = _emitted(configuration, np.arange(first + _FIRST_NUMBER, first + count + _FIRST_NUMBER, dtype=np.int64))
    events = numbers + _ID_OF_NUMBER_0
    offsets = events % configuration.total_proportion
    people, auctions, _ = configuration.proportions
    chosen = events[np.searchsorted([people, people + auctions], offsets, side="right") == KINDS.index(kind)]
    base = np.uint64(next_long(seeded(np.uint64(configuration.seed))))
    columns = _COLUMNS[kind](configuration, base, chosen, texts(configuration.seed))
    return pa.table({**columns, "event_id": chosen})


def write_events(folder: Path, configuration: NexmarkConfiguration, events: int, files: int) -> list[Path]:
    """Write the first `events` events into the folders person, auction and bid, `files` files each; returns all files.

    Files of the same number have the events of the same time. Raises `ValueError`.
    """
    if events > files * MOST_EVENTS_OF_A_FILE:
        needed = -(-events // MOST_EVENTS_OF_A_FILE)
        raise ValueError(f"a file has at most {MOST_EVENTS_OF_A_FILE:,} events: {events:,} events need {needed:,} files")

    def batch(kind: str, number: int) -> pa.Table:
        first, end = number * events // files, (number + 1) * events // files
        return make_events(configuration, kind, first, end - first)

    return [path for kind in KINDS for path in write_batches(folder / kind, kind, files, _ROW_GROUPS, partial(batch, kind))]


def _emitted(configuration: NexmarkConfiguration, numbers: Numbers) -> Numbers:
    """The numbers of the events that are emitted in place of those `numbers`."""
    group = configuration.out_of_order_group_size
    return numbers // group * group + numbers * 953 % group


def _people(configuration: NexmarkConfiguration, base: np.uint64, events: Numbers, once: Texts) -> Columns:
    lengths = [np.array([len(text) for text in each]) for each in (NAMES, CITIES)]
    numbers, cards, emails, ends = kernels.draw_people(events, base, configuration.proportions, *lengths)
    return {
        "id": numbers[:, 0] + _FIRST_PERSON,
        "name": pa.array(NAMES).take(pa.array(numbers[:, 1])),
        "emailAddress": _strings(emails, ends),
        "creditCard": _strings(cards, np.arange(len(events) + 1, dtype=np.int32) * np.int32(kernels.CARD_LENGTH)),
        "city": pa.array(CITIES).take(pa.array(numbers[:, 2])),
        "state": pa.array(STATES).take(pa.array(numbers[:, 3])),
        "dateTime": _times(_milliseconds(configuration, events)),
        "extra": _strings(*kernels.copy_slices(once.extra, numbers[:, 4], numbers[:, 5])),
    }


def _auctions(configuration: NexmarkConfiguration, base: np.uint64, events: Numbers, once: Texts) -> Columns:
    times = _milliseconds(configuration, events)
    ahead = configuration.num_in_flight_auctions * configuration.total_proportion // max(configuration.auction_proportion, 1)
    horizons = _milliseconds(configuration, events + ahead) - times
    ratios = configuration.hot_sellers_ratio, configuration.num_active_people
    numbers, names, name_ends, texts, text_ends = kernels.draw_auctions(
        events, base, configuration.proportions, *ratios, horizons
    )
    return {
        "id": numbers[:, 0] + _FIRST_AUCTION,
        "itemName": _strings(names, name_ends),
        "description": _strings(texts, text_ends),
        "initialBid": numbers[:, 3],
        "reserve": numbers[:, 4],
        "dateTime": _times(times),
        "expires": _times(times + numbers[:, 5]),
        "seller": numbers[:, 1] + _FIRST_PERSON,
        "category": numbers[:, 2] + _FIRST_CATEGORY,
        "extra": _strings(*kernels.copy_slices(once.extra, numbers[:, 6], numbers[:, 7])),
    }


def _bids(configuration: NexmarkConfiguration, base: np.uint64, events: Numbers, once: Texts) -> Columns:
    ratios = configuration.hot_auction_ratio, configuration.hot_bidders_ratio
    recent = configuration.num_in_flight_auctions, configuration.num_active_people
    numbers = kernels.draw_bids(events, base, configuration.proportions, *ratios, *recent)
    channels = pa.array(numbers[:, 3])
    return {
        "auction": numbers[:, 0] + _FIRST_AUCTION,
        "bidder": numbers[:, 1] + _FIRST_BIDDER,
        "price": numbers[:, 2],
        "channel": once.channels.take(channels),
        "url": once.urls.take(channels),
        "dateTime": _times(_milliseconds(configuration, events)),
        "extra": _strings(*kernels.copy_slices(once.extra, numbers[:, 4], numbers[:, 5])),
    }


def _milliseconds(configuration: NexmarkConfiguration, events: Numbers) -> Numbers:
    """The times of events int64[n]."""
    microseconds = (events - _ID_OF_NUMBER_0) * (1_000_000.0 / configuration.first_event_rate)
    return BASE_TIME_MS + microseconds.astype(np.int64) // 1000


def _times(milliseconds: Numbers) -> pa.Array:
    return pa.array(milliseconds * 1000).cast(pa.timestamp("us", "UTC"))


def _strings(text: Bytes, ends: npt.NDArray[np.int32]) -> pa.StringArray:
    return pa.StringArray.from_buffers(len(ends) - 1, pa.py_buffer(ends), pa.py_buffer(text))


_COLUMNS = {"person": _people, "auction": _auctions, "bid": _bids}
