"""As much of Spark as a topology sees: a streaming query with its own batch numbers and logs, and stages on executors.

`SimulatedSpark` stands for the session that `TopologyQuery` starts its query on. Its query logs the offsets of a batch before
it calls back, and counts the batch as done when the callback returns; after a start it repeats what it has not counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from streamtopology.lab.faults.scheduler import Process, Scheduler

_POLL_SECONDS, _LONGEST_POLL_SECONDS = 0.05, 1.0

Step = Callable[[str, str], None]


class SimulatedSpark:
    """A session of the driver `process`; its query's thread is one of that process."""

    def __init__(self, scheduler: Scheduler, process: Process, step: Step) -> None:
        self.scheduler, self.process, self.step = scheduler, process, step
        self.dataSource = self
        self._sources: dict[str, Any] = {}

    def register(self, source: Any) -> None:
        self._sources[source.name()] = source

    @property
    def readStream(self) -> Reader:  # noqa: N802 - Spark's name
        return Reader(self)

    def source(self, name: str, options: dict[str, str]) -> Any:
        return self._sources[name](options)


class Reader:
    def __init__(self, spark: SimulatedSpark) -> None:
        self._spark = spark
        self._format = ""
        self._options: dict[str, str] = {}

    def format(self, name: str) -> Reader:
        self._format = name
        return self

    def option(self, name: str, value: str) -> Reader:
        self._options[name] = value
        return self

    def load(self) -> Frame:
        return Frame(self._spark, self._spark.source(self._format, self._options))


class Frame:
    def __init__(self, spark: SimulatedSpark, source: Any) -> None:
        self.spark, self.source = spark, source

    @property
    def writeStream(self) -> Writer:  # noqa: N802 - Spark's name
        return Writer(self)


class Writer:
    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._batch: Callable[[Frame, int], None] = lambda frame, number: None
        self._folder = Path()
        self._available_now = False

    def foreachBatch(self, batch: Callable[[Frame, int], None]) -> Writer:  # noqa: N802 - Spark's name
        self._batch = batch
        return self

    def queryName(self, queryName: str) -> Writer:  # noqa: N802, N803 - Spark's names
        return self

    def option(self, name: str, value: str) -> Writer:
        assert name == "checkpointLocation", name
        self._folder = Path(value)
        return self

    def trigger(self, availableNow: bool = False, processingTime: str = "") -> Writer:  # noqa: N803 - Spark's names
        self._available_now = availableNow
        return self

    def start(self) -> Query:
        return Query(self._frame, self._batch, self._folder, self._available_now)


class Query:
    """One query, from its start to its end."""

    def __init__(self, frame: Frame, batch: Callable[[Frame, int], None], folder: Path, available_now: bool) -> None:
        self._frame, self._batch, self._folder = frame, batch, folder
        self._available_now = available_now
        self._stopping = False
        self.status = {"isTriggerActive": True, "isDataAvailable": False}
        self._failure: Exception | None = None
        self._reader = frame.source.simpleStreamReader(None)
        self._step = frame.spark.step
        for name in ("offsets", "commits"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self._scheduler = frame.spark.scheduler
        self._task = self._scheduler.spawn(frame.spark.process, self._run, "spark")

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        return not self._task.is_done

    def exception(self) -> Exception | None:
        return self._failure

    def stop(self) -> None:
        self._stopping = True
        self._scheduler.wait(lambda: self._task.is_done)

    def _run(self) -> None:
        try:
            self._stream()
        except Exception as failure:  # noqa: BLE001 - Spark keeps it for who asks
            self._failure = failure

    def _stream(self) -> None:
        if self._available_now:
            self._reader.prepareForTriggerAvailableNow()
        logged, done = _newest(self._folder / "offsets"), _newest(self._folder / "commits")
        number = max(logged + 1 if logged == done else logged, 0)
        start = self._reader.initialOffset() if number == 0 else self._logged(number - 1)
        pause = _POLL_SECONDS
        while not self._stopping:
            if number <= logged:
                end = self._logged(number)
            else:
                self.status = {"isTriggerActive": True, "isDataAvailable": False}
                self._step("list", "source")
                _, end = self._reader.read(start)
                self.status = {"isTriggerActive": end != start, "isDataAvailable": end != start}
                if end == start:
                    if self._available_now:
                        return
                    self._scheduler.wait(lambda: self._stopping, pause)
                    pause = min(2 * pause, _LONGEST_POLL_SECONDS)
                    continue
                pause = _POLL_SECONDS
                self._log("offsets", number, f"v1\n{{}}\n{json.dumps(end)}")
            self._batch(self._frame, number)
            self._log("commits", number, "v1\n{}")
            number, start = number + 1, end

    def _logged(self, number: int) -> Any:
        return json.loads((self._folder / "offsets" / str(number)).read_text().splitlines()[2])

    def _log(self, kind: str, number: int, text: str) -> None:
        self._step("log", f"spark/{kind}/{number}")
        with (self._folder / kind / str(number)).open("x") as file:
            file.write(text)


def _newest(folder: Path) -> int:
    return max((int(path.name) for path in folder.iterdir() if path.name.isdecimal()), default=-1)


def lose_logs(folder: Path, random: Random) -> list[str]:
    """Lose the newest records of a query's logs, some or all, as a power cut does: nobody syncs them. Returns their paths."""
    lost: list[str] = []
    for log in ("commits", "offsets"):
        records = sorted((path for path in (folder / log).glob("*") if path.name.isdecimal()), key=lambda path: -int(path.name))
        for path in records[: random.choice((0, 0, 1, 2, len(records)))]:
            path.unlink()
            lost.append(str(path))
    return lost
