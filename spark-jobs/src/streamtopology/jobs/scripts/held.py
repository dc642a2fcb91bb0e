"""A script whose queries are noted, and not started: to write their manifests, or to take what a topology needs of it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NoReturn

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from streamtopology.jobs.scripts.lifted import WriterSettings, free_name
from streamtopology.jobs.scripts.parts import Cut, NotCut
from streamtopology.jobs.scripts.prepared import cut_query
from streamtopology.jobs.scripts.query import Queries
from streamtopology.jobs.scripts.takeover import Engine, configure, place_in, taken_over, tell_of_ignored_options


class HeldScript:
    """Answers a script: `found` gets each query that was cut, and the name of its topology; `left` why one was not.

    open_session: called once, with the settings that the script gives; returns the session and the number of executors.
    wait: called where the script waits for a query or stops it.
    """

    def __init__(
        self,
        script: Path,
        open_session: Callable[[Mapping[str, str]], tuple[SparkSession, int]],
        found: Callable[[str, Cut, WriterSettings, SparkSession], None],
        left: Callable[[str], None],
        wait: Callable[[], NoReturn],
    ) -> None:
        self._script = script
        self._open_session = open_session
        self._found = found
        self._left = left
        self._wait = wait
        self._session: SparkSession | None = None
        self._names: list[str] = []
        self.engine = Engine()
        self.is_starting = False
        self.queries: Queries = _HeldQueries(wait)

    def taken_over(self) -> AbstractContextManager[None]:
        """While entered, the script's calls of PySpark come here; those of the engine's threads do not."""
        return taken_over(self, self.engine)

    @property
    def spark(self) -> SparkSession:
        """The session, once the script has asked for it."""
        assert self._session is not None, "a frame has a session"
        return self._session

    def begin(self, asked: Mapping[str, Any]) -> None:
        """Open the session for a script that asks for it with these settings, unless it is open."""
        if self._session is not None or self.is_starting:
            return
        settings = {name: str(value) for name, value in asked.items()}
        self.is_starting = True
        try:
            self._session, executors = self._open_session(settings)
            configure(self._session, executors, settings)
        finally:
            self.is_starting = False

    def starts(self, frame: DataFrame, asked: WriterSettings) -> StreamingQuery:
        """Note a query."""
        tell_of_ignored_options(frame, self._script)
        try:
            made = cut_query(frame, asked)
            name = free_name(asked.name or self._script.stem, self._names)
            self._found(name, made, asked, frame.sparkSession)
            self._names.append(name)
        except NotCut as why:
            self._left(f"{place_in(self._script)}: {why}")
        return _HeldQuery(asked.name, self._wait)

    def stop(self) -> None:
        """Nothing runs."""


class _HeldQueries(Queries):
    def __init__(self, wait: Callable[[], NoReturn]) -> None:
        super().__init__()
        self._wait = wait

    def await_any(self, timeout: float) -> bool:
        self._wait()


class _HeldQuery(StreamingQuery):
    """A query that is not started here. Its script goes on until it asks how far the query is."""

    def __init__(self, name: str | None, wait: Callable[[], NoReturn]) -> None:
        self._name = name
        self._wait = wait
        self._id, self._run_id = str(uuid.uuid4()), str(uuid.uuid4())

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
        self._wait()

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        self._wait()

    def exception(self) -> StreamingQueryException | None:
        self._wait()

    def stop(self) -> None:
        self._wait()

    def processAllAvailable(self) -> None:
        self._wait()

    @property
    def status(self) -> dict[str, Any]:
        self._wait()

    @property
    def recentProgress(self) -> list[StreamingQueryProgress]:
        self._wait()

    @property
    def lastProgress(self) -> StreamingQueryProgress | None:
        self._wait()

    def explain(self, extended: bool = False) -> None:
        """Nothing is printed: its plan is the topology's."""
