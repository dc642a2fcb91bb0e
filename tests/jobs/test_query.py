"""The common end of the query and Spark's stream, in either order; Spark is a fake here, which begins batches on request."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.manifests import counting, manifest, memory_sink
from support.noting_driver import NotingDriver

from streamtopology.jobs.checkpoint.spark_log import SparkFolder
from streamtopology.jobs.driver.watermarks import Poll
from streamtopology.jobs.runtime.streaming_query import Drain, TopologyQuery, Until, plainly, unread_text, unreadable
from streamtopology.topology import Source, Topology, parse

_LONG_ENOUGH = 20.0


class FakeStream:
    """A frame, its writer and its query in one: calls back for `batches` batches in a thread, as Spark's stream does.

    With `one_more_on_stop` it begins a further batch while `stop` waits for the thread. Started again, to read the rest,
    it calls back for `rest` batches and ends.
    """

    isStreaming = True  # noqa: N815 - the name is Spark's

    def __init__(self, batches: int, one_more_on_stop: bool = False, rest: int = 0) -> None:
        self._batches = range(batches)
        self._rest = range(batches, batches + rest)
        self._one_more_on_stop = one_more_on_stop
        self._stopped = threading.Event()
        self.status = {"isDataAvailable": True, "isTriggerActive": True}
        self.lastProgress = None
        self._batch: Callable[[Any, int], None]
        self.triggers: list[str] = []

    @property
    def writeStream(self) -> FakeStream:
        return self

    def foreachBatch(self, batch: Callable[[Any, int], None]) -> FakeStream:
        self._batch = batch
        return self

    def option(self, _name: str, _value: str) -> FakeStream:
        return self

    def queryName(self, _name: str) -> FakeStream:
        return self

    def trigger(self, **when: Any) -> FakeStream:
        self.triggers += when
        return self

    def start(self) -> FakeStream:
        batches, last = self._batches, self._one_more_on_stop
        self._batches, self._one_more_on_stop = self._rest, False
        self._stopped.clear()
        self._thread = threading.Thread(target=self._call_back, args=(batches, last), daemon=True)
        self._thread.start()
        return self

    @property
    def isActive(self) -> bool:
        return self._thread.is_alive()

    def exception(self) -> None:
        return None

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(_LONG_ENOUGH)
        assert not self._thread.is_alive(), "Spark would wait for its callback for ever"

    def _call_back(self, batches: range, one_more_on_stop: bool) -> None:
        try:
            for number in batches:
                self._batch(self, number)
            if one_more_on_stop:
                self._stopped.wait()
                self._batch(self, batches.stop)
        except Exception:  # noqa: BLE001 - ends the stream, as in Spark
            return


def query_of(stream: FakeStream, driver: NotingDriver, folder: Path) -> TopologyQuery:
    source = {"name": "rows", "format": "rate"}
    topology = parse(manifest("fake", [source], [counting()], [memory_sink("fake", "counts")], trigger={}))
    return TopologyQuery(topology, {"rows": stream}, SparkFolder(folder), driver)  # type: ignore[arg-type]


def run(stream: FakeStream, driver: NotingDriver, folder: Path, until: Until | None = None) -> None:
    query_of(stream, driver, folder).run(until or Until(), prepare=lambda: None)


def test_run_that_is_stopped_takes_in_what_was_gathered(tmp_path: Path) -> None:
    driver = NotingDriver()
    driver.has_gathered = True
    run(FakeStream(batches=5), driver, tmp_path, Until(batches=2))
    assert (driver.batches, driver.closed, driver.drained) == ([0, 1], [2], None)


def test_the_end_of_the_input_drains_the_topology_for_good_if_that_was_requested(tmp_path: Path) -> None:
    for until, drained in ((Until(), "for now"), (Until(drain=True), "for good")):
        driver = NotingDriver()
        run(FakeStream(batches=3), driver, tmp_path, until)
        assert (driver.batches, driver.drained) == ([0, 1, 2], drained)


@pytest.mark.parametrize(
    ("drain", "batches", "drained"),
    [(None, [], None), (Drain.AT_ONCE, [], "for good"), (Drain.AFTER_READING, [0, 1, 2], "for good")],
)
def test_stop_closes_windows_only_to_drain_and_reads_the_rest_first(
    tmp_path: Path, drain: Drain | None, batches: list[int], drained: str | None
) -> None:
    driver, stream = NotingDriver(), FakeStream(batches=0, one_more_on_stop=True, rest=3)
    query = query_of(stream, driver, tmp_path)
    query.run(Until(), prepare=lambda: query.stop(drain))
    assert (driver.batches, driver.drained) == (batches, drained)
    assert stream.triggers == ["processingTime", "availableNow"][: 1 + bool(batches)]


def test_stop_while_the_rest_is_read_leaves_windows_open(tmp_path: Path) -> None:
    driver = NotingDriver()
    query = query_of(FakeStream(batches=0, one_more_on_stop=True, rest=3), driver, tmp_path)
    driver.after_batch = {0: query.stop}
    query.run(Until(), prepare=lambda: query.stop(Drain.AFTER_READING))
    assert (driver.batches, driver.drained) == ([0], None)


def test_drain_reads_the_rest_whatever_the_number_of_batches(tmp_path: Path) -> None:
    driver = NotingDriver()
    query = query_of(FakeStream(batches=0, one_more_on_stop=True, rest=3), driver, tmp_path)
    query.run(Until(batches=1), prepare=lambda: query.stop(Drain.AFTER_READING))
    assert (driver.batches, driver.drained) == ([0, 1, 2], "for good")


def test_a_run_in_turns_gives_way_after_each_but_the_last(tmp_path: Path) -> None:
    driver = NotingDriver()
    query = query_of(FakeStream(batches=6), driver, tmp_path)
    seen = [list(driver.batches) for _ in query.turns(Until(batches=4, turn=2), prepare=lambda: None)]
    assert (seen, driver.batches) == ([[0, 1]], [0, 1, 2, 3])


def test_run_that_drains_ends_with_the_input_of_now(tmp_path: Path) -> None:
    stream = FakeStream(batches=2)
    run(stream, NotingDriver(), tmp_path, Until(drain=True))
    assert stream.triggers == ["availableNow"]


def test_a_batch_that_spark_begins_while_it_is_stopped_is_turned_away_at_once(tmp_path: Path) -> None:
    driver = NotingDriver()
    run(FakeStream(batches=2, one_more_on_stop=True), driver, tmp_path, Until(batches=2))
    assert (driver.batches, driver.drained) == ([0, 1], None)


def test_a_batch_that_spark_repeats_after_its_commit_is_not_run_again(tmp_path: Path) -> None:
    driver = NotingDriver(last_spark_batch=0)
    run(FakeStream(batches=3), driver, tmp_path)
    assert driver.batches == [1, 2]


def test_exception_of_a_batch_ends_the_run(tmp_path: Path) -> None:
    driver = NotingDriver(fails_at=1)
    with pytest.raises(RuntimeError, match="batch 1 cannot be"):
        run(FakeStream(batches=3), driver, tmp_path)
    assert (driver.batches, driver.drained) == ([0], None)


class QuietStream(FakeStream):
    """Has no more rows after its batches, and stays until it is stopped."""

    def _call_back(self, batches: range, one_more_on_stop: bool) -> None:
        super()._call_back(batches, one_more_on_stop)
        self.status = {"isDataAvailable": False, "isTriggerActive": False}
        self._stopped.wait()


@pytest.mark.parametrize("waiting", ["is_due", "is_rescaled"])
def test_silent_sources_do_not_hold_up_due_windows_or_leaving_executors(tmp_path: Path, waiting: str) -> None:
    driver = NotingDriver()
    query = query_of(QuietStream(batches=2), driver, tmp_path)
    driver.after_batch = {1: lambda: setattr(driver, waiting, True)}
    driver.without_rows = query.stop
    query.run(Until(), prepare=lambda: None)
    assert (driver.batches, driver.closed) == ([0, 1], [2])


def test_due_windows_wait_for_the_next_batch_while_there_are_rows(tmp_path: Path) -> None:
    driver = NotingDriver()
    driver.is_due = True
    run(FakeStream(batches=2, one_more_on_stop=True), driver, tmp_path, Until(seconds=1.0))
    assert (driver.batches, driver.closed) == ([0, 1], [])


class PollingStream(FakeStream):
    """Polls its sources all the time after its batches: Spark calls them empty meanwhile."""

    def _call_back(self, batches: range, one_more_on_stop: bool) -> None:
        super()._call_back(batches, one_more_on_stop)
        self.status = {"isDataAvailable": False, "isTriggerActive": True}
        self._stopped.wait()


def test_due_windows_wait_for_the_end_of_a_poll(tmp_path: Path) -> None:
    driver = NotingDriver()
    driver.is_due = True
    run(PollingStream(batches=2), driver, tmp_path, Until(seconds=1.0))
    assert (driver.batches, driver.closed) == ([0, 1], [])


def test_failure_of_a_batch_without_rows_ends_the_run(tmp_path: Path) -> None:
    driver = NotingDriver()
    driver.is_due = True

    def fail() -> None:
        raise RuntimeError("it cannot be")

    driver.without_rows = fail
    with pytest.raises(RuntimeError, match="it cannot be"):
        run(QuietStream(batches=0), driver, tmp_path)


def test_polls_of_a_run_follow_each_other(tmp_path: Path) -> None:
    driver = NotingDriver()
    run(FakeStream(batches=3), driver, tmp_path)
    first, *others = [poll for poll in driver.polls if poll is not None]
    assert first.after <= first.before
    assert all(earlier.before <= poll.after <= poll.before for earlier, poll in pairwise([first, *others]))
    assert len(others) == 2


def test_a_run_that_ends_with_its_input_asks_once_at_its_start(tmp_path: Path) -> None:
    driver = NotingDriver()
    run(FakeStream(batches=3), driver, tmp_path, Until(drain=True))
    assert len(driver.polls) == 3
    assert len({*driver.polls}) == 1


def test_nobody_knows_when_the_sources_were_asked_for_a_batch_of_the_run_before(tmp_path: Path) -> None:
    driver, planned = NotingDriver(), tmp_path / "spark" / "offsets"
    planned.mkdir(parents=True)
    (planned / "0").touch()
    run(FakeStream(batches=2), driver, tmp_path)
    unknown, known = driver.polls
    assert unknown is None
    assert known is not None


def test_input_that_waits_for_a_batch_is_told(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    source = {"name": "rows", "format": "parquet", "schema": "k STRING", "options": {"path": str(data)}}
    topology = parse(manifest("slow", [source], [counting()], [memory_sink("slow", "counts")], trigger={}))

    def told() -> bool:
        """What is told while the driver is made ready."""
        said: list[bool] = []
        is_told = threading.Event()

        def tell(waits: bool) -> None:
            said.append(waits)
            is_told.set()

        def prepare() -> None:
            assert is_told.wait(_LONG_ENOUGH)
            query.stop()

        query = TopologyQuery(topology, {}, SparkFolder(tmp_path), NotingDriver(), tell)  # type: ignore[arg-type]
        query.run(Until(), prepare)
        return said[0]

    assert not told()
    pq.write_table(pa.table({"k": ["a"]}), data / "part.parquet")
    assert told()


def mixed(folder: Path, files: int) -> Topology:
    """Over files, of which a batch has one, and a source that Spark reads."""
    data = folder / "data"
    data.mkdir()
    for number in range(files):
        pq.write_table(pa.table({"k": ["a"]}), data / f"{number}.parquet")
    sources = [
        {"name": "ticks", "format": "rate"},
        {
            "name": "rows", "format": "parquet", "schema": "k STRING",
            "options": {"path": str(data), "maxFilesPerTrigger": 1}
        },
    ]  # fmt: skip
    return parse(manifest("mixed", sources, [counting()], [memory_sink("mixed", "counts")], trigger={}))


@pytest.mark.parametrize("files", [0, 2, 5])
def test_files_and_rows_that_spark_reads_are_read_in_one_run(tmp_path: Path, files: int) -> None:
    driver, stream = NotingDriver(), FakeStream(batches=3)
    query = TopologyQuery(mixed(tmp_path, files), {"ticks": stream}, SparkFolder(tmp_path), driver)  # type: ignore[arg-type]
    query.run(Until(drain=True), prepare=lambda: None)
    assert sum(len(given.descriptors) for given in driver.given) == files
    assert [given.spark_batch for given in driver.given if given.rows is not None] == [0, 1, 2]
    assert (driver.positions.get("rows", 0), driver.drained) == (files, "for good")


def test_all_sources_were_asked_for_what_a_batch_has_not(tmp_path: Path) -> None:
    """A batch of files alone says nothing of Spark's source while that is being asked."""
    driver, stream = NotingDriver(), QuietStream(batches=1)
    query = TopologyQuery(mixed(tmp_path, 3), {"ticks": stream}, SparkFolder(tmp_path), driver)  # type: ignore[arg-type]
    query.run(Until(batches=3), prepare=lambda: None)
    for given, poll in zip(driver.given, driver.polls, strict=True):
        assert poll is None or poll.after <= poll.before
        assert poll is not None or given.rows is None


