"""How the query and Spark's stream end together, whoever is first; Spark is a fake here, which begins batches when told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.manifests import counting, manifest, memory_sink

from streamtopology.jobs.checkpoint.carried import SparkFolder
from streamtopology.jobs.query import TopologyQuery, Until, unreadable
from streamtopology.routing.topology import Source, parse

_LONG_ENOUGH = 20.0


class FakeStream:
    """A frame, its writer and its query in one: calls back for `batches` batches in a thread, as Spark's stream does.

    With `one_more_on_stop` it begins a further batch while `stop` waits for the thread.
    """

    def __init__(self, batches: int, one_more_on_stop: bool = False) -> None:
        self._batches = batches
        self._one_more_on_stop = one_more_on_stop
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._call_back, daemon=True)
        self._batch: Callable[[Any, int], None]

    @property
    def writeStream(self) -> FakeStream:  # noqa: N802 - Spark's name
        return self

    def foreachBatch(self, batch: Callable[[Any, int], None]) -> FakeStream:  # noqa: N802 - Spark's name
        self._batch = batch
        return self

    def option(self, _name: str, _value: str) -> FakeStream:
        return self

    def trigger(self, **_when: Any) -> FakeStream:
        return self

    def start(self) -> FakeStream:
        self._thread.start()
        return self

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        return self._thread.is_alive()

    def exception(self) -> None:
        return None

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(_LONG_ENOUGH)
        assert not self._thread.is_alive(), "Spark would wait for its callback for ever"

    def _call_back(self) -> None:
        try:
            for number in range(self._batches):
                self._batch(self, number)
            if self._one_more_on_stop:
                self._stopped.wait()
                self._batch(self, self._batches)
        except Exception:  # noqa: BLE001 - ends the stream, as in Spark
            return


class FakeDriver:
    last_spark_batch = -1

    def __init__(self, fails_at: int | None = None) -> None:
        self.batches: list[int] = []
        self.drained: str | None = None
        self._fails_at = fails_at

    def batch(self, _descriptors: Any, _rows: Any, spark_batch: int) -> None:
        if spark_batch == self._fails_at:
            raise RuntimeError(f"batch {spark_batch} cannot be")
        self.batches.append(spark_batch)

    def drain(self, for_good: bool) -> None:
        self.drained = "for good" if for_good else "for now"


def query_of(stream: FakeStream, driver: FakeDriver, folder: Path) -> TopologyQuery:
    source = {"name": "rows", "format": "rate"}
    topology = parse(manifest("fake", [source], [counting()], [memory_sink("fake", "counts")]))
    return TopologyQuery(None, topology, {"rows": stream}, SparkFolder(folder), driver)  # type: ignore[arg-type]


def run(stream: FakeStream, driver: FakeDriver, folder: Path, until: Until | None = None) -> None:
    query_of(stream, driver, folder).run(until or Until(), prepare=lambda: None)


def test_the_end_of_the_input_drains_the_topology_for_good_if_that_was_said(tmp_path: Path) -> None:
    for until, drained in ((Until(), "for now"), (Until(drain=True), "for good")):
        driver = FakeDriver()
        run(FakeStream(batches=3), driver, tmp_path, until)
        assert (driver.batches, driver.drained) == ([0, 1, 2], drained)


def test_a_stop_drains_the_topology_only_if_it_is_for_good(tmp_path: Path) -> None:
    for for_good, drained in ((False, None), (True, "for good")):
        driver = FakeDriver()
        query = query_of(FakeStream(batches=0, one_more_on_stop=True), driver, tmp_path)
        query.run(Until(), prepare=lambda query=query, for_good=for_good: query.stop(for_good))
        assert (driver.batches, driver.drained) == ([], drained)


def test_a_batch_that_spark_begins_while_it_is_stopped_is_turned_away_at_once(tmp_path: Path) -> None:
    driver = FakeDriver()
    run(FakeStream(batches=2, one_more_on_stop=True), driver, tmp_path, Until(batches=2))
    assert (driver.batches, driver.drained) == ([0, 1], None)


def test_what_a_batch_raises_ends_the_run(tmp_path: Path) -> None:
    driver = FakeDriver(fails_at=1)
    with pytest.raises(RuntimeError, match="batch 1 cannot be"):
        run(FakeStream(batches=3), driver, tmp_path)
    assert (driver.batches, driver.drained) == ([0], None)


SPARK_SAYS = """[CAST_INVALID_INPUT] The value 'n0' cannot be cast because it is malformed. SQLSTATE: 22018
== SQL (line 1, position 1) ==
CAST(concat('n', value) AS INT) AS number
^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
"""


def test_an_expression_that_raises_where_spark_reads_is_told_with_its_source_and_batch() -> None:
    ticks = Source("ticks", "rate", None, {}, select=("CAST(concat('n', value) AS INT) AS number",))
    told = unreadable([ticks, replace(ticks, name="tocks", select=())], 3, SPARK_SAYS)
    assert told.startswith(
        "source 'ticks' failed in batch 3, expression \"CAST(concat('n', value) AS INT) AS number\": [CAST_INVALID_INPUT] The"
    )
    assert "SQLSTATE: 22018. Nothing of this batch was committed." in told
    assert unreadable([ticks], 0, "no class, no fragment").startswith(
        "source 'ticks' failed in batch 0: no class, no fragment. N"
    )
