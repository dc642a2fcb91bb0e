"""What the operator costs: N topologies on a real API server, their drivers played by one small HTTP server.

python benchmarks/operator_bench.py [--topologies 100] [--json FILE]     (make bench-operator)

Measured: a first start until everything is made; a start with every topology changed meanwhile, until all changes are in
the ConfigMaps; resident memory and CPU at rest; single changes, from the API server's answer to the ConfigMap. Beside it,
what a kopf operator that does nothing takes. All of it on one machine: API server, etcd and the bench share its cores.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import urllib3
from aiohttp import web
from kubernetes import client, watch
from support.kube.apiserver import ApiServer
from support.kube.running_operator import OperatorProcess, Topologies, install_crd, manifest

NAMESPACE = "bench-1"
REST_SECONDS = 60
SETTLING_SECONDS = 40  # after it figures alone have been written to status once
CHANGES = 200
PLAIN = """
import kopf
@kopf.on.event("streamtopology.dev/v1alpha1", "streamtopologies")
async def nothing(**_): pass
"""


class Drivers:
    """One server for all drivers: idle streams that run what their ConfigMap says, which the bench watches anyway."""

    def __init__(self) -> None:
        self.generations: dict[str, int] = {}
        self.seen_at: dict[tuple[str, int], float] = {}
        self._ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()
        self._ready.wait()

    async def _serve(self) -> None:
        app = web.Application()
        app.router.add_get("/{name}/stats", self._stats)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        self._ready.set()
        await asyncio.Event().wait()

    async def _stats(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        slots = [{"index": n, "executor": f"large-{n}", "class": "large", "cpu": 0.4} for n in range(2)]
        slots.append({"index": 2, "executor": "small-0", "class": "small", "cpu": 0.15})
        executors = [
            {"executor": str(n), "class": slot["class"], "pod": f"{name}-{slot['executor']}", "slot": n, "admitted": True}
            for n, slot in enumerate(slots)
        ]
        return web.json_response(
            {
                "version": 2, "topology": name, "phase": "running", "generation": self.generations.get(name, 0), "epoch": 1,
                "newest_epoch": 1, "batch": 1, "rows_per_second": None, "bound_rows_per_second": None, "slots": slots,
                "policies": {}, "routing": None, "last_batch": {"imbalance": {}}, "batches": [], "reconfigurations": [],
                "refused": None, "checkpoint": "/c", "executors": executors,
            }
        )  # fmt: skip

    def follow(self, api: client.ApiClient) -> None:
        """Notes when each generation reaches its ConfigMap."""
        core = client.CoreV1Api(api)

        def run() -> None:
            with contextlib.suppress(urllib3.exceptions.HTTPError):  # the API server has ended, and with it the bench
                for event in watch.Watch().stream(core.list_namespaced_config_map, NAMESPACE, timeout_seconds=3600):
                    body: Any = event["object"]
                    if not body.metadata.name.endswith("-routing"):
                        continue
                    name, generation = body.metadata.name.removesuffix("-routing"), int(body.data["generation"])
                    self.generations[name] = generation
                    self.seen_at.setdefault((name, generation), time.monotonic())

        threading.Thread(target=run, daemon=True).start()


def make_pods(api: client.ApiClient, name: str) -> None:
    """The pods that controllers and kubelets would make: here they are played, to leave the machine to the operator."""
    core = client.CoreV1Api(api)
    common = {"app.kubernetes.io/name": "streamtopology", "app.kubernetes.io/instance": name}
    common["app.kubernetes.io/managed-by"] = "streamtopology-operator"
    pod = {
        "metadata": {"name": f"{name}-driver-0", "labels": {**common, "app.kubernetes.io/component": "driver"}},
        "spec": {"containers": [{"name": "driver", "image": "none"}]},
    }
    make_ready_pod(core, pod)


def make_ready_pod(core: client.CoreV1Api, pod: dict[str, Any]) -> None:
    ready = {"type": "Ready", "status": "True"}
    status = {"phase": "Running", "podIP": "10.0.0.1", "conditions": [ready]}
    core.create_namespaced_pod(NAMESPACE, pod)
    core.patch_namespaced_pod_status(pod["metadata"]["name"], NAMESPACE, {"status": status})


def make_executors(api: client.ApiClient) -> None:
    """The pods of all StatefulSets, as controller and kubelet would make them of their templates."""
    core, apps = client.CoreV1Api(api), client.AppsV1Api(api)

    def make(stateful_set: Any) -> None:
        template = api.sanitize_for_serialization(stateful_set.spec.template)
        for ordinal in range(stateful_set.spec.replicas):
            name = f"{stateful_set.metadata.name}-{ordinal}"
            make_ready_pod(core, {**template, "metadata": {**template["metadata"], "name": name}})

    with ThreadPoolExecutor(4) as makers:
        list(makers.map(make, apps.list_namespaced_stateful_set(NAMESPACE).items))


def measured(root: int) -> tuple[float, float]:
    """(CPU seconds so far, resident MiB) of a process and its children; what several of them share counts once."""
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


def at_rest(root: int) -> dict[str, float]:
    before, started = measured(root)[0], time.monotonic()
    time.sleep(REST_SECONDS)
    cpu, memory = measured(root)
    return {"cores": (cpu - before) / (time.monotonic() - started), "resident_mib": memory}


def until(what: Callable[[], bool], process: Any, seconds: float, pause: float = 0.05) -> float:
    started = time.monotonic()
    while not what():
        if process.poll() is not None or time.monotonic() - started > seconds:
            raise RuntimeError("the operator did not get there; see its log")
        time.sleep(pause)
    return time.monotonic() - started


def run(count: int, log: Path) -> dict[str, float]:
    with ApiServer() as server, server.client() as api:
        install_crd(server)
        assert server.new_namespace("bench") == NAMESPACE
        drivers, topologies = Drivers(), Topologies(api, NAMESPACE)
        drivers.follow(api)
        names = [f"topology-{number}" for number in range(count)]
        for name in names:
            topologies.create(manifest(name, rebalance={"interval": "10s"}))
            make_pods(api, name)
        environment = {
            "STREAMTOPOLOGY_IMAGE": "none", "STREAMTOPOLOGY_DRIVER_URL": f"http://127.0.0.1:{drivers.port}/{{name}}",
            "STREAMTOPOLOGY_LOG_LEVEL": "WARNING",
        }  # fmt: skip
        figures: dict[str, float] = {}
        with OperatorProcess(server, log, **environment) as operator:
            figures["first start, all made"] = until(lambda: len(drivers.generations) == count, operator.process, 1200)
        for name in names:
            topologies.change(name, rebalance={"interval": "10s", "tolerance": 0.2})
        with OperatorProcess(server, log, **environment) as operator:
            caught_up = lambda: all(drivers.generations[name] == 2 for name in names)  # noqa: E731
            figures["cold start, all changes in"] = until(caught_up, operator.process, 1200)
            make_executors(api)
            running = lambda: topologies.phases() == {"Running"}  # noqa: E731
            figures["executors there, all running"] = until(running, operator.process, 1200, pause=1.0)
            time.sleep(SETTLING_SECONDS)
            rest = at_rest(operator.process.pid)
            figures |= {"cores at rest": rest["cores"], "resident MiB": rest["resident_mib"]}
            figures |= changes(topologies, drivers, names, operator.process)
        figures |= plain_kopf(server, log)
        return figures


def changes(topologies: Topologies, drivers: Drivers, names: list[str], process: Any) -> dict[str, float]:
    """Single changes, one after the other, in seconds from the API server's answer to the ConfigMap."""
    took: list[float] = []
    for number in range(CHANGES):
        name = names[number * 7 % len(names)]
        changed = topologies.change(name, rebalance={"interval": "10s", "tolerance": 0.1 + (number + 1) / 1000})
        generation, asked = changed["metadata"]["generation"], time.monotonic()
        until(lambda name=name, generation=generation: (name, generation) in drivers.seen_at, process, 60)
        took.append(max(drivers.seen_at[name, generation] - asked, 0.0))
    took.sort()
    return {
        "change to ConfigMap, p50 s": statistics.median(took),
        "change to ConfigMap, p99 s": took[int(0.99 * len(took)) - 1],
    }


