"""A streaming query of Spark's in one process: it plans batches of whole numbers and keeps its logs as Spark does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamtopology.jobs.runtime.streaming_query import TopologyQuery, Until
from support.stages import Flow


class SparkStream:
    """Frame, writer and query in one, over the numbers up to `rows`. It ends with them, or with what its batches raise."""

    lastProgress = None  # noqa: N815 - Spark's name
    isStreaming = True  # noqa: N815 - Spark's name

    def __init__(self, rows: int, rows_a_batch: int) -> None:
        self._rows, self._rows_a_batch = rows, rows_a_batch
        self._logs = Path()
        self._stopping = threading.Event()
        self._failure: Exception | None = None
        self._batch: Callable[[Any, int], None]

    def option(self, name: str, value: str) -> SparkStream:
        assert name == "checkpointLocation"
        self._logs = Path(value)
        return self

    def foreachBatch(self, batch: Callable[[Any, int], None]) -> SparkStream:
        self._batch = batch
        return self

    def start(self) -> SparkStream:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    @property
    def isActive(self) -> bool:
        return self._thread.is_alive()

    def exception(self) -> Exception | None:
        return self._failure

    @property
    def status(self) -> dict[str, bool]:
        return {"isDataAvailable": True, "isTriggerActive": True}

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(20)

    def _same(self, *_given: Any, **_options: Any) -> SparkStream:
        return self

    writeStream = property(_same)  # noqa: N815 - Spark's name
    trigger = queryName = _same  # noqa: N815 - Spark's names

    def _run(self) -> None:
        try:
            self._plan_and_run()
        except Exception as failure:  # noqa: BLE001 - ends the stream, as in Spark
            self._failure = failure

    def _plan_and_run(self) -> None:
        newest = max(_numbers(self._logs / "offsets"), default=None)
        number, start = 0, 0
        if newest is not None:
            before = self._end_of(newest - 1) if newest > 0 else 0
            number, start = newest + 1, self._end_of(newest)
            if newest not in _numbers(self._logs / "commits"):
                self._run_batch(newest, before, start)
        while not self._stopping.is_set() and start < self._rows:
            end = min(self._rows, start + self._rows_a_batch)
            _write(self._logs / "offsets" / str(number), f"v1\n{{}}\n{end}")
            self._run_batch(number, start, end)
            number, start = number + 1, end

    def _end_of(self, number: int) -> int:
        path = self._logs / "offsets" / str(number)
        if not path.exists():
            raise RuntimeError(f"batch {number} doesn't exist")
        version, _, end = path.read_text().splitlines()
        assert version == "v1"
        return int(end)

    def _run_batch(self, number: int, start: int, end: int) -> None:
        self._batch(range(start, end), number)
        _write(self._logs / "commits" / str(number), 'v1\n{"nextBatchWatermarkMs":0}')


def run_query(flow: Flow, until: Until | None = None) -> None:
    """One run of the flow's topology over its files, until the sources have no more."""
    query = TopologyQuery(flow.topology, {}, flow.checkpoint.spark_folder(), flow.driver)
    query.run(until or Until(), prepare=lambda: None)


def _numbers(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir() if path.name.isdecimal()] if folder.exists() else []


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
