"""A topology whose driver runs on this machine and whose operator, ConfigMap and other objects are on a real API server.

The operator is killed and started again, by signal or at one of its failpoints, and the ConfigMap that the driver follows is
deleted, damaged, or put back to what it was. Executors are processes of the driver's embedded cluster; their pods, made by the
real controllers, are played. So are the pods of pre-copies, whose processes run here.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from kubernetes import client

from streamtopology.contract.pods import routing_map_name
from streamtopology.jobs.errors import WrongUse
from streamtopology.k8s import failpoints
from streamtopology.lab.bench.cluster import announce
from streamtopology.lab.bench.kube import Topologies, install_crd, new_namespace
from streamtopology.lab.bench.victim import STOP_SECONDS, Victim

LOOK_SECONDS = 0.5
LONGEST_ABSENCE_SECONDS = 4.0
MOST_OWN_ENDS = 10
POINTS = [point for point in failpoints.POINTS if "delete-StatefulSet" not in point and "finalizer" not in point]
DAMAGES = ("deleted", "without a topology", "with a cut epoch", "with a wrong number", "as it was before")


class OperatedVictim(Victim):
    """Like its base, but changed through its StreamTopology; `operator` and `config map` can be killed, too."""

    def __init__(self, folder: Path, given: dict[str, Any], api: client.ApiClient) -> None:
        super().__init__(folder, given)
        _check_played(api)
        install_crd(api)
        self._core: Any = client.CoreV1Api(api)
        self._namespace = new_namespace(api, "chaos")
        self._port = _free_port()
        self._topologies = Topologies(api, self._namespace)
        self._topologies.create(given)
        self._operator = _Operator(folder / "operator.log", self._namespace, self._port)
        self._copies = _Copies(self._core, self._namespace, folder / "copies.log")
        self._earlier: Any = None
        self._looked_at = 0.0
        self.own_ends = 0
        """The number of ends without a kill: on a busy machine Spark gives up processes of its own after ten seconds."""

    def start(self, crash_at: str | None) -> None:
        self._operator.keep_alive()
        super().start(crash_at)

    def keep_alive(self) -> None:
        super().keep_alive()
        self._operator.keep_alive()
        if time.monotonic() - self._looked_at > LOOK_SECONDS:
            self._copies.look()
            self._looked_at = time.monotonic()

    def ended_by_itself(self, code: int) -> None:
        """Note it: a kubelet starts it again, some times."""
        self.own_ends += 1
        if self.own_ends > MOST_OWN_ENDS:
            super().ended_by_itself(code)
        announce(f"the driver ended by itself with code {code}, and is started again:\n{super().log()[-600:]}")

    def stop(self) -> None:
        super().stop()
        self._operator.stop()
        self._copies.stop()

    def kill(self, what: str, luck: float, crash_at: str | None = None) -> str | None:
        match what:
            case "operator":
                return self._operator.kill(luck)
            case "config map":
                return self._damage(luck)
            case _:
                return super().kill(what, luck, crash_at)

    def processes(self, what: str) -> list[int]:
        return self._copies.processes() if what == "migration" else super().processes(what)

    def resize(self, class_name: str, cpu: str) -> str:
        return self._change_class(class_name, "cpu", cpu)

    def scale(self, class_name: str, replicas: int) -> str:
        return self._change_class(class_name, "replicas", replicas)

    def reroute(self, operator: str, policy: str) -> str:
        operators = self._given["spec"]["operators"]
        next(each for each in operators if each["name"] == operator)["grouping"]["policy"] = policy
        self._topologies.change(self._name, operators=operators)
        return f"{operator} has policy {policy}"

    def log(self) -> str:
        return f"{super().log()}\nthe operator:\n{self._operator.log()}"

    def _command(self) -> list[str]:
        arguments = [self._name, self._namespace, str(self._port), str(self._folder)]
        return ["streamtopology.lab.bench.operated_driver", *arguments]

    def _change_class(self, class_name: str, field: str, value: object) -> str:
        executors = self._given["spec"]["executors"]
        next(each for each in executors if each["name"] == class_name)[field] = value
        self._topologies.change(self._name, executors=executors)
        return f"class {class_name} has {field} {value}"

    def _damage(self, luck: float) -> str | None:
        """Do to the ConfigMap what people and tools do to it; None if there is none."""
        name = routing_map_name(self._name)
        try:
            found = self._core.read_namespaced_config_map(name, self._namespace)
        except client.ApiException as error:
            if error.status == 404:
                return None
            raise
        damage = DAMAGES[int(luck * len(DAMAGES))]
        earlier, self._earlier = self._earlier, {"data": found.data, "binaryData": found.binary_data}
        body: dict[str, Any] = {
            "without a topology": {"data": {"topology": None}},
            "with a cut epoch": {"binaryData": {"epoch": "H4sIAAAAAAAC"}},
            "with a wrong number": {"data": {"epochNumber": "many", "generation": "first"}},
            "as it was before": earlier or {"data": None},
        }.get(damage, {})
        if damage == "deleted":
            self._core.delete_namespaced_config_map(name, self._namespace)
        else:
            self._core.patch_namespaced_config_map(name, self._namespace, body)
        return f"ConfigMap {name}: {damage}"


class _Operator:
    """The operator of one namespace, as a process; keeps no topology of other benchmarks."""

    def __init__(self, log: Path, namespace: str, port: int) -> None:
        self._log = log
        self._environment = {
            "STREAMTOPOLOGY_IMAGE": "none",
            "STREAMTOPOLOGY_WATCH_NAMESPACES": namespace,
            "STREAMTOPOLOGY_DRIVER_URL": f"http://127.0.0.1:{port}",
            "STREAMTOPOLOGY_LEASE_SECONDS": "10",
            "STREAMTOPOLOGY_PROBE_PORT": "0",
            "STREAMTOPOLOGY_METRICS_PORT": "0",
            "POD_NAMESPACE": namespace,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._starts_at = 0.0
        self._crash_at: str | None = None

    def keep_alive(self) -> None:
        """Start it again once it has ended and was away for long enough, as a kubelet does: it ends if it loses its lease."""
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return
            if time.monotonic() < self._starts_at:
                return
            if code != -signal.SIGKILL:
                announce(f"the operator ended by itself with code {code}:\n{self.log()[-500:]}")
        environment = {name: value for name, value in os.environ.items() if name != failpoints.VARIABLE}
        environment |= self._environment
        if self._crash_at is not None:
            environment[failpoints.VARIABLE] = self._crash_at
        self._crash_at = None
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "streamtopology.k8s"]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, start_new_session=True)

    def kill(self, luck: float) -> str | None:
        """kill -9 of it and its planning process; every other one of its next lives is to die at a failpoint."""
        if self._process is None or self._process.poll() is not None:
            return None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._starts_at = time.monotonic() + luck * LONGEST_ABSENCE_SECONDS
        text = f"the operator {self._process.pid}"
        if int(luck * 1000) % 2:
            self._crash_at = POINTS[int(luck * len(POINTS))]
            text = f"{text}; its next life is to die {self._crash_at}"
        return text

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()

    def log(self) -> str:
        return self._log.read_text(errors="replace")[-3000:] if self._log.exists() else ""


class _Copies:
    """The processes of pre-copy Jobs, one for each of their pods that is played as running."""

    def __init__(self, core: Any, namespace: str, log: Path) -> None:
        self._core = core
        self._namespace = namespace
        self._log = log
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def look(self) -> None:
        """Start those whose pods run now; note the ends of others in their pods; end those whose pods are gone."""
        selector = "app.kubernetes.io/component=migration"
        listed = self._core.list_namespaced_pod(self._namespace, label_selector=selector).items
        alive = {pod.metadata.name: pod for pod in listed if pod.metadata.deletion_timestamp is None}
        for name in self._running.keys() - alive.keys():
            self._running.pop(name).kill()
        for name, pod in alive.items():
            if name not in self._running and pod.status.phase == "Running":
                self._running[name] = self._start(pod.spec.containers[0].args[1:])
            elif name in self._running and pod.status.phase == "Running":
                self._note_end(name, self._running[name].poll())

    def processes(self) -> list[int]:
        return sorted(process.pid for process in self._running.values() if process.poll() is None)

    def stop(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait()

    def _start(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "streamtopology.jobs.cli.main", *arguments]
            return subprocess.Popen(command, stdout=log, stderr=log)

    def _note_end(self, pod: str, code: int | None) -> None:
        if code is None:
            return
        body = {"status": {"phase": "Failed" if code else "Succeeded"}}
        with suppress(client.ApiException):  # it is gone: its Job was given up
            self._core.patch_namespaced_pod_status(pod, self._namespace, body)


def _check_played(api: client.ApiClient) -> None:
    nodes: Any = client.CoreV1Api(api).list_node()
    if any(node.status.node_info is not None and node.status.node_info.kubelet_version for node in nodes.items):
        raise WrongUse(
            "the kubeconfig's cluster has nodes; the benchmark plays pods, and needs an API server with controllers alone: "
            "`make bench-chaos` starts one"
        )


def _free_port() -> int:
    """A port that the system gives to nobody else while the driver is away."""
    for port in range(20_000 + os.getpid() % 5_000, 30_000):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port from 20000 to 29999 is free")