def plain_kopf(server: ApiServer, log: Path) -> dict[str, float]:
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script, log.open("a") as out:
        script.write(PLAIN)
        script.flush()
        command = [
            str(Path(sys.executable).with_name("kopf")),
            "run",
            "--standalone",
            "--all-namespaces",
            "--quiet",
            script.name,
        ]
        process = subprocess.Popen(command, env={**os.environ, "KUBECONFIG": str(server.kubeconfig)}, stdout=out, stderr=out)
        try:
            time.sleep(30)
            rest = at_rest(process.pid)
        finally:
            process.terminate()
            process.wait(30)
    return {"plain kopf: cores at rest": rest["cores"], "plain kopf: resident MiB": rest["resident_mib"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topologies", type=int, default=100)
    parser.add_argument("--json", type=Path, default=Path("build/bench/operator.json"))
    given = parser.parse_args()
    given.json.parent.mkdir(parents=True, exist_ok=True)
    log = given.json.with_suffix(".log")
    figures = run(given.topologies, log)
    case = f"{given.topologies} topologies"
    results = [
        {"case": case, "metric": metric, "unit": "", "min": value, "median": value, "max": value, "runs": 1, "ratio_to": {}}
        for metric, value in figures.items()
    ]  # fmt: skip
    machine = {"cpus": os.cpu_count(), "platform": platform.platform(), "python": platform.python_version()}
    given.json.write_text(json.dumps({"name": "operator", "machine": machine, "results": results}, indent=2) + "\n")
    for metric, value in figures.items():
        print(f"{case}  {metric:32} {value:10.3f}")


if __name__ == "__main__":
    main()
