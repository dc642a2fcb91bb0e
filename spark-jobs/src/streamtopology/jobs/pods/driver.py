"""`streamtopology driver`: runs one topology in a pod, as the operator's routing ConfigMap tells it, until it is told to end.

It reads top to bottom: wait for the ConfigMap, check the topology, start Spark, wait for executors, run batches while
following the ConfigMap. The status server answers all the while.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kubernetes.client import CoreV1Api
from kubernetes.config import load_incluster_config
from kubernetes.config.config_exception import ConfigException

from streamtopology.jobs.failures import WrongUse
from streamtopology.jobs.history import History
from streamtopology.jobs.logs import tag_all
from streamtopology.jobs.metrics import Metrics
from streamtopology.jobs.pods.cluster import KubernetesCluster, Stopped
from streamtopology.jobs.pods.environment import (
    CODE_FOLDER,
    HTTP_PORT,
    SCRATCH,
    TERMINATION_LOG,
    DriverEnvironment,
    routing_map_name,
)
from streamtopology.jobs.pods.follower import Follower, Mailbox, following, newest
from streamtopology.jobs.pods.log_lines import LogLines
from streamtopology.jobs.pods.routing_map import RoutingMap
from streamtopology.jobs.pods.routing_watch import ConfigMapWatch
from streamtopology.jobs.pods.settings import driver_settings
from streamtopology.jobs.runner import RunOptions, TopologyRun, check_before_start, new_history
from streamtopology.jobs.server import EVERYWHERE, StatusServer
from streamtopology.jobs.session import start_driver_jvm
from streamtopology.jobs.stats import Standing, build_stats
from streamtopology.routing.routing_map import RoutingMapError
from streamtopology.routing.topology import ManifestError, Problem, Topology

_LOOK_SECONDS = 0.5
_TELL_SECONDS = 10.0
_LONGEST_MESSAGE = 4000  # Kubernetes cuts a termination message at 4096 bytes


def run_driver(environ: Mapping[str, str]) -> int:
    """Run until SIGTERM; returns 0. What it raises is on the termination log, too: ManifestError, WrongUse, TopologyFailed."""
    tag_all()
    with _told_on_termination(TERMINATION_LOG):
        environment = DriverEnvironment.read(environ)
        try:
            load_incluster_config()
        except ConfigException as missing:
            raise WrongUse(f"this command runs in a pod with a service account: {missing}") from missing
        process = DriverProcess(environment)
        signal.signal(signal.SIGTERM, lambda *_: process.stop())
        try:
            process.run()
        except Stopped:
            print("stopped before the first batch")
    return 0


class DriverProcess:
    """One driver and what it serves. `stop` may be called from a signal handler: the batch at work is finished first."""

    def __init__(self, environment: DriverEnvironment) -> None:
        self._environment = environment
        self._history = History(environment.topology, (), {})
        self._map_name = routing_map_name(environment.topology)
        self._mailbox: Mailbox = Mailbox()
        self._stopping = threading.Event()
        self._run: TopologyRun | None = None
        self._follower: Follower | None = None
        LogLines(self._history)

    def stop(self) -> None:
        self._stopping.set()
        if self._run is not None:
            self._run.stop()

    def run(self) -> None:
        """Returns after `stop`; raises `Stopped` when that came before the first batch."""
        environment = self._environment
        metrics = Metrics(self._history)
        watch = ConfigMapWatch(CoreV1Api(), environment.namespace, self._map_name, self._mailbox.put, self._tell)
        with ExitStack() as undo:
            is_ready = self._history.is_ready
            undo.enter_context(StatusServer(metrics.registry, self._stats, is_ready, EVERYWHERE, HTTP_PORT))
            starter = undo.enter_context(ThreadPoolExecutor(1))
            jvm = starter.submit(start_driver_jvm, driver_settings(environment))
            undo.enter_context(watch)
            first = self._first_routing()
            jvm.result()
            self._work(first)
            if not self._stopping.is_set():
                self._history.enter("done")
            while not self._stopping.wait(_LOOK_SECONDS):
                """The input has ended: what came of it is served until the operator takes the pod away."""

    def _work(self, first: RoutingMap) -> None:
        """Run the batches of the topology, to the end of its input or until `stop`."""
        topology = first.topology
        known = new_history(topology)
        self._history.slots, self._history.policies = known.slots, known.policies
        with ExitStack() as undo:
            cluster = undo.enter_context(
                KubernetesCluster(self._environment, topology, self._history.enter, self._tell, self._stopping.is_set)
            )
            options = RunOptions(work_dir=SCRATCH, decides=False)
            run = TopologyRun(cluster, topology, CODE_FOLDER, self._history, options)
            self._follower = Follower(run, self._map_name, first)
            self._run = run
            if self._stopping.is_set():  # told to stop a moment before there was a run to be told
                raise Stopped
            undo.enter_context(following(self._mailbox, self._follower))
            run.stream()

    def _first_routing(self) -> RoutingMap:
        """Wait for a ConfigMap with a topology. ManifestError: that topology cannot run; WrongUse: it is another's."""
        told, told_at = "", time.monotonic()
        text = f"waiting for ConfigMap {self._map_name}"
        while not self._stopping.is_set():
            if text != told or time.monotonic() - told_at >= _TELL_SECONDS:
                told, told_at = text, time.monotonic()
                self._history.enter(text)
            for content in newest(self._mailbox, _LOOK_SECONDS):
                if content is None:
                    text = f"waiting for ConfigMap {self._map_name}: there is none yet"
                    continue
                try:
                    routing = RoutingMap.read(self._map_name, content.data, content.binary_data)
                except RoutingMapError as wrong:
                    text = f"waiting for ConfigMap {self._map_name} to be corrected: {wrong}"
                    continue
                check_for_pods(routing.topology, self._environment.topology)
                return routing
        raise Stopped

    def _stats(self, since: int | None) -> dict[str, Any]:
        run, follower = self._run, self._follower
        standing = run.standing() if run is not None else Standing()
        if follower is not None:
            standing = replace(standing, generation=follower.generation, refused=follower.refused)
        return build_stats(self._history, standing, since)

    def _tell(self, text: str) -> None:
        batches = self._history.batches
        self._history.event(time.time(), batches[-1].number if batches else -1, text)


def check_for_pods(topology: Topology, name: str) -> None:
    """What must hold in pods beside what must hold anywhere. ManifestError names all of it, WrongUse the wrong topology."""
    if topology.name != name:
        raise WrongUse(f"this driver is of topology {name!r}, the ConfigMap holds {topology.name!r}")
    if topology.checkpoint is None:
        why = "pods come and go: name storage that the driver's and all executors' pods share"
        raise ManifestError([Problem("spec.checkpoint", why)])
    check_before_start(topology, CODE_FOLDER)


@contextmanager
def _told_on_termination(file: Path) -> Iterator[None]:
    """What ends the process is what `kubectl describe pod` shows."""
    try:
        yield
    except Exception as error:
        if file.exists():
            file.write_text((str(error) or repr(error))[:_LONGEST_MESSAGE])
        raise
