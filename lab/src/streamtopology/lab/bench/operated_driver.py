"""The driver of a pod, on this machine: it takes topology and epochs from its ConfigMap, and its executors are embedded ones.

    python -m streamtopology.lab.bench.operated_driver NAME NAMESPACE PORT FOLDER

The API server is that of the kubeconfig. `/stats` is served at PORT; the cluster is in FOLDER.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from kubernetes.client import CoreV1Api

from streamtopology.jobs.local.embedded_cluster import EmbeddedCluster
from streamtopology.jobs.local.start_steps import StartSteps
from streamtopology.jobs.log_tags import tag_all
from streamtopology.jobs.pods.cluster import Stopped
from streamtopology.jobs.pods.driver import DriverProcess, Surroundings
from streamtopology.jobs.pods.environment import DriverEnvironment
from streamtopology.jobs.spark.cluster import Cluster, executor_slots
from streamtopology.lab.bench.kube import connect
from streamtopology.topology import Topology


def main(name: str, namespace: str, port: str, folder: str) -> None:
    tag_all()

    def embedded(
        topology: Topology, progress: Callable[[str], None], notify: Callable[[str], None], is_stopping: Callable[[], bool]
    ) -> AbstractContextManager[Cluster]:
        slots = executor_slots(topology)
        return EmbeddedCluster(name, slots, Path(folder) / "cluster", StartSteps(len(slots), notify))

    environment = DriverEnvironment(name, namespace, f"{name}-driver", "127.0.0.1", heap_mebibytes=1024)
    with connect() as api:
        process = DriverProcess(environment, Surroundings(CoreV1Api(api), embedded, lambda: None, int(port)))
        signal.signal(signal.SIGTERM, lambda *_: process.stop())
        with suppress(Stopped):
            process.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
