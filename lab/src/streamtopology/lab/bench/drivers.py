"""The drivers of many topologies, played by one small HTTP server; their pods, played through the API server."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import urllib3
from aiohttp import web
from kubernetes import client, watch

from streamtopology.contract.stats_question import Question
from streamtopology.lab.bench.played_run import PlayedRun


class Drivers:
    """One server for all drivers: each commits a batch a second, and runs what its ConfigMap says.

    All have the same batches, so that playing them costs little; the operator sees as many runs as there are names.
    """

    def __init__(self, namespace: str) -> None:
        self.generations: dict[str, int] = {}
        self.seen_at: dict[tuple[str, int], float] = {}
        self._namespace = namespace
        self._run = PlayedRun(time.time)
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
        asked = Question.read({key: request.query.getall(key) for key in request.query})
        return web.json_response(self._run.stats(name, self.generations.get(name, 0), asked))

    def follow(self, api: client.ApiClient) -> None:
        """Note when each generation reaches its ConfigMap."""
        core = client.CoreV1Api(api)

        def run() -> None:
            with contextlib.suppress(urllib3.exceptions.HTTPError):  # the API server has ended, and with it the benchmark
                events: Any = watch.Watch().stream(core.list_namespaced_config_map, self._namespace, timeout_seconds=3600)
                for event in events:
                    body = event["object"]
                    if not body.metadata.name.endswith("-routing"):
                        continue
                    name, generation = body.metadata.name.removesuffix("-routing"), int(body.data["generation"])
                    self.generations[name] = generation
                    self.seen_at.setdefault((name, generation), time.monotonic())

        threading.Thread(target=run, daemon=True).start()


def make_driver_pod(api: client.ApiClient, namespace: str, name: str) -> None:
    """Make the pod that controllers and a kubelet would make of a driver."""
    labels = {
        "app.kubernetes.io/name": "streamtopology",
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/managed-by": "streamtopology-operator",
        "app.kubernetes.io/component": "driver",
    }
    pod = {
        "metadata": {"name": f"{name}-driver-0", "labels": labels},
        "spec": {"containers": [{"name": "driver", "image": "none"}]},
    }
    _make_ready_pod(client.CoreV1Api(api), namespace, pod)


def make_executor_pods(api: client.ApiClient, namespace: str) -> None:
    """Make the pods of all StatefulSets, as their controller and a kubelet would."""
    core, apps = client.CoreV1Api(api), client.AppsV1Api(api)

    def make(stateful_set: Any) -> None:
        template: Any = api.sanitize_for_serialization(stateful_set.spec.template)
        named = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": stateful_set.metadata.name}
        owner = {**named, "uid": stateful_set.metadata.uid, "controller": True}
        for ordinal in range(stateful_set.spec.replicas):
            name = f"{stateful_set.metadata.name}-{ordinal}"
            _make_ready_pod(
                core, namespace, {**template, "metadata": {**template["metadata"], "name": name, "ownerReferences": [owner]}}
            )

    listed: Any = apps.list_namespaced_stateful_set(namespace)
    with ThreadPoolExecutor(4) as makers:
        list(makers.map(make, listed.items))


def _make_ready_pod(core: Any, namespace: str, pod: dict[str, Any]) -> None:
    status = {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
    core.create_namespaced_pod(namespace, pod)
    core.patch_namespaced_pod_status(pod["metadata"]["name"], namespace, {"status": status})
