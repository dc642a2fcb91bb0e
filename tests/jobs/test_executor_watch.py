"""Executors under watch are reported by name, and one that was released on purpose is not reported as lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from pyspark.errors import PySparkException
from support.waiting import eventually

from streamtopology.jobs.checkpoint import CheckpointError
from streamtopology.jobs.driver.attempt_runner import PythonWorkerDied
from streamtopology.jobs.errors import TopologyFailed
from streamtopology.jobs.spark import executor_watch
from streamtopology.jobs.spark.executor_watch import ExecutorsUnusable, ExecutorWatch
from streamtopology.jobs.spark.executors import ExecutorInfo
from streamtopology.jobs.spark.keep_alive import HasEnded
from streamtopology.jobs.spark.spark_scheduler import SparkScheduler


class Standing:
    """Implements `Scheduler`: `by_id` are the executors that are believed alive; no job runs."""

    failures = SparkScheduler.failures

    def __init__(self) -> None:
        self.by_id = {f"{number}": ExecutorInfo(f"{number}", f"127.0.0.1{number}", {}) for number in range(2)}

    def alive(self) -> frozenset[str]:
        return frozenset(self.by_id)

    def executors(self) -> list[ExecutorInfo]:
        return list(self.by_id.values())

    def ping(self, executor: ExecutorInfo) -> HasEnded:
        return lambda: True

    def add_tag(self, tag: str) -> None: ...

    def remove_tag(self, tag: str) -> None: ...

    def cancel(self, tag: str) -> None: ...

    def thread(self, run: Callable[[], None], name: str) -> threading.Thread:
        return threading.Thread(target=run, name=name, daemon=True)


class Watched:
    """A watch over executors that need no Spark; `alive` are those that the scheduler believes alive."""

    def __init__(self) -> None:
        self.scheduler = Standing()
        self.alive = self.scheduler.by_id
        self.reported: list[str] = []
        self.watch = ExecutorWatch(
            self.scheduler, lambda executor: None, self.reported.append, slot_of=lambda executor: f"large-{executor.id}"
        )


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    with watched.watch:
        watched.watch.await_admitted(2)
        eventually(lambda: len(watched.reported) == 2)
        yield watched


def test_lost_executor_is_reported_by_the_name_of_its_slot(watched: Watched) -> None:
    assert sorted(watched.reported) == [f"executor large-{number} is warm and admitted" for number in range(2)]
    del watched.alive["1"]
    eventually(lambda: len(watched.watch.present()) == 1)
    eventually(lambda: watched.reported[2:] == ["executor large-1 was lost"])


def test_executor_that_was_released_is_not_reported_as_lost(watched: Watched) -> None:
    watched.watch.release(["large-1"])
    del watched.alive["1"]
    eventually(lambda: len(watched.watch.present()) == 1)
    del watched.alive["0"]
    eventually(lambda: watched.reported[2:] == ["executor large-0 was lost"])


def test_executor_that_is_wanted_again_is_reported_when_it_is_lost(watched: Watched) -> None:
    watched.watch.release(["large-0", "large-1"])
    watched.watch.retain(["large-1"])
    watched.alive.clear()
    eventually(lambda: watched.reported[2:] == ["executor large-1 was lost"])


@pytest.mark.parametrize(
    "message",
    [
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
        "java.net.SocketException: Broken pipe",
        "java.io.IOException: Connection reset by peer",
        "java.io.IOException: Stream closed ... at org.apache.spark.api.python.PythonWorkerFactory.stopWorker",
    ],
)
def test_failure_of_a_killed_python_process_is_a_lost_attempt(watched: Watched, message: str) -> None:
    executors = [executor.ref for executor in watched.watch.admitted()]
    with pytest.raises(PythonWorkerDied), watched.watch.guard(executors):
        raise PySparkException(f"Job aborted due to stage failure: Task 1 in stage 442.0 failed 1 times: {message}")


def test_full_disk_of_spark_is_said_without_its_trace(watched: Watched) -> None:
    executors = [executor.ref for executor in watched.watch.admitted()]
    said = r"No space left on device; free space .* and start again: nothing is lost$"
    with pytest.raises(TopologyFailed, match=said), watched.watch.guard(executors):
        raise PySparkException("Job aborted\nCaused by: java.io.IOException: No space left on device\n\tat java.base/x")


@pytest.mark.parametrize("times", [1, 6])
@pytest.mark.parametrize("where", ["rehearsal", "admission"])
def test_executor_whose_admission_fails_otherwise_is_tried_again_then_reported(
    times: int, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_watch, "WARM_UP_PAUSES", (0.0,) * 5)
    left = [times]

    def failing(executor: ExecutorInfo) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise CheckpointError("cannot read migrations/2/copied.json: Stale file handle")

    scheduler = Standing()
    del scheduler.by_id["1"]
    admitted = failing if where == "admission" else executor_watch.nothing
    watch = ExecutorWatch(scheduler, lambda executor: None, lambda text: None, admitted=admitted)
    watch.rehearsal = failing if where == "rehearsal" else executor_watch.nothing
    with watch:
        if times == 1:
            assert len(watch.await_admitted(1)) == 1
        else:
            with pytest.raises(ExecutorsUnusable, match=r"could not be warmed up in 6 attempts: cannot read migrations/2"):
                watch.await_admitted(1)


def test_watch_that_fails_says_why(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    def alive() -> frozenset[str]:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(watched.scheduler, "alive", alive)
    with pytest.raises(ExecutorsUnusable, match="a mistake of ours"):
        watched.watch.await_admitted(3)
