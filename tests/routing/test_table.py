"""A table gives every key the owner that a dictionary would, survives the wire, and moves no more than it must."""

from __future__ import annotations

import base64
import json
import pickle
import zlib

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamtopology.contract.reasons import EpochReason
from streamtopology.routing.epochs.epoch import Epoch, EpochFormatError, Route
from streamtopology.routing.epochs.placement import Placement
from streamtopology.routing.table.hashing import hash_int64
from streamtopology.routing.table.table import BUCKETS, RoutingTable, TableFormatError, bucket_of, moved, partition

EXTREMES = st.sampled_from([0, 1, 2**63, 2**64 - 1, 2**32, 2**32 - 1])
HASHES = st.integers(0, 2**64 - 1) | st.integers(0, 40) | EXTREMES
ENTRIES = st.dictionaries(HASHES, st.integers(0, 9), max_size=60)


@st.composite
def tables(draw: st.DrawFn) -> RoutingTable:
    entries = draw(ENTRIES)
    buckets = draw(st.lists(st.integers(0, 9), min_size=1, max_size=40))
    return table_of(entries, buckets)


def table_of(entries: dict[int, int], buckets: list[int]) -> RoutingTable:
    plain = RoutingTable(np.empty(0, np.uint64), np.empty(0, np.int32), np.array(buckets, np.int32))
    return plain.with_entries(np.array(list(entries), np.uint64), np.array(list(entries.values()), np.int32))


def owner(table: RoutingTable, key: int) -> int:
    """The slow, obvious lookup."""
    entries = dict(zip(table.entry_hashes.tolist(), table.entry_instances.tolist(), strict=True))
    return entries.get(key, int(table.buckets[(key >> 32) * len(table.buckets) >> 32]))


@settings(max_examples=150)
@given(tables(), st.lists(HASHES, max_size=40))
@example(table_of({0: 1}, [0, 2]), [0, 2**64 - 1])
@example(table_of({2**64 - 1: 1}, [0, 2]), [0, 2**64 - 1])
def test_lookup_is_that_of_a_dictionary(table: RoutingTable, others: list[int]) -> None:
    keys = [*others, *table.entry_hashes.tolist()]
    hashes = np.array(keys, np.uint64)
    expected = [owner(table, key) for key in keys]
    assert table.lookup(hashes).tolist() == expected
    owners, counts = table.route(hashes, 10)
    assert owners.tolist() == expected
    assert counts.tolist() == np.bincount(expected, minlength=10).tolist()


@pytest.mark.parametrize("n_entries", [1, 2, 3, 3_000, 100_000])
def test_lookup_finds_all_of_many_entries_and_no_others(n_entries: int) -> None:
    hashes = hash_int64(np.arange(2 * n_entries, dtype=np.int64))
    instances = np.arange(n_entries, dtype=np.int32) % 7 + 100
    table = RoutingTable.uniform(range(8)).with_entries(hashes[:n_entries], instances)
    owners = table.lookup(hashes)
    assert (owners[:n_entries] == instances).all()
    assert (owners[n_entries:] == table.buckets[bucket_of(hashes[n_entries:], BUCKETS)]).all()


def test_entries_that_agree_in_their_low_or_high_bits_are_distinguished() -> None:
    numbers = range(1, 1000)
    crowded = [0, *numbers, *(number << 26 for number in numbers), *(number << 52 for number in numbers)]
    table = table_of({key: number % 10 for number, key in enumerate(crowded)}, [0])
    assert table.lookup(np.array(crowded, np.uint64)).tolist() == [number % 10 for number in range(len(crowded))]


@settings(max_examples=100)
@given(tables(), st.lists(HASHES, max_size=40))
def test_silent_entries_are_those_of_none_of_the_keys(table: RoutingTable, others: list[int]) -> None:
    keys = np.array([*others, *table.entry_hashes[::2].tolist()], np.uint64)
    assert table.silent_entries(keys).tolist() == (~np.isin(table.entry_hashes, keys)).tolist()


def test_buckets_are_the_top_bits() -> None:
    hashes = np.array([0, 2**52 - 1, 2**52, 2**64 - 1], np.uint64)
    assert bucket_of(hashes, 4096).tolist() == [0, 0, 1, 4095]
    assert bucket_of(hashes, 3).tolist() == [0, 0, 0, 2]