def test_a_run_that_ends_with_its_input_says_who_holds_the_watermark_back(tmp_path: Path) -> None:
    for until, said in ((Until(), 1), (Until(drain=True), 0)):
        driver = NotingDriver()
        driver.watermarks.advance({"ahead": {"": 100.0}}, Poll(1.0, 1.0))
        run(FakeStream(batches=1), driver, tmp_path, until)
        assert sum(text.startswith("silent has no new rows") for text in driver.said) == said


SPARK_SAYS = """[CAST_INVALID_INPUT] The value 'n0' cannot be cast because it is malformed. SQLSTATE: 22018
== SQL (line 1, position 1) ==
CAST(concat('n', value) AS INT) AS number
^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
"""


def test_failed_spark_expression_is_reported_with_source_and_batch() -> None:
    ticks = Source("ticks", "rate", None, {}, select=("CAST(concat('n', value) AS INT) AS number",))
    reported = unreadable([ticks, replace(ticks, name="tocks", select=())], 3, SPARK_SAYS)
    assert reported.startswith(
        "source 'ticks' failed in batch 3, expression \"CAST(concat('n', value) AS INT) AS number\": [CAST_INVALID_INPUT] The"
    )
    assert "SQLSTATE: 22018. Nothing of this batch was committed." in reported
    assert unreadable([ticks], 0, "no class, no fragment").startswith(
        "source 'ticks' failed in batch 0: no class, no fragment. N"
    )


