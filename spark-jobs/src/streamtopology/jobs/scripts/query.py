"""A query of a script that runs as a topology, answering as Spark's own does."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.query import StreamingQuery

from streamtopology.contract.errors import StreamTopologyError
from streamtopology.jobs.connectors.sinks import SinkError
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.outcome import BatchOutcome
from streamtopology.jobs.runtime.topology_run import TopologyRun

_RECENT = 100
_LOG = logging.getLogger(__name__)


class TopologyStream(StreamingQuery):
    """Runs `stream` in a thread of its own, one of `queries` until that ends."""

    def __init__(
        self,
        run: TopologyRun,
        history: History,
        frame: DataFrame,
        name: str | None,
        stream: Callable[[], object],
        queries: Queries,
    ) -> None:
        self._run = run
        self._history = history
        self._frame = frame
        self._name = name
        self._stream = stream
        self._queries = queries
        self._id, self._run_id = str(uuid.UUID(run.checkpoint.run)), str(uuid.uuid4())
        self._failure: BaseException | None = None
        self._told = -1
        self._watermarks: dict[int, float] = {}
        self._thread = threading.Thread(target=self._work, name=f"query {run.router.topology.name}", daemon=True)
        queries.add(self)
        self._thread.start()

    def _work(self) -> None:
        ids = uuid.UUID(self._id), uuid.UUID(self._run_id)
        try:
            started = QueryStartedEvent(*ids, self._name, _text(time.time()), set())
            self._tell(lambda listener: listener.onQueryStarted(started))
            self._history.listen(self._look)
            self._stream()
        except BaseException as error:  # noqa: BLE001 - the script asks for it, in a thread of its own
            self._failure = error
        finally:
            self._queries.ended(self)
            said = None if self._failure is None else self._said()
            self._tell(lambda listener: listener.onQueryTerminated(QueryTerminatedEvent(*ids, said, None)))

    def _look(self, history: History) -> None:
        last = history.last
        if last is not None and last.number > self._told:
            self._told = last.number
            if (watermark := self._run.watermark) is not None:
                self._watermarks[last.number + 1] = watermark
            progress = QueryProgressEvent(self._progress(last))
            self._tell(lambda listener: listener.onQueryProgress(progress))

    def _tell(self, what: Callable[[StreamingQueryListener], object]) -> None:
        """Tell every listener; as on Spark, one that fails is logged, and the query goes on."""
        for listener in list(self._queries.listeners):
            try:
                what(listener)
            except Exception:  # noqa: BLE001 - the script's own
                _LOG.exception("a StreamingQueryListener failed")

    def _said(self) -> str:
        failure = self._failure
        if isinstance(failure, SinkError):  # what follows the sink's own words is of manifests
            said = failure.__cause__ if isinstance(failure.__cause__, SinkError) else failure
            return f"{said}. The batch is committed: the next run of the script gives it to the sink again"
        return str(failure) if isinstance(failure, StreamTopologyError | PySparkException) else repr(failure)

    @property
    def topology(self) -> str:
        """The name of its topology."""
        return self._run.router.topology.name

    @property
    def checkpoint(self) -> str:
        """The folder or bucket of its checkpoint."""
        return self._run.checkpoint.uri

    @property
    def failure(self) -> BaseException | None:
        """What ended the query, if anything has."""
        return self._failure

    @property
    def id(self) -> str:
        return self._id

    @property
    def runId(self) -> str:
        return self._run_id

    @property
    def name(self) -> str | None:  # pyright: ignore[reportIncompatibleMethodOverride] - Spark's is None, too
        return self._name

    @property
    def isActive(self) -> bool:
        return self._thread.is_alive()

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        self._thread.join(timeout)
        if not self._thread.is_alive():
            self._raise_failure()
        return None if timeout is None else not self._thread.is_alive()

    def _raise_failure(self) -> None:
        failure = self.exception()
        if failure is not None:
            raise failure from self._failure

    def exception(self) -> StreamingQueryException | None:
        if self._failure is None or self._thread.is_alive():
            return None
        return StreamingQueryException(message=self._said())

    def stop(self) -> None:
        """Stop after the running batch, and wait for that; the batch's own function does not wait for itself."""
        if self._thread.is_alive():
            self._run.stop()
            if threading.current_thread() is not self._thread:
                self._thread.join()

    def processAllAvailable(self) -> None:
        while self._thread.is_alive() and not self._run.await_input(0.2):
            pass
        if not self._thread.is_alive():
            self._raise_failure()

    @property
    def status(self) -> dict[str, Any]:
        running = self._history.running is not None
        message = "Processing new data" if running else "Waiting for data to arrive"
        active = self._thread.is_alive()
        return {
            "message": message if active else "Stopped",
            "isDataAvailable": running and active,
            "isTriggerActive": running and active,
        }

    @property
    def recentProgress(self) -> list[StreamingQueryProgress]:
        return [self._progress(batch) for batch in self._history.batches[-_RECENT:]]

    @property
    def lastProgress(self) -> StreamingQueryProgress | None:
        last = self._history.last
        return None if last is None else self._progress(last)

    def _progress(self, batch: BatchOutcome) -> StreamingQueryProgress:
        milliseconds = round(batch.seconds * 1000)
        speed = batch.rows / batch.seconds if batch.seconds else 0.0
        speeds = {"numInputRows": batch.rows, "inputRowsPerSecond": speed, "processedRowsPerSecond": speed}
        places = {"startOffset": "", "endOffset": "", "latestOffset": ""}
        return StreamingQueryProgress.fromJson(  # of JSON, so that it has its own, which printing it needs
            {
                "id": self._id,
                "runId": self._run_id,
                "name": self._name,
                "timestamp": _text(batch.committed_at - batch.seconds),
                "batchId": batch.number,
                "batchDuration": milliseconds,
                **speeds,
                "durationMs": {"triggerExecution": milliseconds},
                "eventTime": self._event_time(batch.number),
                "stateOperators": _state_of(batch),
                "sources": [{"description": "StreamTopology", **places, **speeds}],
                "sink": {"description": "StreamTopology", "numOutputRows": sum(batch.rows_out.values())},
            }
        )

    def _event_time(self, batch: int) -> dict[str, str]:
        """The watermark by which a batch has closed windows; until there is one, Spark says 1970."""
        if all(source.watermark is None for source in self._run.router.topology.sources):
            return {}
        return {"watermark": _text(self._watermarks.get(batch, 0.0))}

    def explain(self, extended: bool = False) -> None:
        self._frame.explain(extended)


