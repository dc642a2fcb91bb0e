"""Spark's part of a streaming query over descriptors, in one process: it plans batches and keeps its logs as Spark does."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamtopology.jobs.connectors.sources.descriptor_stream import SCHEMA, DescriptorDataSource
from streamtopology.jobs.runtime.streaming_query import TopologyQuery, Until
from support.stages import Flow


class SparkStream:
    """Session, frame, writer and query in one. It ends when its sources have no more, or with what its batches raise."""

    def __init__(self) -> None:
        self._options: dict[str, str] = {}
        self._stopping = threading.Event()
        self._failure: Exception | None = None
        self._batch: Callable[[Any, int], None]
        self._source: type[DescriptorDataSource]

    def register(self, source: type[DescriptorDataSource]) -> None:
        self._source = source

    def option(self, name: str, value: str) -> SparkStream:
        self._options[name] = value
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

    dataSource = readStream = writeStream = property(_same)  # noqa: N815 - Spark's names
    format = load = trigger = queryName = _same  # noqa: N815 - Spark's names

    def _run(self) -> None:
        try:
            self._plan_and_run()
        except Exception as failure:  # noqa: BLE001 - ends the stream, as in Spark
            self._failure = failure

    def _plan_and_run(self) -> None:
        reader = self._source(self._options).simpleStreamReader(SCHEMA)
        reader.prepareForTriggerAvailableNow()
        logs = Path(self._options["checkpointLocation"])
        newest = max(_numbers(logs / "offsets"), default=None)
        number, start = 0, reader.initialOffset()
        if newest is not None:
            if newest > 0 and not (logs / "offsets" / str(newest - 1)).exists():
                raise RuntimeError(f"batch {newest - 1} doesn't exist")
            number, start = newest + 1, _end_of(logs, newest)
            if newest not in _numbers(logs / "commits"):
                self._run_batch(logs, newest)
        while not self._stopping.is_set():
            _, end = reader.read(start)
            if end == start:
                return
            _write(logs / "offsets" / str(number), f"v1\n{{}}\n{json.dumps(end)}")
            self._run_batch(logs, number)
            number, start = number + 1, end

    def _run_batch(self, logs: Path, number: int) -> None:
        self._batch(self, number)
        _write(logs / "commits" / str(number), 'v1\n{"nextBatchWatermarkMs":0}')


def run_query(flow: Flow, until: Until | None = None) -> None:
    """One run of the flow's topology, until the sources have no more."""
    folder = flow.checkpoint.spark_folder()
    query = TopologyQuery(SparkStream(), flow.topology, {}, folder, flow.driver)  # type: ignore[arg-type]
    query.run(until or Until(), prepare=lambda: None)


def _numbers(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir() if path.name.isdecimal()] if folder.exists() else []


def _end_of(logs: Path, number: int) -> dict[str, Any]:
    version, _, end = (logs / "offsets" / str(number)).read_text().splitlines()
    assert version == "v1"
    return json.loads(end)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
