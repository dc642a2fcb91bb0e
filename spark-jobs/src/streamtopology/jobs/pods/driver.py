"""`streamtopology driver`: runs one topology in a pod, by the operator's routing ConfigMap, until SIGTERM.

The steps: wait for the ConfigMap, check the topology, start Spark, wait for executors, run batches while following the
ConfigMap. The status server answers from the first step on.
"""

from __future__ import annotations

import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from kubernetes.client import CoreV1Api
from kubernetes.config import load_incluster_config
from kubernetes.config.config_exception import ConfigException

from streamtopology.contract.phases import Phase
from streamtopology.contract.pods import HTTP_PORT, routing_map_name
from streamtopology.contract.routing_configmap import RoutingMapError
from streamtopology.contract.stats_question import Question
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.log_tags import tag_all
from streamtopology.jobs.malloc import collect_garbage_seldom
from streamtopology.jobs.observe.history import History
from streamtopology.jobs.observe.stats import Standing, build_stats
from streamtopology.jobs.pods.cluster import KubernetesCluster, Stopped
from streamtopology.jobs.pods.configmap_follower import Follower, Mailbox, following, newest
from streamtopology.jobs.pods.configmap_watch import ConfigMapWatch
from streamtopology.jobs.pods.environment import (
    CODE_FOLDER,
    SCRATCH,
    TERMINATION_LOG,
    DriverEnvironment,
    logs_json,
)
from streamtopology.jobs.pods.log_lines import LogLines
from streamtopology.jobs.pods.routing_configmap import RoutingMap
from streamtopology.jobs.pods.spark_settings import driver_settings
from streamtopology.jobs.runtime.preflight.checks import check_before_start
from streamtopology.jobs.runtime.topology_run import RunOptions, TopologyRun, new_history
from streamtopology.jobs.spark.cluster import Cluster
from streamtopology.jobs.spark.session import start_driver_jvm
from streamtopology.jobs.view.http_server import EVERYWHERE, EVERYWHERE_IPV6, StatusServer
from streamtopology.jobs.view.page.record import PageRecord
from streamtopology.jobs.view.prometheus import Metrics
from streamtopology.topology import ManifestError, Topology, problems_in_pods
from streamtopology.tracing.opening import traces

_LOOK_SECONDS = 0.5
_REPEAT_SECONDS = 10.0
_LONGEST_MESSAGE = 4000  # Kubernetes cuts a termination message at 4096 bytes


def run_driver(environ: Mapping[str, str]) -> int:
    """Run until SIGTERM; return 0. Raises ManifestError, WrongUse, TopologyFailed, written to the termination log, too."""
    with _written_on_termination(TERMINATION_LOG):
        tag_all(as_json=logs_json(environ))
        collect_garbage_seldom()
        environment = DriverEnvironment.read(environ)
        try:
            load_incluster_config()
        except ConfigException as missing:
            raise WrongUse(f"this command runs in a pod with a service account: {missing}") from missing
        process = DriverProcess(environment, _in_pod(environment))
        signal.signal(signal.SIGTERM, lambda *_: process.stop())
        try:
            process.run()
        except Stopped:
            print("stopped before the first batch")
    return 0


Progress = Callable[[str], None]
# The cluster of a topology, to be entered: from steps of the start, news, and whether the process is stopping.
ClusterOf = Callable[[Topology, Progress, Progress, Callable[[], bool]], AbstractContextManager[Cluster]]


@dataclass(frozen=True)
class Surroundings:
    """The API server, the executors and the port of the status server of a driver.

    `start_jvm` starts the driver's JVM early, before the topology is known.
    """

    core: CoreV1Api
    cluster_of: ClusterOf
    start_jvm: Callable[[], None]
    port: int


def _in_pod(environment: DriverEnvironment) -> Surroundings:
    start_jvm = partial(start_driver_jvm, driver_settings(environment))
    return Surroundings(CoreV1Api(), partial(KubernetesCluster, environment), start_jvm, HTTP_PORT)


