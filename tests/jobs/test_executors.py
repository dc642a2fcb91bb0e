"""A lost executor costs one attempt, whatever runs, and its successor is let in only when it is warm."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from support.waiting import eventually

from streamtopology.jobs.driver.attempt_runner import AttemptLost, ExecutorLost, ShuffleLost
from streamtopology.jobs.exchange.blobs import StageTask, addressed
from streamtopology.jobs.local.local_cluster import LocalCluster
from streamtopology.jobs.spark.executor_watch import ExecutorsUnusable, ExecutorWatch
from streamtopology.jobs.spark.executors import ExecutorInfo, ExecutorRef
from streamtopology.jobs.spark.pinned_rdd import Sending, delete_shuffles, exchanged, placed, stage
from streamtopology.jobs.spark.spark_scheduler import SparkScheduler

pytestmark = pytest.mark.clusters


def wait_for(file: Path, started: Path) -> StageTask:
    """A stage that says that it has started and does not end before `file` is there."""

    def work(partition: int, blobs: Iterator[bytes]) -> Iterator[bytes]:
        import os
        import time

        for _ in blobs:
            pass
        (started / str(os.getpid())).touch()
        while not file.exists():
            time.sleep(0.02)
        yield bytes([partition])

    return work


def run_on(spark: SparkSession, slots: list[ExecutorRef], work: StageTask) -> list[int]:
    """The partitions that came to an end."""
    return [blob[0] for blob in stage(placed(spark, slots), work).collect()]


class Killer(threading.Thread):
    """Kills the executor of `slot` as soon as `tasks` tasks have started, and lets the others end a little later."""

    def __init__(self, kill: Callable[[str], None], slot: str, started: Path, tasks: int, release: Path) -> None:
        super().__init__()
        self.arguments = kill, slot, started, tasks, release

    def run(self) -> None:
        kill, slot, started, tasks, release = self.arguments
        while len(list(started.iterdir())) < tasks:
            time.sleep(0.02)
        try:
            kill(slot)
            time.sleep(0.5)
        finally:
            release.touch()


def attempts_until_done(spark: SparkSession, watch: ExecutorWatch, release: Path, started: Path) -> tuple[list[int], list[int]]:
    """Run on the present executors as a driver does, again when one is lost. Executors per attempt, and the partitions."""
    executors_per_attempt: list[int] = []
    while True:
        slots = [executor.ref for executor in watch.await_admitted()]
        executors_per_attempt.append(len(slots))
        try:
            with watch.guard(slots):
                partitions = run_on(spark, slots, wait_for(release, started))
        except ExecutorLost:
            continue
        return executors_per_attempt, partitions


def test_a_lost_executor_costs_one_attempt_and_the_next_one_is_admitted(
    spark: SparkSession, cluster: LocalCluster, watch: ExecutorWatch, kill_executor: Callable[[str], None], tmp_path: Path
) -> None:
    started, release = tmp_path / "started", tmp_path / "release"
    started.mkdir()
    before = {executor.id for executor in watch.admitted()}
    killer = Killer(kill_executor, "large-1", started, 4, release)
    killer.start()
    attempts, partitions = attempts_until_done(spark, watch, release, started)
    killer.join()
    assert attempts == [4, 3]
    assert partitions == [0, 1, 2]
    after = watch.await_admitted(4)
    (newcomer,) = [executor for executor in after if executor.id not in before]
    assert cluster.slot_at(newcomer.host) == "large-1"
    with watch.guard([executor.ref for executor in after]):
        run_on(spark, [executor.ref for executor in after], wait_for(release, started))


def test_the_job_of_a_streaming_batch_is_cancelled_too(
    spark: SparkSession, cluster: LocalCluster, watch: ExecutorWatch, kill_executor: Callable[[str], None], tmp_path: Path
) -> None:
    started, release = tmp_path / "started", tmp_path / "release"
    started.mkdir()
    done: list[tuple[list[int], list[int]]] = []

    def batch(frame: DataFrame, number: int) -> None:
        done.append(attempts_until_done(frame.sparkSession, watch, release, started))

    source = spark.readStream.format("rate").option("rowsPerSecond", 1).load()
    query = source.writeStream.foreachBatch(batch).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        Killer(kill_executor, "small-0", started, 4, release).run()
        while not done and query.isActive:
            time.sleep(0.05)
    finally:
        query.stop()
    assert done[0] == ([4, 3], [0, 1, 2])
    watch.await_admitted(4)


def test_an_executor_lost_before_the_action_starts_is_found_out(
    spark: SparkSession, cluster: LocalCluster, watch: ExecutorWatch, kill_executor: Callable[[str], None], tmp_path: Path
) -> None:
    """The pinned task of a dead executor would wait half a minute for its host: the watch must not."""
    slots = [executor.ref for executor in watch.admitted()]
    kill_executor("large-0")

    def collect_until_it_is_noticed() -> None:
        with watch.guard(slots):
            while True:
                run_on(spark, slots, lambda partition, blobs: (bytes([partition]) for _ in blobs))

    with pytest.raises(ExecutorLost, match="executor large-0 was lost"):
        collect_until_it_is_noticed()
    watch.await_admitted(4)


def test_a_failure_of_the_job_itself_stays_what_it_is(spark: SparkSession, watch: ExecutorWatch) -> None:
    def fail(partition: int, blobs: Iterator[bytes]) -> Iterator[bytes]:
        raise ZeroDivisionError("the operator's own fault")
        yield

    slots = [executor.ref for executor in watch.admitted()]
    with pytest.raises(Exception, match="the operator's own fault") as failure, watch.guard(slots):
        run_on(spark, slots, fail)
    assert not isinstance(failure.value, AttemptLost)
    assert [executor.ref for executor in watch.admitted()] == slots


def test_unfetchable_output_costs_one_attempt_and_no_executor(
    spark: SparkSession, cluster: LocalCluster, watch: ExecutorWatch
) -> None:
    slots = [executor.ref for executor in watch.admitted()]

    def sent() -> Sending:
        return Sending(
            stage(placed(spark, slots), lambda partition, blobs: addressed([bytes([partition])] * len(slots))), len(slots)
        )

    def received(sending: Sending) -> list[bytes]:
        with watch.guard(slots):
            return stage(exchanged(sending, slots), lambda partition, blobs: iter([b"".join(sorted(blobs))])).collect()

    def written() -> set[Path]:
        return {file for file in cluster.directory.rglob("shuffle_*") if file.suffix in (".index", ".data")}

    before = written()
    sending = sent()
    sending.begin()
    eventually(lambda: len(written() - before) == 2 * len(slots))
    for file in written() - before:
        file.unlink()
    with pytest.raises(ShuffleLost):
        received(sending)
    assert received(sent()) == [bytes(range(len(slots)))] * len(slots)
    assert [executor.ref for executor in watch.admitted()] == slots


def jvm_of(cluster: LocalCluster, slot: str) -> int:
    """The executor's process in which shuffles are served."""
    backend = b"CoarseGrainedExecutorBackend"
    (pid,) = (pid for pid in cluster.processes(slot) if backend in Path(f"/proc/{pid}/cmdline").read_bytes())
    return pid


