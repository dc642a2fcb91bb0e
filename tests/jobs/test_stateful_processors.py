"""StatefulProcessors of PySpark on our engine: what they emit is what Spark's own model of them, TwsTester, emits."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.tws_tester import TwsTester
from pyspark.sql.types import Row
from support.depth import deep
from support.processor_store import SCHEMA, Store
from support.scripted_processor import OUTPUT, Scripted, Untimed
from support.stages import Flow, Loss, manifest

from streamtopology.api import KeyedState, KeyedStateSchema, OptionError, Rows
from streamtopology.jobs.connectors.sinks.dead_letters import DEAD_LETTERS
from streamtopology.jobs.operators.base import BadTuple, BatchInfo, OperatorError
from streamtopology.jobs.operators.processors.handle import Handle, struct_of
from streamtopology.jobs.operators.processors.operator import PickledProcessor, operator_of
from streamtopology.jobs.state import StateError

Command = tuple[int, str, str, int]
CHANGES = ("update", "clear", "deepen", "append", "put", "extend", "map", "unmap")


def batch_of(commands: Sequence[Command]) -> pa.RecordBatch:
    columns = zip(*commands, strict=True) if commands else ([],) * 4
    return pa.record_batch([pa.array(list(column), field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


commands = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(CHANGES), st.sampled_from("abü"), st.integers(-3, 3)), max_size=8
)


def ordered(rows: Sequence[dict[str, Any]]) -> list[tuple[int, list[str]]]:
    """What each key emits, in its order: that of keys means nothing."""
    keys = sorted({row["k"] for row in rows})
    return [(key, [row["saw"] for row in rows if row["k"] == key]) for key in keys]


@deep(gate=25, long=1500)
@given(batches=st.lists(st.tuples(commands, st.integers(0, 1)), min_size=1, max_size=4))
def test_state_is_that_of_sparks_own_model(batches: list[tuple[list[Command], int]]) -> None:
    store, spark = Store(Untimed), TwsTester(Untimed())
    for number, (given_, lost) in enumerate(batches):
        expected: list[Row] = []
        for key in sorted({command[0] for command in given_}):
            expected += spark.test(key, [Row(k=k, what=what, name=name, n=n) for k, what, name, n in given_ if k == key])
        emitted = store.batch(batch_of(given_), lost, now=1000.0 + number)
        assert ordered(emitted) == ordered([row.asDict() for row in expected])


timers = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(("register", "unregister", "append")), st.just("a"), st.integers(1, 9))
)


@pytest.mark.parametrize("mode", ["EventTime", "ProcessingTime"])
@deep(gate=15, long=800)
@given(batches=st.lists(st.tuples(timers, st.integers(1, 3), st.integers(0, 1)), min_size=1, max_size=4))
def test_timers_fire_as_in_sparks_own_model(mode: str, batches: list[tuple[list[Command], int, int]]) -> None:
    """Times are seconds; in Spark, too, no timer can be registered that the watermark has passed."""
    options = {"time": "at"} if mode == "EventTime" else {}
    schema = SCHEMA.append(pa.field("at", pa.timestamp("us", "UTC")))
    store = Store(Scripted, schema=schema, timeMode=mode, **options)
    is_event = mode == "EventTime"
    spark = TwsTester(Scripted(), timeMode=mode, **({"eventTimeExtractor": lambda row: 10**9} if is_event else {}))
    now = 0
    for given_, ahead, lost in batches:
        now += ahead
        given_ = [(key, what, name, n * 1000 + now * 1000) for key, what, name, n in given_]
        expected: list[Row] = []
        for key in sorted({command[0] for command in given_}):
            expected += spark.test(key, [Row(k=k, what=what, name=name, n=n) for k, what, name, n in given_ if k == key])
        now += ahead
        if is_event:
            expected += spark.setWatermark(now * 1000)
        else:
            expected += spark.setProcessingTime(now * 1000)
        rows = batch_of(given_).append_column("at", pa.array([10**9] * len(given_), schema.field("at").type))
        emitted = store.batch(rows, lost, **({"watermark": float(now), "now": 5.0} if is_event else {"now": float(now)}))
        assert ordered(emitted) == ordered([row.asDict() for row in expected])


class Expiring(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "n bigint", 10_000)
        self.items = handle.getListState("items", "n bigint", 10_000)
        self.map = handle.getMapState("map", "name string", "n bigint", 10_000)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        found = self.value.get(), sorted(self.items.get()), sorted(self.map.iterator())
        exist = self.value.exists(), self.items.exists(), self.map.exists()
        yield Row(k=key[0], saw=f"{found} {exist}")
        for row in rows:
            if row.what == "value":
                self.value.update((row.n,))
            self.items.appendValue((row.n,))
            self.map.updateValue((row.name,), (row.n,))


def test_each_value_and_item_expires_by_itself() -> None:
    store = Store(Expiring, timeMode="ProcessingTime")
    saw = [
        store.batch(batch_of([(1, what, name, n)]), now=now)[0]["saw"]
        for now, what, name, n in [(100.0, "value", "a", 1), (105.0, "", "b", 2), (110.0, "", "c", 3), (116.0, "", "d", 4)]
    ]
    assert saw == [
        "(None, [], []) (False, False, False)",
        "((1,), [(1,)], [(('a',), (1,))]) (True, True, True)",
        "(None, [(2,)], [(('b',), (2,))]) (False, True, True)",
        "(None, [(3,)], [(('c',), (3,))]) (False, True, True)",
    ]
    assert len(store.state) == 1
    store.batch(batch_of([]), now=126.0)
    assert len(store.state) == 0


class Named(StatefulProcessor):
    """A TTL of 2**63 - 1, which some write for one without an end."""

    def init(self, handle: Any) -> None:
        self.map = handle.getMapState("map", "name string", "n bigint, half double", 2**63 - 1)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        for row in rows:
            before = self.map.getValue((row.name,))
            self.map.updateValue((row.name,), before or (row.n, 0.5))
            yield Row(k=key[0], saw=f"{before.half} {before['n']}" if before else "nothing")


def test_value_of_a_map_state_has_names_as_on_spark_and_the_longest_ttl_never_ends() -> None:
    store = Store(Named, timeMode="ProcessingTime")
    saw = [store.batch(batch_of([(1, "", "a", 7)]), now=now)[0]["saw"] for now in (100.0, 1e9)]
    assert saw == ["nothing", "0.5 7"]


class Careless(StatefulProcessor):
    """Does what a row says, wrong things above all."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.k = handle.getValueState("k", "n bigint")  # the name of the key's column, too
        self.gone = handle.getValueState("gone", "n bigint")
        handle.deleteIfExists("gone")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        for row in rows:
            self.k.update((row.n,))
            if row.what == "raise":
                raise ValueError("no such thing")
            if row.what == "text":
                self.k.update(("many",))
            if row.what == "half":
                self.k.update((0.5,))
            if row.what == "one":
                self.k.update(row.n)
            if row.what == "gone":
                self.gone.exists()
            if row.what == "late":
                self.handle.getListState("late", "n bigint")
            if row.what == "timer":
                self.handle.registerTimer(1)
            if row.what == "emit":
                yield Row(k=key[0], saw=5)
            if row.what == "emit other":
                yield Row(k=key[0], seen="x")
        yield Row(k=key[0], saw=str(self.k.get()))


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("raise", r"Careless.handleInputRows raised ValueError: no such thing on key k=2 \(test_stateful_processors.py, line"),
        ("text", r"value state 'k' was given \('many',\), which struct<n: int64> cannot hold: .* on key k=2"),
        ("half", r"value state 'k' was given \(0.5,\), which struct<n: int64> cannot hold: .* on key k=2"),
        ("one", r"value state 'k' takes a tuple of \(n: int64\); it was given 7 on key k=2"),
        ("gone", "Error checking value state exists: 'gone' was deleted by deleteIfExists on key k=2"),
        ("late", "getListState is called outside of init"),
        ("timer", "Timers are not supported with timeMode None"),
        ("emit", "Careless emits 5 of type int as 'saw', which its `output` declares as string.* on key k=2"),
    ],
)
def test_rows_of_a_key_that_fails_are_set_aside_and_its_state_stays(what: str, why: str) -> None:
    store = Store(Careless)
    store.batch(batch_of([(1, "", "", 1), (2, "", "", 2)]))
    with pytest.raises(BadTuple, match=why) as bad:
        store.batch(batch_of([(1, "", "", 5), (2, "", "", 6), (2, what, "", 7)]))
    assert bad.value.rows.tolist() == [1, 2]
    store.state.rollback()
    emitted = store.batch(batch_of([(2, "", "", 6), (1, "", "", 5), (2, what, "", 7), (3, "", "", 8)]), dead_letter=True)
    assert ordered(emitted) == [(1, ["(5,)"]), (3, ["(8,)"])]
    assert store.batch(batch_of([(2, "", "", 9)])) == [{"k": 2, "saw": "(9,)"}]