PYTHON_SAYS = """org.apache.spark.api.python.PythonException: An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "pyspark_odd.py", line 9, in read
    rows = [row[2]]
            ~~~^^^
IndexError: list index out of range

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "pyspark_odd.py", line 11, in read
    raise ValueError("line 33 has two columns") from error
ValueError: line 33 has two columns

\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)
"""


def test_failure_of_a_source_in_python_is_reported_with_its_reason() -> None:
    reported = unreadable([Source("odd", "odd", None, {})], 3, PYTHON_SAYS)
    assert reported.startswith("source 'odd' failed in batch 3: ValueError: line 33 has two columns. Nothing of this batch was")


def test_failed_query_of_a_source_in_python_is_a_sentence() -> None:
    trace = PYTHON_SAYS.partition("Traceback")[2]
    assert plainly(f"[STREAM_FAILED] latestOffset: Traceback{trace}=== Streaming Query ===\nplan") == (
        "the streaming query failed: [STREAM_FAILED] latestOffset: ValueError: line 33 has two columns"
    )
    assert plainly("[LOST] server away\n=== Streaming Query ===\nplan") == "the streaming query failed: [LOST] server away"


@pytest.mark.parametrize("cause", ["Broken pipe", "null"])
def test_killed_process_of_a_source_in_python_is_a_sentence(cause: str) -> None:
    sentence = plainly(f"{cause}\n=== Streaming Query ===\nplan")
    assert sentence.startswith(f"the streaming query failed: a connection was cut off ({cause}). Where a source is in Python")
    assert sentence.endswith("Start again, which continues from the newest commit")


def test_unread_input_is_named_with_its_source() -> None:
    assert unread_text({"rows": "1 file"}) == "1 file of source 'rows' is unread"
    assert unread_text({"rows": "8 files", "more": "1,200 messages"}) == (
        "8 files of source 'rows' and 1,200 messages of source 'more' are unread"
    )
