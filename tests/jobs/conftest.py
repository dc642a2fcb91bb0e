"""One embedded cluster for all tests of this room that need one: starting it takes most of a minute on a busy machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from support.faults import kill_executor as kill_executor_of
from support.processes import threads_of_libraries

from streamtopology.jobs.local.local_cluster import LocalCluster
from streamtopology.jobs.local.spark_session import create_local_session
from streamtopology.jobs.spark.cluster import ExecutorSlot
from streamtopology.jobs.spark.executor_watch import ExecutorWatch
from streamtopology.jobs.spark.executors import ExecutorInfo, ExecutorRef
from streamtopology.jobs.spark.pinned_rdd import executors, placed, stage
from streamtopology.jobs.spark.spark_scheduler import SparkScheduler

MEMORY_BYTES = 768 << 20
SLOTS = [ExecutorSlot(f"large-{i}", "large", 1.0, MEMORY_BYTES) for i in range(3)] + [
    ExecutorSlot("small-0", "small", 1.0, MEMORY_BYTES)
]


@pytest.fixture(autouse=True)
def forkable(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests with a bucket leave this process without a library's threads: others of theirs fork it."""
    before = threads_of_libraries()
    yield
    if "s3_server" in request.fixturenames and not before and (threads := threads_of_libraries()):
        pytest.fail(f"started {', '.join(threads)} in a process that other tests fork: mark the test @apart")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Four executors (three `large`, one `small`), all with a whole core; not limited until a test limits them."""
    with LocalCluster(SLOTS, tmp_path_factory.mktemp("cluster"), print) as running:
        yield running
        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()


@pytest.fixture
def spark(cluster: LocalCluster) -> SparkSession:
    """The session on the cluster with all four executors; started again only after a test has stopped it."""
    session = SparkSession.getActiveSession()
    if session is None or session.sparkContext.getConf().get("spark.authenticate.secret") != cluster.secret:
        if session is not None:
            session.stop()
        session = create_local_session(cluster, "tests")
    with ExecutorWatch(SparkScheduler(session), partial(start_python_worker, session), print, check=cluster.check) as watch:
        watch.await_admitted(len(SLOTS))
    return session


@pytest.fixture
def slots(spark: SparkSession) -> list[ExecutorRef]:
    return [executor.ref for executor in executors(spark)]


@pytest.fixture
def kill_executor(cluster: LocalCluster) -> Callable[[str], None]:
    return partial(kill_executor_of, cluster)


def start_python_worker(session: SparkSession, executor: ExecutorInfo) -> None:
    stage(placed(session, [executor.ref]), lambda partition, blobs: blobs).collect()


@pytest.fixture
def watch(spark: SparkSession, cluster: LocalCluster) -> Iterator[ExecutorWatch]:
    """A watch that has admitted all four executors."""
    ready, of_slot = partial(start_python_worker, spark), lambda executor: cluster.slot_at(executor.host)
    with ExecutorWatch(SparkScheduler(spark), ready, print, check=cluster.check, slot_of=of_slot) as watch:
        watch.await_admitted(len(SLOTS))
        yield watch