def test_other_columns_than_declared_end_the_run() -> None:
    with pytest.raises(OperatorError, match=r"Careless gives Row\(k=1, seen='x'\), but its `output` has the columns k, saw"):
        Store(Careless).batch(batch_of([(1, "emit other", "", 1)]), dead_letter=True)


class Plain(StatefulProcessor):
    def __init__(self, ttl: int | None = None, schema: Any = "n bigint") -> None:
        self.ttl, self.schema = ttl, schema

    def init(self, handle: Any) -> None:
        handle.getValueState("v", self.schema, self.ttl)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        return iter(())


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"output": "k bigintt"}, "option 'output': .*bigintt"),
        ({"timeMode": "eventtime"}, "option 'timeMode' is 'eventtime'; allowed: None, ProcessingTime, EventTime"),
        ({"timeMode": "EventTime"}, "option 'time', the column of event times, goes with timeMode: EventTime"),
        ({"timeMode": "EventTime", "time": "name"}, "time column 'name' is string"),
        ({"form": "arrow"}, "option 'form' is 'arrow'; allowed: rows, pandas"),
        ({"initialState": "x"}, "option 'initialState' is 'x'; allowed: one of two inputs or more, s"),
        ({"args": {"ttl": 5}}, "Plain.init: state variable 'v' has a TTL, which counts processing time"),
        ({"timeMode": "ProcessingTime", "args": {"ttl": -5}}, "state variable 'v' has the TTL -5; allowed: a whole number"),
        ({"timeMode": "ProcessingTime", "args": {"ttl": 0.5}}, "state variable 'v' has the TTL 0.5; allowed: a whole number"),
        ({"args": {"schema": 5}}, "Plain.init: state variable 'v' has the schema 5; allowed: a StructType, or DDL"),
        ({"args": {"tll": 5}}, r"Plain\(tll\) cannot be made or pickled: TypeError"),
        ({"args": {"schema": (each for each in ())}}, "cannot be made or pickled: TypeError: cannot pickle 'generator' object"),
    ],
)
def test_what_cannot_work_is_refused_before_the_start(options: dict[str, Any], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        Store(Plain, **options)


class FromBefore(StatefulProcessor):
    """The sum of a key, on top of what the initial state says."""

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "n bigint")

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        self.total.update((initialState.before,))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        before = self.total.get() or (0,)
        self.total.update((before[0] + sum(row.n for row in rows),))
        yield Row(k=key[0], saw=str(self.total.get()[0]))


