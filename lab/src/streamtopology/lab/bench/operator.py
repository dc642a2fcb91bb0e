"""The cost of the operator: many topologies on a real API server, their drivers and pods played.

Measured: a first start until everything is made; a start with every topology changed meanwhile, until all changes are in
the ConfigMaps; resident memory and CPU at rest; single changes, from the API server's answer to the ConfigMap; and the memory
and CPU of a kopf operator that does nothing. All of it on one machine: API server, etcd and the benchmark share its cores.

With several shards one operator is measured, which watches its own namespace. The topologies of the others are in theirs, and
nobody serves them.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kubernetes import client

from streamtopology.jobs.errors import WrongUse
from streamtopology.lab.bench.drivers import Drivers, make_driver_pod, make_executor_pods
from streamtopology.lab.bench.figures import figure, machine
from streamtopology.lab.bench.kube import Topologies, connect, install_crd, new_namespace, wait_until

LOG = Path("build/bench/operator.log")
REST_SECONDS = 60
SETTLING_SECONDS = 40  # after it figures alone have been written to status once
LONGEST_SECONDS = 1200
CHANGES = 200
PLAIN = """
import kopf
@kopf.on.event("streamtopology.dev/v1alpha1", "streamtopologies")
async def nothing(**_): pass
"""


def run(topologies: int = 100, shards: int = 1) -> dict[str, Any]:
    """Seconds, cores and MiB of one operator of as many topologies, or of its share of them.

    The cluster is an API server alone, whose other parts are played. Raises WrongUse.
    """
    own, *others = shares(topologies, shards)
    with connect() as api:
        _check_alone(api)
        install_crd(api)
        LOG.parent.mkdir(parents=True, exist_ok=True)
        for count in others:
            _fill(Topologies(api, new_namespace(api, "shard")), count)
        figures = _Measured(api, own, watches_own=shards > 1).figures()
        figures |= _plain_kopf()
    case = f"{own} of {topologies} topologies" if others else f"{topologies} topologies"
    results = [figure(case, metric, unit, [value]) for (metric, unit), value in figures.items()]
    return {"name": "operator", "machine": machine(topologies=topologies, shards=shards), "results": results}


def shares(topologies: int, shards: int) -> list[int]:
    """Return the number of topologies of each shard, the measured one's first. Raises WrongUse if one would have none."""
    if shards > topologies:
        raise WrongUse(f"{shards} shards of {topologies} topologies: a shard needs at least one")
    return [topologies // shards + (number < topologies % shards) for number in range(shards)]


def environment_of(namespace: str, port: int, watches_own: bool) -> dict[str, str]:
    """Return the variables of an operator of topologies in `namespace`, whose drivers are played at `port`.

    If it `watches_own`, it serves that namespace alone, as a shard does.
    """
    given = {
        "STREAMTOPOLOGY_IMAGE": "none",
        "STREAMTOPOLOGY_DRIVER_URL": f"http://127.0.0.1:{port}/{{name}}",
        "STREAMTOPOLOGY_LOG_LEVEL": "WARNING",
        "STREAMTOPOLOGY_LEADER_ELECTION": "false",
        "STREAMTOPOLOGY_PROBE_PORT": "0",
        "STREAMTOPOLOGY_METRICS_PORT": "0",
    }
    return given | {"STREAMTOPOLOGY_WATCH_NAMESPACES": namespace} if watches_own else given


def _fill(topologies: Topologies, count: int) -> None:
    """Create the topologies of another shard."""
    for number in range(count):
        topologies.create(manifest(f"topology-{number}"))


def _check_alone(api: client.ApiClient) -> None:
    nodes: Any = client.CoreV1Api(api).list_node(limit=1)
    if nodes.items:
        raise WrongUse(
            "the kubeconfig's cluster has nodes; the benchmark plays controllers and kubelets, and needs an API server alone: "
            "`make bench-operator` starts one"
        )


class _Measured:
    """One series of measurements, in a namespace of its own, which its operator `watches_own`, or watches among all."""

    def __init__(self, api: client.ApiClient, count: int, watches_own: bool) -> None:
        self._api = api
        self._namespace = new_namespace(api, "bench")
        self._drivers = Drivers(self._namespace)
        self._drivers.follow(api)
        self._topologies = Topologies(api, self._namespace)
        self._names = [f"topology-{number}" for number in range(count)]
        self._environment = environment_of(self._namespace, self._drivers.port, watches_own)

    def figures(self) -> dict[tuple[str, str], float]:
        """Value by metric and unit."""
        figures: dict[tuple[str, str], float] = {}
        for name in self._names:
            self._topologies.create(manifest(name))
            make_driver_pod(self._api, self._namespace, name)
        with self._operator() as process:
            figures["first start, all made", "s"] = self._until(
                lambda: len(self._drivers.generations) == len(self._names), process
            )
        for name in self._names:
            self._topologies.change(name, rebalance={"interval": "10s", "tolerance": 0.2})
        with self._operator() as process:
            figures["cold start, all changes in", "s"] = self._until(
                lambda: all(self._drivers.generations[name] == 2 for name in self._names), process
            )
            make_executor_pods(self._api, self._namespace)
            figures["executors there, all running", "s"] = self._until(
                lambda: self._topologies.phases() == {"Running"}, process, pause=1.0
            )
            time.sleep(SETTLING_SECONDS)
            cores, resident = at_rest(process.pid)
            figures |= {("at rest", "cores"): cores, ("resident", "MiB"): resident, **self._changes(process)}
        return figures

    @contextlib.contextmanager
    def _operator(self) -> Iterator[subprocess.Popen[bytes]]:
        with _process([sys.executable, "-m", "streamtopology.k8s"], self._environment) as process:
            yield process

    def _until(self, holds: Callable[[], bool], process: subprocess.Popen[bytes], pause: float = 0.05) -> float:
        def held() -> bool:
            if process.poll() is not None:
                raise RuntimeError(f"the operator has ended; see {LOG}")
            return holds()

        return wait_until(held, f"result of the operator (see {LOG})", LONGEST_SECONDS, pause)

    def _changes(self, process: subprocess.Popen[bytes]) -> dict[tuple[str, str], float]:
        """Single changes, one after the other, in seconds from the API server's answer to the ConfigMap."""
        took: list[float] = []
        for number in range(CHANGES):
            name = self._names[number * 7 % len(self._names)]
            changed = self._topologies.change(name, rebalance={"interval": "10s", "tolerance": 0.1 + (number + 1) / 1000})
            generation, asked = (name, changed["metadata"]["generation"]), time.monotonic()
            self._until(lambda generation=generation: generation in self._drivers.seen_at, process)
            took.append(max(self._drivers.seen_at[generation] - asked, 0.0))
        took.sort()
        return {
            ("change to ConfigMap, p50", "s"): statistics.median(took),
            ("change to ConfigMap, p99", "s"): took[int(0.99 * len(took)) - 1],
        }


def manifest(name: str) -> dict[str, Any]:
    """A small topology for executors of two classes."""
    executors = [
        {"name": "large", "replicas": 2, "cpu": "400m", "memory": "1Gi"},
        {"name": "small", "replicas": 1, "cpu": "150m", "memory": "1Gi"},
    ]
    return {
        "apiVersion": "streamtopology.dev/v1alpha1",
        "kind": "StreamTopology",
        "metadata": {"name": name},
        "spec": {
            "sources": [{"name": "rows", "format": "parquet", "schema": "key BIGINT", "options": {"path": "/data"}}],
            "operators": [
                {"name": "counts", "inputs": ["rows"], "grouping": {"policy": "mixed", "key": "key"}, "run": "count"}
            ],
            "executors": executors,
            "rebalance": {"interval": "10s"},
            "checkpoint": "/checkpoint",
        },
    }


def _plain_kopf() -> dict[tuple[str, str], float]:
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(PLAIN)
        script.flush()
        kopf = str(Path(sys.executable).with_name("kopf"))
        with _process([kopf, "run", "--standalone", "--all-namespaces", "--quiet", script.name], {}) as process:
            time.sleep(REST_SECONDS / 2)
            cores, resident = at_rest(process.pid)
    return {("plain kopf: at rest", "cores"): cores, ("plain kopf: resident", "MiB"): resident}


@contextlib.contextmanager
def _process(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process whose output is at the end of `LOG`; it ends with the block."""
    with LOG.open("ab") as log:
        process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def at_rest(root: int) -> tuple[float, float]:
    """(cores, resident MiB) of a process and its children over a minute."""
    before, started = _used(root)[0], time.monotonic()
    time.sleep(REST_SECONDS)
    cpu, memory = _used(root)
    return (cpu - before) / (time.monotonic() - started), memory


def _used(root: int) -> tuple[float, float]:
    """(CPU seconds so far, resident MiB) of a process and its children; pages that several of them share count once."""
    cpu = memory = 0.0
    for process in [root, *_children(root)]:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        cpu += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        shares = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        memory += sum(int(line.split()[1]) for line in shares if line.startswith("Pss:")) / 1024
    return cpu, memory


def _children(root: int) -> list[int]:
    found = [int(one) for task in Path(f"/proc/{root}/task").iterdir() for one in (task / "children").read_text().split()]
    return [*found, *(below for one in found for below in _children(one))]