class DriverProcess:
    """One driver and its status server. `stop` may be called from a signal handler: the running batch is finished first."""

    def __init__(self, environment: DriverEnvironment, surroundings: Surroundings) -> None:
        self._environment = environment
        self._surroundings = surroundings
        self._history = History(environment.topology, (), {}, hides_keys=environment.hides_keys)
        self._map_name = routing_map_name(environment.topology)
        self._mailbox: Mailbox = Mailbox()
        self._stopping = threading.Event()
        self._run: TopologyRun | None = None
        self._follower: Follower | None = None
        LogLines(self._history)
        self._page = PageRecord(self._history, self._topology, uuid.uuid4().hex, time.time)

    def stop(self) -> None:
        self._stopping.set()
        if self._run is not None:
            self._run.stop()

    def run(self) -> None:
        """Run until `stop`. Raises `Stopped` if that was called before the first batch."""
        environment, around = self._environment, self._surroundings
        metrics = Metrics(self._history, self._standing)
        watch = ConfigMapWatch(around.core, environment.namespace, self._map_name, self._mailbox.put, self._notify)
        with ExitStack() as undo:
            is_ready = self._history.is_ready
            host = EVERYWHERE_IPV6 if ":" in environment.pod_ip else EVERYWHERE
            names = environment.page_hosts
            server = StatusServer(metrics.registry, self._stats, self._page_value, is_ready, host, around.port, names)
            undo.enter_context(server)
            starter = undo.enter_context(ThreadPoolExecutor(1))
            jvm = starter.submit(around.start_jvm)
            undo.enter_context(watch)
            first = self._first_routing()
            jvm.result()
            self._work(first)
            if not self._stopping.is_set():
                self._history.enter(Phase.DONE)
            while not self._stopping.wait(_LOOK_SECONDS):
                """The input has ended: the results are served until the operator deletes the pod."""

    def _work(self, first: RoutingMap) -> None:
        """Run the batches of the topology, to the end of its input or until `stop`."""
        topology = first.topology
        known = new_history(topology)
        self._history.slots, self._history.policies = known.slots, known.policies
        with ExitStack() as undo:
            is_stopping = self._stopping.is_set
            entered = self._surroundings.cluster_of(topology, self._history.starting, self._notify, is_stopping)
            cluster = undo.enter_context(entered)
            environment = self._environment
            trace = undo.enter_context(traces(environment.traces, environment.resource, self._notify))
            options = RunOptions(work_dir=SCRATCH, decides=False, former_checkpoint=first.former_checkpoint, trace=trace)
            run = TopologyRun(cluster, topology, CODE_FOLDER, self._history, options)
            self._follower = Follower(run, self._map_name, first)
            self._run = run
            if self._stopping.is_set():  # `stop` was called a moment before there was a run to stop
                raise Stopped
            undo.enter_context(following(self._mailbox, self._follower))
            run.stream()

    def _first_routing(self) -> RoutingMap:
        """Wait for a ConfigMap with a topology. Raises ManifestError if it cannot run, WrongUse if it is another topology."""
        shown, shown_at = "", time.monotonic()
        text = f"waiting for ConfigMap {self._map_name}"
        while not self._stopping.is_set():
            if text != shown or time.monotonic() - shown_at >= _REPEAT_SECONDS:
                shown, shown_at = text, time.monotonic()
                self._history.starting(text)
            for content in newest(self._mailbox, _LOOK_SECONDS):
                if content is None:
                    text = f"waiting for ConfigMap {self._map_name}: it does not exist yet"
                    continue
                try:
                    routing = RoutingMap.read(self._map_name, content.data, content.binary_data)
                except RoutingMapError as wrong:
                    text = f"waiting for ConfigMap {self._map_name} to be corrected: {wrong}"
                    continue
                check_for_pods(routing.topology, self._environment.topology)
                return routing
        raise Stopped

    def _stats(self, asked: Question) -> dict[str, Any]:
        return build_stats(self._history, self._standing(), asked)

    def _page_value(self, since: int) -> dict[str, Any]:
        return self._page.page(self._standing(), since)

    def _topology(self) -> Topology | None:
        return self._follower.taken.topology if self._follower is not None else None

    def _standing(self) -> Standing:
        run, follower = self._run, self._follower
        taken = follower.taken if follower is not None else None  # before the epochs: never newer than these
        standing = run.standing() if run is not None else Standing()
        if follower is not None and taken is not None:
            replicas = {executor.name: executor.replicas for executor in taken.topology.executors}
            standing = replace(standing, generation=taken.generation, replicas=replicas, refused=follower.refused)
        return standing

    def _notify(self, text: str) -> None:
        self._history.event(time.time(), self._history.newest, text)


def check_for_pods(topology: Topology, name: str) -> None:
    """Check the conditions of pods in addition to the general ones. Raises ManifestError, or WrongUse for another topology."""
    if topology.name != name:
        raise WrongUse(f"this driver is of topology {name!r}, the ConfigMap holds {topology.name!r}")
    if problems := list(problems_in_pods(topology)):
        raise ManifestError(problems)
    check_before_start(topology, CODE_FOLDER)


@contextmanager
def _written_on_termination(file: Path) -> Iterator[None]:
    """Write the error that ends the process where `kubectl describe pod` shows it."""
    try:
        yield
    except Exception as error:
        if file.exists():
            file.write_text((str(error) or repr(error))[:_LONGEST_MESSAGE])
        raise