def test_initial_state_comes_before_the_rows_of_its_batch() -> None:
    operator = operator_of(FromBefore)(output=OUTPUT, initialState="old")
    initial = pa.record_batch({"k": pa.array([1, 3], pa.int64()), "before": pa.array([100, 300], pa.int64())})
    operator.prepare({"s": SCHEMA, "old": initial.schema}, ("k",))
    assert isinstance(operator.state, KeyedStateSchema)
    state = KeyedState(operator.state)
    arrivals = [Rows.of(batch_of([(1, "", "", 1), (2, "", "", 2)]), "s", ("k",)), Rows.of(initial, "old", ("k",))]
    operator.begin(BatchInfo(0))
    emitted = [operator.accept(rows, state) for rows in operator.arranged(arrivals)]
    assert [rows and rows.to_pylist() for rows in emitted] == [None, [{"k": 1, "saw": "101"}, {"k": 2, "saw": "2"}]]
    operator.begin(BatchInfo(1))
    with pytest.raises(OperatorError, match=r"rows of 'old', the initial state, came in batch 1; .* start over with --fresh"):
        operator.accept(Rows.of(initial, "old", ("k",)), state)


class Frames(StatefulProcessor):
    """As for transformWithStateInPandas."""

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "n bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        import pandas

        for frame in rows:
            before = self.total.get() or (0,)
            self.total.update((before[0] + int(frame["n"].sum()),))
        yield pandas.DataFrame({"saw": [str(self.total.get()[0])], "k": [key[0]]})


