"""The rows that wait in Kafka after the newest commit, counted whether batches run or not: autoscaling goes by them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from streamtopology.jobs.connectors.sources.descriptor_stream import OffsetStream, Positions, open_stream
from streamtopology.jobs.connectors.sources.descriptors import SourceSpec

LOOK_SECONDS = 10.0


class SourceLag:
    """Counts every few seconds in a thread of its own, as a broker may answer slowly; a context manager.

    `rows`: by Kafka source, None while it is unknown. `positions` are those of the newest
    commit. `log`: the folder of the descriptor stream. Only the first failure of a source is reported.
    """

    def __init__(
        self,
        specs: Iterable[SourceSpec],
        log: Path,
        positions: Callable[[], Positions | None],
        tell: Callable[[str], None],
    ) -> None:
        self._specs = [spec for spec in specs if spec.format == "kafka"]
        self.rows: Mapping[str, int | None] = {spec.name: None for spec in self._specs}
        self._log = log
        self._positions = positions
        self._tell = tell
        self._streams: dict[str, OffsetStream] = {}
        self._failed: set[str] = set()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="source-lag", daemon=True)

    def __enter__(self) -> Self:
        if self._specs:
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._closing.set()  # not joined: it may wait for a broker, and writes nothing

    def _run(self) -> None:
        while not self._closing.is_set():
            self.count()
            self._closing.wait(LOOK_SECONDS)

    def count(self) -> None:
        """Count once."""
        known = self._positions()
        self.rows = {spec.name: None if known is None else self._of(spec, known) for spec in self._specs}

    def _of(self, spec: SourceSpec, positions: Mapping[str, Any]) -> int | None:
        if spec.name not in positions:
            return None
        try:
            if spec.name not in self._streams:
                self._streams[spec.name] = open_stream(spec, self._log)
            return self._streams[spec.name].waiting(positions[spec.name])
        except Exception as error:  # noqa: BLE001 - whatever it is: rows that nobody counts any more would count for ever
            if spec.name not in self._failed:
                self._failed.add(spec.name)
                self._tell(f"{error}. Batches continue, but the autoscaler does not see the rows that wait")
            return None
