"""Nexmark's events are those of its own generator: the files in tests/lab/nexmark, which its NexmarkEvents.java has made."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtopology.jobs.cli.main import main
from streamtopology.lab.nexmark.configuration import NexmarkConfiguration
from streamtopology.lab.nexmark.events import KINDS, make_events, write_events

FOLDER = Path(__file__).parent / "nexmark"
DEFAULT = NexmarkConfiguration()
# personProportion=1 auctionProportion=1 bidProportion=3 hotAuctionRatio=9 hotSellersRatio=1 hotBiddersRatio=16
# numActivePeople=4 numInFlightAuctions=3
RATIOS = NexmarkConfiguration(
    person_proportion=1,
    auction_proportion=1,
    bid_proportion=3,
    hot_auction_ratio=9,
    hot_sellers_ratio=1,
    hot_bidders_ratio=16,
    num_active_people=4,
    num_in_flight_auctions=3,
    seed=42,  # rare: Java draws the long string with a gamma that had too few changes of bits
)
# personProportion=2 auctionProportion=3 bidProportion=4 firstEventRate=1 numInFlightAuctions=1000000 outOfOrderGroupSize=70
SLOW = NexmarkConfiguration(
    person_proportion=2,
    auction_proportion=3,
    bid_proportion=4,
    first_event_rate=1,
    num_in_flight_auctions=1_000_000,
    out_of_order_group_size=70,
    seed=2**63 - 1,
)


def of_java(name: str) -> dict[str, list[list[str]]]:
    """The lines of each kind, in fields."""
    lines = [line.split("\t") for line in gzip.decompress((FOLDER / f"{name}.tsv.gz").read_bytes()).decode().splitlines()]
    return {kind: [fields for first, *fields in lines if first == kind] for kind in KINDS}


def as_fields(table: pa.Table) -> list[list[str]]:
    """Rows of `table` as Java prints them."""
    for name in {"dateTime", "expires"} & set(table.column_names):
        at = table.column_names.index(name)
        table = table.set_column(at, name, table[name].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()))
    texts = [pc.cast(column, pa.string()).to_pylist() for column in table.columns]
    return [list(row) for row in zip(*texts, strict=True)]


@pytest.mark.parametrize(
    ("name", "configuration", "count"), [("default", DEFAULT, 2500), ("ratios", RATIOS, 1000), ("slow", SLOW, 300)]
)
def test_events_equal_those_of_nexmark(name: str, configuration: NexmarkConfiguration, count: int):
    java = of_java(name)
    assert sum(map(len, java.values())) == count
    for kind in KINDS:
        assert as_fields(make_events(configuration, kind, 0, count)) == java[kind]


def test_channel_1_has_the_number_that_java_cannot_make_positive():
    (bid,) = make_events(DEFAULT, "bid", 20731 - 2, 1).to_pylist()
    assert bid["channel"] == "channel-1"
    assert bid["url"] == "https://www.nexmark.com/wwq/jhgs/cyh/item.htm?query=1&channel_id=-2147483648"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("configuration", [DEFAULT, RATIOS, SLOW], ids=["default", "ratios", "slow"])
@given(cuts=st.lists(st.integers(0, 1000), max_size=5))
def test_slices_are_parts_of_the_whole(kind: str, configuration: NexmarkConfiguration, cuts: list[int]):
    ends = [0, *sorted(cuts), 1000]
    slices = [make_events(configuration, kind, first, end - first) for first, end in pairwise(ends)]
    assert pa.concat_tables(slices).equals(make_events(configuration, kind, 0, 1000))


def test_events_far_from_the_first_need_none_before():
    bids = make_events(DEFAULT, "bid", 10**12, 50)
    assert bids["event_id"][0].as_py() == 10**12 + 4
    assert bids["dateTime"][0].as_py().year == 2018
    newest = 10**12 // 50 * 3 + 1000
    assert min(bids["auction"].to_pylist()) >= newest - 110


@pytest.mark.parametrize("proportions", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 2, 3), (2, 0, 3)])
def test_streams_without_some_of_the_kinds_have_all_others(proportions: tuple[int, int, int]):
    configuration = NexmarkConfiguration(
        person_proportion=proportions[0], auction_proportion=proportions[1], bid_proportion=proportions[2]
    )
    tables = {kind: make_events(configuration, kind, 0, 300) for kind in KINDS}
    total = sum(proportions)
    assert {kind: table.num_rows for kind, table in tables.items()} == {
        kind: 300 * share // total for kind, share in zip(KINDS, proportions, strict=True)
    }
    assert min(tables["bid"]["auction"].to_pylist(), default=1000) >= 1000


def test_other_seed_gives_other_events():
    one, other = (make_events(NexmarkConfiguration(seed=seed), "bid", 0, 1000) for seed in (1, 2))
    assert np.mean(np.isin(one["price"], other["price"])) < 0.1
    assert not set(one["extra"].to_pylist()) & set(other["extra"].to_pylist())


@pytest.mark.parametrize(("events", "files"), [(0, 1), (1, 1), (1, 3), (1000, 7)])
def test_files_are_the_stream_in_their_order(events: int, files: int, tmp_path: Path):
    written = write_events(tmp_path, DEFAULT, events, files)
    assert written == sorted(tmp_path.rglob("*.parquet"), key=lambda path: (KINDS.index(path.parent.name), path))
    for kind in KINDS:
        tables = [pq.read_table(path) for path in written if path.parent.name == kind]
        assert len(tables) == files
        assert pa.concat_tables(tables).equals(make_events(DEFAULT, kind, 0, events))


def test_command_writes_what_its_options_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    options = ["--events", "900", "--files", "2", "--bid-proportion", "1", "--hot-bidders-ratio", "1", "--seed", "5"]
    assert main(["nexmark", str(tmp_path), *options]) == 0
    assert capsys.readouterr().out.startswith("900 events, ")
    configuration = NexmarkConfiguration(bid_proportion=1, hot_bidders_ratio=1, seed=5)
    assert pq.read_table(tmp_path / "bid").equals(make_events(configuration, "bid", 0, 900))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--events", "-1"], "'-1' is not a whole number of 0 or more"),
        (["--files", "0"], "'0' is not a whole number above 0"),
        (["--hot-auction-ratio", "0"], "hot-auction-ratio is 0: it has to be a whole number from 1 to 1000000"),
        (["--num-active-people", "1000001"], "num-active-people is 1000001: it has to be a whole number from 1 to 1000000"),
        (["--first-event-rate", str(2**31)], f"first-event-rate is {2**31}: it has to be a whole number from 1 to {2**31 - 1}"),
        (["--seed", str(2**63)], f"seed is {2**63}: it has to be a whole number from 0 to {2**63 - 1}"),
        (
            ["--person-proportion", "0", "--auction-proportion", "0", "--bid-proportion", "0"],
            "person-proportion, auction-proportion and bid-proportion are all 0: at least one has to be more",
        ),
        (["--events", "20000001"], "a file has at most 2,000,000 events: 20,000,001 events need 11 files"),
    ],
)
def test_options_that_make_no_stream_are_refused(
    options: list[str], error: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["nexmark", str(tmp_path / "events"), *options]) == 2
    assert error in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "events").exists()