def test_pandas_form_gets_and_gives_frames() -> None:
    store = Store(Frames, form="pandas")
    first = store.batch(batch_of([(2, "", "", 1), (1, "", "", 2), (2, "", "", 3)]))
    assert ordered(first) == [(1, ["2"]), (2, ["4"])]
    assert ordered(store.batch(batch_of([(2, "", "", 5)]), lost=1)) == [(2, ["9"])]


def processor_flow(folder: Path, clock: list[float], **spec: Any) -> tuple[Flow, dict[str, Any]]:
    run = {"run": "support.scripted_processor:Scripted", "with": {"output": OUTPUT, "timeMode": "ProcessingTime"}}
    own = {"name": "own", "inputs": ["s"], "grouping": {"policy": "mixed", "key": "k"}, **run}
    given_ = manifest([own], {"s": "k BIGINT, what STRING, name STRING, n BIGINT"}, **spec)
    return Flow(folder, given_, wall_clock=lambda: clock[0]), given_


def test_timers_of_processing_time_fire_on_a_silent_stream_and_after_a_restart(tmp_path: Path) -> None:
    clock = [1000.0]
    flow, given_ = processor_flow(tmp_path, clock)
    flow.batch(s=pa.table(batch_of([(1, "register", "a", 1_005_000), (2, "register", "a", 1_009_000)]).to_pydict(), SCHEMA))
    assert not flow.driver.is_due
    clock[0] = 1005.0
    assert flow.driver.is_due
    flow.silence()
    flow.start(given_)
    assert not flow.driver.is_due
    clock[0] = 1010.0
    flow.losses = [Loss(1, 0)]
    flow.silence()
    fired = [row["saw"].split(":")[0] for row in flow.published("own").to_pylist() if row["saw"].startswith("timer")]
    assert fired == ["timer 1005000", "timer 1009000"]
    clock[0] = 900.0  # the clock was set back
    flow.batch(s=pa.table(batch_of([(1, "append", "a", 1)]).to_pydict(), SCHEMA))
    assert flow.last.recorded_at == 1010.0


def test_failed_rows_go_to_the_dead_letters(tmp_path: Path) -> None:
    flow, _ = processor_flow(tmp_path, [1000.0], onBadTuple="deadLetter")
    flow.batch(
        s=pa.table(batch_of([(1, "append", "a", 1), (2, "nonsense", "a", 1), (2, "append", "b", 2)]).to_pydict(), SCHEMA)
    )
    assert {row["k"] for row in flow.published("own").to_pylist()} == {1}
    letters = flow.published(DEAD_LETTERS).to_pylist()
    assert len(letters) == 2
    assert (
        "Scripted.handleInputRows raised KeyError: 'nonsense' on key k=2 (scripted_processor.py, line" in letters[0]["reason"]
    )


class Keeps(StatefulProcessor):
    """Emits what it gets back of `given`, which it puts in state."""

    schema = (
        "at timestamp, ntz timestamp_ntz, price decimal(6,2), x float, lot struct<id:string,at:timestamp>, n map<string,int>"
    )
    given: tuple[Any, ...] = ()

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", self.schema)
        self.map = handle.getMapState("map", "at timestamp", "at timestamp")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        before = self.value.get()
        self.value.update(self.given)
        at = self.given[0]
        self.map.updateValue((at,), (at,))
        yield Row(k=key[0], saw=f"{before!r} {self.value.get()!r} {self.map.containsKey((at,))} {list(self.map.keys())}")


NAIVE = datetime(2024, 5, 1, 12, 30, 0, 5)
EAST = timezone(timedelta(hours=5))