@settings(max_examples=100)
@given(st.lists(st.integers(0, 6), max_size=200))
def test_partition_is_a_stable_sort(instances: list[int]) -> None:
    order, bounds = partition(np.array(instances, np.int32), 7)
    assert order.tolist() == sorted(range(len(instances)), key=lambda row: instances[row])
    assert np.diff(bounds).tolist() == [instances.count(instance) for instance in range(7)]


@pytest.mark.parametrize("stray", [-1, 3, 2**31 - 1])
def test_partition_refuses_instances_that_are_not_there(stray: int) -> None:
    with pytest.raises(ValueError, match=f"row 1 is for instance {stray}, but there are only instances 0..2"):
        partition(np.array([0, stray], np.int32), 3)


@settings(max_examples=60)
@given(tables(), tables(), st.lists(HASHES, max_size=30))
def test_moved_is_where_the_owners_differ(old: RoutingTable, new: RoutingTable, others: list[int]) -> None:
    keys = [*others, *old.entry_hashes.tolist(), *new.entry_hashes.tolist()]
    mask, before, after = moved(old, new, np.array(keys, np.uint64))
    assert before.tolist() == [owner(old, key) for key in keys]
    assert after.tolist() == [owner(new, key) for key in keys]
    assert mask.tolist() == [owner(old, key) != owner(new, key) for key in keys]


@pytest.mark.parametrize("seed", [None, 0, 7, -1])
def test_uniform_deals_buckets_evenly_and_repeatably(seed: int | None) -> None:
    table = RoutingTable.uniform([0, 2, 5], 4096, seed)
    assert sorted(np.bincount(table.buckets)[[0, 2, 5]].tolist()) == [1365, 1365, 1366]
    assert table == RoutingTable.uniform([0, 2, 5], 4096, seed)
    assert table.instances() == (0, 2, 5)
    assert (table == RoutingTable.uniform([0, 2, 5], 4096, 8)) is False


def fewest_moves(buckets: list[int], active: list[int]) -> int:
    """Moves that no deal with counts equal to within one can avoid: keep as many as the larger quotas allow."""
    base, larger = divmod(len(buckets), len(active))
    counts = sorted((buckets.count(instance) for instance in active), reverse=True)
    kept = sum(min(count, base + (place < larger)) for place, count in enumerate(counts))
    return len(buckets) - kept


@settings(max_examples=100)
@given(st.lists(st.sets(st.integers(0, 12), min_size=1), min_size=2, max_size=6), st.integers(1, 300))
def test_a_uniform_table_stays_uniform_and_moves_as_few_buckets_as_possible(scales: list[set[int]], n_buckets: int) -> None:
    table = RoutingTable.uniform(sorted(scales[0]), n_buckets)
    for active in scales[1:]:
        before, table = table, table.rescaled(sorted(active))
        counts = [int((table.buckets == instance).sum()) for instance in active]
        assert sum(counts) == n_buckets
        assert max(counts) - min(counts) <= 1
        if len(before.instances()) <= n_buckets:
            assert (table.buckets != before.buckets).sum() == fewest_moves(before.buckets.tolist(), sorted(active))


def is_even(table: RoutingTable) -> bool:
    return bool(np.ptp([(table.buckets == instance).sum() for instance in table.instances()]) <= 1)


@settings(max_examples=100)
@given(tables(), st.data())
def test_removing_instances_moves_their_buckets_only_and_drops_their_entries(table: RoutingTable, data: st.DataObject) -> None:
    staying = data.draw(st.sets(st.sampled_from(table.instances()), min_size=1))
    shrunk = table.rescaled(sorted(staying))
    assert set(shrunk.buckets.tolist()) <= staying
    entries = zip(table.entry_hashes.tolist(), table.entry_instances.tolist(), strict=True)
    kept = {key: instance for key, instance in entries if instance in staying}
    assert dict(zip(shrunk.entry_hashes.tolist(), shrunk.entry_instances.tolist(), strict=True)) == kept
    changed = shrunk.buckets != table.buckets
    assert changed.tolist() == (~np.isin(table.buckets, list(staying))).tolist()


