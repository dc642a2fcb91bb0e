"""`spark.streams` of a script: its own queries, not those that Spark runs below its topologies."""

from __future__ import annotations

import time
from typing import Any, cast

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery, StreamingQueryManager

from streamtopology.jobs.runtime.streaming_query import QUERY_NAME
from streamtopology.jobs.scripts.query import Queries

_LOOK_SECONDS = 0.2


class ScriptStreams(StreamingQueryManager):
    """Answers for the `queries` of a script."""

    def __init__(self, spark: SparkSession, queries: Queries) -> None:
        super().__init__(cast(Any, spark)._jsparkSession.streams())
        self._queries = queries

    @property
    def active(self) -> list[StreamingQuery]:
        return self._queries.active()

    def get(self, id: str) -> StreamingQuery | None:
        return next((query for query in self.active if query.id == id), None)

    def awaitAnyTermination(self, timeout: int | None = None) -> bool | None:
        until = None if timeout is None else time.monotonic() + timeout
        while not self._queries.await_any(_LOOK_SECONDS):
            if until is not None and time.monotonic() >= until:
                return False
        return None if timeout is None else True

    def resetTerminated(self) -> None:
        self._queries.forget_ended()
        super().resetTerminated()

    def addListener(self, listener: StreamingQueryListener) -> None:
        of_spark = _OfScript(listener)
        self._queries.listeners[listener] = of_spark
        super().addListener(of_spark)

    def removeListener(self, listener: StreamingQueryListener) -> None:
        of_spark = self._queries.listeners.pop(listener, None)
        if of_spark is not None:
            super().removeListener(of_spark)


class _OfScript(StreamingQueryListener):
    """Passes on what Spark says of the script's own queries."""

    def __init__(self, listener: StreamingQueryListener) -> None:
        self._listener = listener
        self._below: set[object] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        if (event.name or "").startswith(QUERY_NAME):
            self._below.add(event.runId)
        else:
            self._listener.onQueryStarted(event)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        if event.progress.runId not in self._below:
            self._listener.onQueryProgress(event)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        if event.runId not in self._below:
            self._listener.onQueryIdle(event)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        if event.runId not in self._below:
            self._listener.onQueryTerminated(event)