@pytest.mark.parametrize("at", [NAIVE, NAIVE.replace(tzinfo=UTC), (NAIVE + timedelta(hours=5)).replace(tzinfo=EAST)])
@pytest.mark.parametrize("lot", [{"id": "a", "at": NAIVE}, Row(id="a", at=NAIVE), ("a", NAIVE.replace(tzinfo=UTC))])
@pytest.mark.parametrize("counts", [{"x": 1}, [("x", 1)]])
def test_state_is_given_back_as_spark_gives_it_at_once_and_after_a_restart(at: Any, lot: Any, counts: Any) -> None:
    class OfThis(Keeps):
        given = (at, NAIVE.replace(tzinfo=EAST), Decimal("1.255"), 0.1, lot, counts)

    store = Store(OfThis)
    kept = (NAIVE, NAIVE, Decimal("1.26"), 0.10000000149011612, Row(id="a", at=NAIVE), {"x": 1})
    assert [row["saw"] for row in store.batch(batch_of([(1, "", "", 1)]))] == [f"None {kept!r} True {[(NAIVE,)]}"]
    assert [row["saw"] for row in store.batch(batch_of([(1, "", "", 1)]))] == [f"{kept!r} {kept!r} True {[(NAIVE,)]}"]


class OfFloats(Plain):
    def init(self, handle: Any) -> None:
        self.map = handle.getMapState("map", "x double", "n bigint")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        yield Row(k=key[0], saw=f"{self.map.containsKey((float('nan'),))} {list(self.map.keys())}")
        for row in rows:
            self.map.updateValue((float("nan"),), (row.n,))


def test_nan_is_one_key_of_a_map_state() -> None:
    store = Store(OfFloats)
    saw = [store.batch(batch_of([(1, "", "", 1), (1, "", "", 2)]))[0]["saw"] for _ in range(3)]
    assert saw == ["False []", "True [(nan,)]", "True [(nan,)]"]


class Nested(Plain):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        import pandas

        yield pandas.DataFrame({"k": [key[0]], "saw": ["; ".join(repr(frame[name][0]) for frame in rows for name in "ams")]})


def test_values_with_parts_are_in_frames_as_spark_makes_them() -> None:
    """As Spark 4.3 showed them to the same class."""
    struct = pa.struct({"at": pa.timestamp("us", "UTC")})
    fields = {"k": pa.int64(), "a": pa.list_(pa.int64()), "m": pa.map_(pa.string(), pa.int64()), "s": struct}
    row = {"k": 1, "a": [17, None], "m": {"x": 17}, "s": {"at": NAIVE.replace(tzinfo=UTC)}}
    rows = pa.RecordBatch.from_pylist([{**row, "m": [("x", 17)]}], pa.schema(fields))
    saw = Store(Nested, schema=rows.schema, form="pandas").batch(rows)[0]["saw"]
    assert saw == f"array([17, None], dtype=object); {{'x': 17}}; {{'at': Timestamp('{NAIVE}')}}"


class Scaled(Plain):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        import pandas

        for frame in rows:
            yield pandas.DataFrame([[key[0], f"{(frame['i'] * 1_000_000)[0]} {(frame['f'] / 3)[0]}"]])


def test_frames_count_in_64_bits_and_need_no_names_as_on_spark() -> None:
    rows = pa.record_batch({"k": [1], "i": pa.array([5_000], pa.int32()), "f": pa.array([1.0], pa.float32())})
    saw = Store(Scaled, schema=rows.schema, form="pandas").batch(rows)[0]["saw"]
    assert saw == f"5000000000 {1 / 3}"


class Passing(Plain):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        yield from rows


def test_times_inside_of_values_pass_through_frames_in_the_zone_of_the_script() -> None:
    fields = {"k": pa.int64(), "s": pa.struct({"at": pa.timestamp("us", "UTC")}), "l": pa.list_(pa.timestamp("us", "UTC"))}
    at = NAIVE.replace(tzinfo=UTC)
    rows = pa.RecordBatch.from_pylist([{"k": 1, "s": {"at": at}, "l": [at, None]}], pa.schema(fields))
    operator = PickledProcessor(
        base64.b64encode(cloudpickle.dumps(Passing())).decode(),
        zone="Asia/Tokyo",
        output="k bigint, s struct<at: timestamp>, l array<timestamp>",
        form="pandas",
    )
    operator.prepare({"s": rows.schema}, ("k",))
    assert isinstance(operator.state, KeyedStateSchema)
    operator.begin(BatchInfo(0))
    emitted = operator.accept(Rows.of(rows, "s", ("k",)), KeyedState(operator.state))
    assert emitted is not None
    assert emitted.to_pylist() == rows.to_pylist()