def _state_of(batch: BatchOutcome) -> list[dict[str, Any]]:
    """The state after a batch, by operator. What no report says is 0."""
    found: list[dict[str, Any]] = []
    for operator in sorted({report.operator for report in batch.reports}):
        reports = [report for report in batch.reports if report.operator == operator]
        found.append(
            {
                "operatorName": operator,
                "numRowsTotal": int(sum(report.state_keys for report in reports)),
                "numRowsUpdated": 0,
                "numRowsRemoved": 0,
                "allUpdatesTimeMs": 0,
                "allRemovalsTimeMs": 0,
                "commitTimeMs": 0,
                "memoryUsedBytes": int(sum(report.state_bytes for report in reports)),
                "numRowsDroppedByWatermark": int(sum(report.late_rows for report in reports)),
                "numShufflePartitions": len(reports),
                "numStateStoreInstances": len(reports),
            }
        )
    return found


def _text(at: float) -> str:
    """A time (seconds since 1970) as Spark writes it."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Queries:
    """The queries of a script: topologies, and those that Spark runs itself. For all threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: list[StreamingQuery] = []
        self._failures: list[StreamingQuery] = []
        self._have_ended = False
        self.listeners: dict[StreamingQueryListener, StreamingQueryListener] = {}
        """Those of the script, each with what hears of Spark's queries for it."""

    def add(self, query: StreamingQuery) -> None:
        """Take in a query that starts now."""
        with self._changed:
            self._running.append(query)

    def ended(self, query: TopologyStream) -> None:
        with self._changed:
            self._running.remove(query)
            self._have_ended = True
            self._failures += [query] if query.failure is not None else []
            self._changed.notify_all()

    def active(self) -> list[StreamingQuery]:
        """Those that run."""
        with self._changed:
            for query in [query for query in self._running if not isinstance(query, TopologyStream) and not query.isActive]:
                self._running.remove(query)
                self._have_ended = True
                self._failures += [query] if query.exception() is not None else []
            return list(self._running)

    def forget_ended(self) -> None:
        self.active()
        with self._changed:
            self._have_ended = False
            self._failures.clear()

    def await_any(self, timeout: float) -> bool:
        """Wait until a query has ended since `forget_ended`, for `timeout` seconds at most. Returns whether one has.

        Raises the failure of a query.
        """
        self.active()
        with self._changed:
            has_ended = self._changed.wait_for(lambda: self._have_ended, timeout)
            failed = self._failures[:1]
        for query in failed:
            query.awaitTermination()
        return has_ended