@settings(max_examples=100)
@given(tables(), st.sets(st.integers(10, 14)))
def test_adding_instances_moves_buckets_to_them_only(table: RoutingTable, new: set[int]) -> None:
    grown = table.rescaled(sorted({*table.instances(), *new}))
    changed = grown.buckets != table.buckets
    assert set(grown.buckets[changed].tolist()) <= new
    assert grown.entry_hashes.tolist() == table.entry_hashes.tolist()
    if is_even(table):
        assert is_even(grown) or len(grown.instances()) < len(table.instances()) + len(new)


def test_a_plan_that_spares_a_slow_instance_holds_when_another_joins() -> None:
    planned = table_of({}, [0] * 450 + [1] * 450 + [2] * 100)
    grown = planned.rescaled([0, 1, 2, 3])
    assert np.bincount(grown.buckets).tolist() == [338, 337, 75, 250]
    assert np.bincount(grown.rescaled([0, 1, 2]).buckets).tolist() in ([450, 450, 100], [451, 449, 100])


def test_arrays_are_copied_and_read_only() -> None:
    buckets = np.array([0, 1], np.int32)
    table = RoutingTable(np.empty(0, np.uint64), np.empty(0, np.int32), buckets)
    buckets[0] = 9
    assert table.buckets.tolist() == [0, 1]
    with pytest.raises(ValueError, match="read-only"):
        table.buckets[0] = 9


def test_a_table_pickles_without_its_index() -> None:
    table = RoutingTable.uniform(range(4)).with_entries(hash_int64(np.arange(3000)), np.zeros(3000, np.int32))
    fresh = len(pickle.dumps(table))
    table.lookup(hash_int64(np.arange(10)))
    assert len(pickle.dumps(table)) == fresh
    assert pickle.loads(pickle.dumps(table)) == table


