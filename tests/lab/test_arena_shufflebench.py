"""The arena's ShuffleBench: our matcher and consumer are its own ones, record by record."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtopology.api import BatchInfo, KeyedState, KeyedStateSchema, Operator, Rows
from streamtopology.jobs.operators.registry import load
from streamtopology.lab.arena import keyed_rows, shufflebench
from streamtopology.lab.arena.engines import ENGINES
from streamtopology.lab.arena.peer import SCRIPTS
from streamtopology.lab.arena.shufflebench_matcher import matcher_of, record_hashes, write_rules

CODE = SCRIPTS / "streamtopology_shufflebench.py"


def test_hashes_are_those_of_hash4j():
    """`RangeBasedMatchingRule.extractHashValueFromRecord` of hash4j 0.20.0, for these records."""
    records = np.array([[(byte * (37 + n) + n * 11) % 256 for byte in range(16)] for n in range(3)], np.uint8)
    assert record_hashes(records).view(np.int64).tolist() == [246681556074538678, 5544915908898755867, -8322672253719848333]


@pytest.mark.parametrize(("skew", "selectivity"), [(0.0, 0.2), (1.2, 3.0)])
def test_a_record_has_the_rules_that_each_of_them_alone_says(tmp_path: Path, skew: float, selectivity: float):
    write_rules(tmp_path / "rules.csv", 1_000, selectivity, skew)
    rules = [line.split(",") for line in (tmp_path / "rules.csv").read_text().splitlines()]
    hashes = np.random.default_rng(1).integers(0, 2**64, 300, np.uint64)
    records, found = matcher_of(str(tmp_path / "rules.csv")).match(hashes)
    assert sum(float(share) for _, share in rules) == pytest.approx(selectivity)
    for record, value in enumerate(hashes.tolist()):
        wanted = [
            number
            for number, (offset, share) in enumerate(rules)
            if (value - int(offset)) % 2**63 < int(np.ldexp(float(share), 63))
        ]
        assert sorted(found[records == record].tolist()) == wanted
    assert (np.diff(records) >= 0).all()


def consumed(states: dict[str, bytes], consumer: str, stamp: int, data: bytes, rate: int, size: int) -> bytes | None:
    """AdvancedStateConsumer.accept, line by line: the event, if there is one."""
    count, total, first, _ = struct.unpack(">qQqq", states.get(consumer, bytes(size))[:32])
    count += 1
    numbers = struct.pack(
        ">qQqq", count, (total + struct.unpack(">Q", data[:8])[0]) % 2**64, stamp if count == 1 else first, stamp
    )
    state = numbers + data[: size - 32]
    states[consumer] = bytes(size) if count == rate else state
    return state if count == rate else None


@given(st.lists(st.lists(st.integers(0, 3), max_size=40), min_size=1, max_size=5), st.integers(1, 4))
def test_consumers_have_the_events_and_states_of_one_record_after_the_other(batches: list[list[int]], rate: int):
    rng = np.random.default_rng(5)
    operator, state = consumer_of(rate, 48)
    states: dict[str, bytes] = {}
    stamp = 0
    for number, batch in enumerate(batches):
        records = [(f"consumer_{key}", stamp + index, rng.bytes(64)) for index, key in enumerate(batch)]
        stamp += len(batch)
        columns = [[record[column] for record in records] for column in range(3)]
        given_rows = pa.RecordBatch.from_arrays([*map(pa.array, columns, MATCHES.types)], schema=MATCHES)
        operator.begin(BatchInfo(number=number))
        found: Any = operator.process(Rows.of(given_rows, "matches", key=("consumer",)), state)
        events = [(each[0], consumed(states, *each, rate, 48)) for each in records]
        wanted = sorted(event for event in events if event[1] is not None)
        rows = [] if found is None else found.to_pylist()
        assert sorted((row["consumer"], row["state"]) for row in rows) == wanted
    keys = Rows.of(one_each(states), "matches", key=("consumer",)).keys
    assert keys is not None
    kept = state.column("state")[state.find(keys)] if states else ()
    assert [bytes(each) for each in kept] == list(states.values())


def test_what_is_expected_is_what_the_operators_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    small = {"RULES": 50, "RECORDS_PER_FILE": 400, "DIFFERENT_FILES": 2, "FILES": 5, "CHECKED_RECORDS": 300}
    for name, value in small.items():
        monkeypatch.setattr(shufflebench, name, value)
    data = tmp_path / "shufflebench-1"
    data.mkdir()
    shufflebench.write_records(data, 1.0)
    assert len(list((data / f"parquet-{keyed_rows.NAMES[0]}").iterdir())) == 5
    matching = load(f"{CODE}:Matching", SCRIPTS)(rules=str(data / "rules.csv"))
    consumer, state = consumer_of(shufflebench.RATE, shufflebench.STATE_BYTES)
    events: list[str] = []
    for file in sorted((data / "parquet-once").iterdir()):
        (records,) = pq.read_table(file).combine_chunks().to_batches()
        assert {len(record) for record in records["data"].to_pylist()} == {shufflebench.RECORD_BYTES}
        matches: Any = matching.process(Rows.of(records, "rows"), state)
        found: Any = consumer.process(Rows.of(matches, "matches", key=("consumer",)), state)
        events += found["consumer"].to_pylist()
    counts = [events.count(consumer) for consumer in set(events)]
    expected = json.loads((data / "expected.json").read_text())["parquet"]
    assert expected == [len(counts), len(events), max(counts)]
    assert expected[1] > 50


def test_every_engine_of_the_case_has_its_script_and_its_java():
    for engine, (script, _) in shufflebench.SHUFFLEBENCH_CASE.peers.items():
        assert (SCRIPTS / script).is_file()
        assert engine in ENGINES
    assert all((SCRIPTS / f"{name}.java").is_file() for name in ("FlinkShuffleBench", "SparkShuffleBench", "ShuffleBenchRules"))


MATCHES = pa.schema([("consumer", pa.string()), ("stamp", pa.int64()), ("data", pa.binary())])


def one_each(consumers: dict[str, bytes]) -> pa.RecordBatch:
    """A row with each key."""
    columns = {"consumer": list(consumers), "stamp": [0] * len(consumers), "data": [b""] * len(consumers)}
    return pa.RecordBatch.from_pydict(columns, schema=MATCHES)


def consumer_of(rate: int, size: int) -> tuple[Operator, KeyedState]:
    operator = load(f"{CODE}:Consumer", SCRIPTS)(rate=rate, bytes=size)
    operator.prepare({"matches": MATCHES}, ("consumer",))
    assert isinstance(operator.state, KeyedStateSchema)
    return operator, KeyedState(operator.state)