def test_executor_that_collects_garbage_for_seconds_loses_no_attempt(
    spark: SparkSession, cluster: LocalCluster, watch: ExecutorWatch
) -> None:
    slots = [executor.ref for executor in watch.admitted()]
    sent = stage(placed(spark, slots), lambda partition, blobs: addressed([bytes([partition])] * len(slots)))
    sending = Sending(sent, len(slots))
    stage(exchanged(sending, slots), lambda partition, blobs: iter([b"".join(sorted(blobs))])).collect()
    pid = jvm_of(cluster, "large-1")
    os.kill(pid, signal.SIGSTOP)
    resumed = threading.Timer(5.0, os.kill, (pid, signal.SIGCONT))
    resumed.start()
    try:
        with watch.guard(slots):
            found = stage(exchanged(sending, slots), lambda partition, blobs: iter([b"".join(sorted(blobs))])).collect()
    finally:
        resumed.join()
    assert found == [bytes(range(len(slots)))] * len(slots)
    assert [executor.ref for executor in watch.admitted()] == slots


def test_shuffle_files_are_deleted_once_they_are_not_needed(
    spark: SparkSession, cluster: LocalCluster, watch: ExecutorWatch
) -> None:
    slots = [executor.ref for executor in watch.admitted()]

    def written() -> set[Path]:
        return {file for file in cluster.directory.rglob("shuffle_*") if file.suffix in (".index", ".data")}

    before = written()
    sent = stage(placed(spark, slots), lambda partition, blobs: addressed([bytes([partition])] * len(slots)))
    last = stage(exchanged(Sending(sent, len(slots)), slots), lambda partition, blobs: iter([b"".join(sorted(blobs))]))
    last.collect()
    assert len(written() - before) == 2 * len(slots)
    delete_shuffles(last)
    eventually(lambda: written() <= before)