@pytest.mark.parametrize(
    ("hashes", "instances", "buckets", "sentence"),
    [
        ([2, 1], [0, 0], [0], "sorted and distinct"),
        ([1, 1], [0, 0], [0], "sorted and distinct"),
        ([1], [], [0], "1 entry_hashes for 0 entry_instances"),
        ([1], [-1], [0], "negative"),
        ([], [], [-3], "negative"),
        ([], [], [], "buckets is empty"),
        ([], [], [2**31], "do not fit int32"),
        ([], [], [0.5], "array of integers"),
    ],
)
def test_a_table_that_cannot_be_is_refused(
    hashes: list[int], instances: list[int], buckets: list[float], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        RoutingTable(np.array(hashes, np.uint64), np.array(instances, np.int64), np.array(buckets))  # pyright: ignore[reportArgumentType]


def test_entries_given_twice_and_instances_out_of_range_are_refused() -> None:
    table = RoutingTable.uniform([0, 3])
    with pytest.raises(ValueError, match="0x0000000000000005 has several entries"):
        table.with_entries(np.array([5, 5], np.uint64), np.array([0, 3], np.int32))
    with pytest.raises(ValueError, match="names instance 3, but there are only 3"):
        table.route(np.array([5], np.uint64), 3)
    with pytest.raises(ValueError, match="at least one"):
        RoutingTable.uniform([])
    with pytest.raises(ValueError, match="at least one"):
        table.rescaled([])


@settings(max_examples=60)
@given(tables())
def test_wire_round_trip_is_exact_and_repeatable(table: RoutingTable) -> None:
    wire = json.loads(json.dumps(table.to_wire()))
    read = RoutingTable.from_wire(wire)
    assert read == table
    assert json.dumps(read.to_wire()) == json.dumps(table.to_wire())


def test_any_changed_byte_on_the_wire_is_noticed() -> None:
    table = table_of({3: 1, 2**63: 0}, [0, 1, 2, 3])
    text = json.dumps(table.to_wire(), separators=(",", ":")).encode()
    for place in range(len(text)):
        for flip in (0x01, 0x04, 0x20, 0x80):
            damaged = bytearray(text)
            damaged[place] ^= flip
            with pytest.raises((TableFormatError, UnicodeDecodeError, json.JSONDecodeError)):
                RoutingTable.from_wire(json.loads(bytes(damaged)))


def test_a_newer_or_foreign_format_is_refused_with_a_sentence() -> None:
    wire = RoutingTable.uniform([0]).to_wire()
    with pytest.raises(TableFormatError, match="that writes format 3, not 1: this one cannot read it; run one version"):
        RoutingTable.from_wire({**wire, "format": 3})
    with pytest.raises(TableFormatError, match=r"before 0\.1\.0: this one cannot read it"):
        RoutingTable.from_wire({"version": 1, "data": wire["data"], "checksum": wire["checksum"]})
    with pytest.raises(TableFormatError, match="not a routing table"):
        RoutingTable.from_wire({"format": 1, "rows": 3})
    data = base64.b64encode(zlib.compress(b"\1" * 24)).decode()
    checksum = f"{zlib.crc32(f'1:{data}'.encode()):08x}"
    with pytest.raises(TableFormatError, match="is not a table"):
        RoutingTable.from_wire({"format": 1, "data": data, "checksum": checksum})


def an_epoch() -> Epoch:
    table = RoutingTable.uniform([0, 1, 3]).with_entries(np.array([7], np.uint64), np.array([3], np.int32))
    routes = {
        "count": Route("mixed", table, (3, 0, 1), {"beta": 1.5, "list": (1, 2)}),
        "enrich": Route("shuffle", None, (0, 1), {}),
    }
    placement = Placement(("large-0", "small-0", "large-1"), (0, 2), (0, 0, -1, 2))
    return Epoch(4, routes, (0.5, 0.0, 0.5), EpochReason.of_text("instance 3 was 20 % behind"), placement)


def test_an_epoch_comes_back_from_json_and_from_a_pickle() -> None:
    epoch = an_epoch()
    assert Epoch.from_json(epoch.to_json()) == epoch == pickle.loads(pickle.dumps(epoch))
    assert Epoch.from_json(epoch.to_json()).to_json() == epoch.to_json()
    assert epoch.routes["count"].instances == (0, 1, 3)
    assert epoch.routes["count"].options["list"] == [1, 2]


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (("format",), 3, "by a version of StreamTopology that writes format 3, not 1"),
        (("format",), None, "by a version of StreamTopology before 0.1.0: this one cannot read it"),
        (("number",), -1, "numbered from 0"),
        (("number",), "4", "number is '4', not a whole number"),
        (("source_shares",), [0.5, 0.4], "sum to 1"),
        (("source_shares",), [0.5, 0.5], "2 source_shares for 3 slots"),
        (("placement", "homes"), [0, 1], r"not on \[1\]"),
        (("placement", "present"), ["large-0"], r"placement\.present\[0\] is 'large-0', not a whole number"),
        (("placement", "slots"), "large-0", r"placement\.slots is 'large-0', not a list"),
        (("placement",), [0], "placement is .0., not a JSON object"),
        (("source_shares",), ["half"], r"source_shares\[0\] is 'half', not a finite number"),
        (("routes", "count"), 3, r"routes\.count is 3, not a JSON object"),
        (("routes", "count", "instances"), [0, 1], r"table names instances \[3\]"),
        (("routes", "count", "instances"), [0, 1, 3, 3], "distinct"),
        (("routes", "count", "instances"), [0, 1, 3.5], r"routes\.count\.instances\[2\] is 3.5, not a whole number"),
        (
            ("routes", "count", "table", "checksum"),
            "00000000",
            r"count\.table does not hold: the routing table is damaged",
        ),
        (("routes", "enrich", "instances"), [], "at least one"),
        (("routes", "enrich", "policy"), None, "policy is None"),
        (("extra",), 1, "has the fields"),
    ],
)
def test_a_damaged_epoch_is_refused_with_what_and_where(path: tuple[str, ...], value: object, sentence: str) -> None:
    wire = json.loads(an_epoch().to_json())
    place = wire
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(EpochFormatError, match=sentence):
        Epoch.from_json(json.dumps(wire))


def test_text_that_is_no_epoch_and_options_that_are_not_json_are_refused() -> None:
    with pytest.raises(EpochFormatError, match="not JSON"):
        Epoch.from_json("{")
    with pytest.raises(EpochFormatError, match="not list"):
        Epoch.from_json("[]")
    with pytest.raises(ValueError, match="JSON's types"):
        Route("shuffle", None, (0,), {"capacities": np.ones(1)})