class Counts(Plain):
    """Counts under one key of a map state, and keeps bytes that it changes afterwards."""

    def __init__(self, kind: str = "", key: Any = None) -> None:
        super().__init__()
        self.kind, self.key = kind, key

    def init(self, handle: Any) -> None:
        self.map = handle.getMapState("map", f"x {self.kind}", "n bigint")
        self.value = handle.getValueState("value", "b binary")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        before = self.map.getValue((self.key,)) or (0,)
        self.map.updateValue((self.key,), (before[0] + 1,))
        mine = bytearray(b"x")
        saw = f"{self.value.get()} {list(self.map.iterator())}"
        self.value.update((mine,))
        mine.append(0)
        yield Row(k=key[0], saw=saw)


@pytest.mark.parametrize(
    ("kind", "key", "given"),
    [
        ("float", 0.1, 0.10000000149011612),
        ("float", 1, 1.0),
        ("struct<f: float, d: double>", Row(f=0.1, d=float("nan")), Row(f=0.10000000149011612, d=float("nan"))),
        ("binary", bytearray(b"x"), b"x"),
    ],
)
def test_a_key_of_a_map_state_is_found_again_as_on_spark(kind: str, key: Any, given: Any) -> None:
    store = Store(Counts, args={"kind": kind, "key": key})
    saw = [store.batch(batch_of([(1, "", "", 1)]))[0]["saw"] for _ in range(3)]
    assert saw[1:] == [f"(b'x',) {[((given,), (times,))]}" for times in (2, 3)]


@pytest.mark.parametrize("kind", ["array<string>", "struct<m: map<string, int>>"])
def test_a_map_state_with_lists_or_maps_in_its_keys_is_refused_before_the_start(kind: str) -> None:
    with pytest.raises(OptionError, match="map state 'map' has keys with a list or a map in them; make a text of that"):
        Store(Counts, args={"kind": kind})


class OddFrames(StatefulProcessor):
    """The frame that a row names."""

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        import pandas

        frame = pandas.DataFrame({"k": [key[0]], "saw": ["x"], "more": [1]})
        for what in next(rows)["what"]:
            yield {"none": pandas.DataFrame(), "no rows": frame[:0][["k", "saw"]], "more": frame}[what]


def test_frames_without_rows_or_with_more_columns_are_taken() -> None:
    store = Store(OddFrames, form="pandas")
    assert store.batch(batch_of([(1, "none", "", 0)])) == []
    assert store.batch(batch_of([(1, "no rows", "", 0)])) == []
    assert store.batch(batch_of([(1, "none", "", 0), (1, "more", "", 0)])) == [{"k": 1, "saw": "x"}]


class Later(Plain):
    """A class with the state variables that `args` names."""

    def __init__(self, names: str = "v", ttl: int | None = None) -> None:
        super().__init__(ttl)
        self.names = names

    def init(self, handle: Any) -> None:
        self.last = [handle.getValueState(name, "n bigint", self.ttl) for name in self.names][-1]

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        self.last.update((1,))
        return iter(())


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"args": {"names": "v"}},
            r"declares no state variable 'w', which it has; handle.deleteIfExists\('w'\) in init drops it",
        ),
        (
            {"args": {"names": "vw", "ttl": 5}, "timeMode": "ProcessingTime"},
            "state 'v' had no TTL; give one to a variable of another",
        ),
    ],
)
def test_state_that_the_class_no_longer_declares_is_refused_with_what_to_do(options: dict[str, Any], why: str) -> None:
    before, now = (operator_of(Later)(output=OUTPUT, **each) for each in ({"args": {"names": "vw"}}, options))
    for operator in (before, now):
        operator.prepare({"s": SCHEMA}, ("k",))
    assert isinstance(before.state, KeyedStateSchema)
    assert isinstance(now.state, KeyedStateSchema)
    state = KeyedState(before.state)
    before.begin(BatchInfo(0))
    before.accept(Rows.of(batch_of([(1, "", "", 1)]), "s", ("k",)), state)
    with pytest.raises(StateError, match=why):
        now.state.fitted(state.delta())