def workers(spark: SparkSession, slots: list[ExecutorRef]) -> list[bytes]:
    """The ids of the executors' Python workers."""

    def work(partition: int, blobs: Iterator[bytes]) -> Iterator[bytes]:
        import os

        for _ in blobs:
            pass
        yield str(os.getpid()).encode()

    return stage(placed(spark, slots), work).collect()


@pytest.mark.long
def test_python_workers_outlive_quiet_minutes(spark: SparkSession, watch: ExecutorWatch) -> None:
    slots = [executor.ref for executor in watch.admitted()]
    before = workers(spark, slots)
    time.sleep(100)  # Spark looks every 10 s for executors without a task in the last 60 s
    assert workers(spark, slots) == before


def test_an_executor_that_cannot_warm_up_is_not_admitted_and_says_why(spark: SparkSession) -> None:
    def fail(partition: int, blobs: Iterator[bytes]) -> Iterator[bytes]:
        raise ImportError("no module named topology_of_theirs")
        yield

    def warm_up(executor: ExecutorInfo) -> None:
        run_on(spark, [executor.ref], fail)

    with (
        ExecutorWatch(SparkScheduler(spark), warm_up, print) as watch,
        pytest.raises(ExecutorsUnusable, match="topology_of_theirs"),
    ):
        watch.await_admitted(1)


def dies(times: int, deaths: Path) -> StageTask:
    """A stage whose Python worker is killed the first `times` times; files in `deaths` count them."""

    def work(partition: int, blobs: Iterator[bytes]) -> Iterator[bytes]:
        import os
        import signal

        died = len(list(deaths.iterdir()))
        if died < times:
            (deaths / str(died)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield bytes([partition])

    return work


def test_an_executor_whose_python_workers_are_killed_as_it_warms_up_is_tried_again(spark: SparkSession, tmp_path: Path) -> None:
    """As many may be dead as it has had tasks at once: their daemon was killed, and Spark has yet to find out."""

    def warm_up(executor: ExecutorInfo) -> None:
        if executor.host.endswith(".10"):
            run_on(spark, [executor.ref], dies(4, tmp_path))

    with ExecutorWatch(SparkScheduler(spark), warm_up, print) as watch:
        watch.await_admitted(4)
    assert len(list(tmp_path.iterdir())) == 4


def test_an_executor_whose_python_workers_always_die_is_named(spark: SparkSession, tmp_path: Path) -> None:
    def warm_up(executor: ExecutorInfo) -> None:
        run_on(spark, [executor.ref], dies(1_000_000, tmp_path))

    complaint = r"executor \S+ could not be warmed up in 6 attempts: a Python worker died\. Too little memory\?"
    with ExecutorWatch(SparkScheduler(spark), warm_up, print) as watch, pytest.raises(ExecutorsUnusable, match=complaint):
        watch.await_admitted(1)


def test_a_watch_that_is_closed_leaves_nobody_behind_who_uses_the_session(spark: SparkSession, tmp_path: Path) -> None:
    started, never = tmp_path / "started", tmp_path / "never"
    started.mkdir()

    def warm_up(executor: ExecutorInfo) -> None:
        run_on(spark, [executor.ref], wait_for(never, started))

    before = set(threading.enumerate())
    with ExecutorWatch(SparkScheduler(spark), warm_up, print) as watch:
        eventually(lambda: any(started.iterdir()))
    never.touch()
    left = [thread for thread in threading.enumerate() if thread.name.startswith("warm-up") and thread not in before]
    assert left == []
    assert watch.admitted() == []