class Broken(Plain):
    def init(self, handle: Any) -> None:
        raise ValueError("no such file")


def test_what_init_raises_names_the_class_and_the_line() -> None:
    with pytest.raises(OptionError, match=r"Broken.init raised ValueError: no such file \(test_stateful_processors.py, line"):
        Store(Broken)


class Unclosed(Plain):
    def close(self) -> None:
        raise ValueError("not open")


def test_what_close_raises_names_the_class_and_the_line() -> None:
    with pytest.raises(OperatorError, match=r"Unclosed.close raised ValueError: not open \(test_stateful_processors.py, line"):
        Store(Unclosed).batch(batch_of([(1, "", "", 1)]))


def test_each_of_many_timers_of_a_key_costs_the_same() -> None:
    handle = Handle("ProcessingTime", ("k",))
    handle._loaded_timers, handle.timers = [[5]], [[5]]  # pyright: ignore[reportPrivateUsage]
    handle.registerTimer(7)
    own = handle.timers[0]
    for timer in (9, 7, 8):
        handle.registerTimer(timer)
    handle.deleteTimer(5)
    assert handle.timers[0] is own
    assert own == [7, 8, 9]


class Hours(StatefulProcessor):
    """The hours that it sees in its key, in its rows and inside of their values, and the time as it gets it."""

    def init(self, handle: Any) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        for row in rows:
            yield Row(saw=f"{key[0].hour} {row.at.hour} {row.all[0].hour} {row.at.utcoffset()}", at=row.at)


class HoursOfFrames(Hours):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        import pandas

        for frame in rows:
            at = frame["at"].iloc[0]
            yield pandas.DataFrame({"saw": [f"{key[0].hour} {at.hour} {at.utcoffset()}"], "at": [at]})


@pytest.mark.parametrize(
    ("processor", "form", "saw"), [(Hours(), "rows", "22 22 22 -1 day, 20:00:00"), (HoursOfFrames(), "pandas", "22 22 None")]
)
def test_times_are_those_of_the_scripts_session(processor: StatefulProcessor, form: str, saw: str) -> None:
    """As Spark's worker makes them: rows with the session's zone, frames by its clock. New York is 4 hours behind in summer."""
    at = datetime(2024, 7, 2, 2, 30, tzinfo=UTC)
    schema = pa.schema({"at": pa.timestamp("us", "UTC"), "all": pa.list_(pa.timestamp("us", "UTC"))})
    pickled = base64.b64encode(cloudpickle.dumps(processor)).decode()
    operator = PickledProcessor(pickled, "America/New_York", output="saw string, at timestamp", form=form)
    operator.prepare({"s": schema}, ("at",))
    operator.begin(BatchInfo(0))
    assert isinstance(operator.state, KeyedStateSchema)
    rows = Rows.of(pa.RecordBatch.from_pylist([{"at": at, "all": [at]}], schema), "s", ("at",))
    emitted = operator.accept(rows, KeyedState(operator.state))
    assert emitted is not None
    assert emitted.to_pylist() == [{"saw": saw, "at": at}]


class Echo(Hours):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        yield from (Row(place=row.place, lots=row.lots, at=row.at.replace(tzinfo=None)) for row in rows)


def test_parts_of_a_row_may_be_emitted_as_they_came() -> None:
    """As by Spark's worker: a struct inside of a row is a dict, a map a list of pairs, and a time without zone one of UTC."""
    output = "place struct<city: string, pos: struct<lat: double>>, lots map<string, array<int>>, at timestamp"
    given_ = [
        {"k": 1, "place": {"city": "Köln", "pos": {"lat": 50.9}}, "lots": [("a", [1, None]), ("b", None)]},
        {"k": 1, "place": {"city": None, "pos": None}, "lots": []},
        {"k": 1, "place": None, "lots": None},
    ]
    given_ = [{**row, "at": datetime(2024, 7, 2, 2, number, tzinfo=UTC)} for number, row in enumerate(given_)]
    schema = pa.schema([("k", pa.int64()), *struct_of(output, "the output")])
    store = Store(Echo, output=output, schema=schema)
    rows = pa.RecordBatch.from_pylist(given_, schema)
    assert store.batch(rows) == rows.drop_columns("k").to_pylist()
