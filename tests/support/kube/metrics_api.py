"""The resource metrics API (metrics.k8s.io) of an API server without nodes: what pods use is what the test says.

It is aggregated as metrics-server is, so a real HorizontalPodAutoscaler reads it.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, cast
from urllib.parse import parse_qs, urlsplit

from kubernetes import client

from support.kube.apiserver import ApiServer
from support.waiting import eventually

_GROUP, _VERSION = "metrics.k8s.io", "v1beta1"
_ROOT = f"/apis/{_GROUP}/{_VERSION}"
_NAMESPACE = "kube-system"


class MetricsApi:
    """A context manager. `cpu` says how many cores a pod (JSON) uses, and may be changed at any time."""

    def __init__(self, api: ApiServer, cpu: Callable[[dict[str, Any]], float]) -> None:
        self.cpu = cpu
        self._api = api
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        certificate, key = api.pki.certificate("metrics", "metrics", hosts=["localhost", f"metrics.{_NAMESPACE}.svc"])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics-api", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._api.kubectl("apply", "-f", "-", stdin=json.dumps(self._objects()))
        eventually(self._is_available)
        return self

    def __exit__(self, *_: object) -> None:
        self._api.kubectl("delete", "apiservice", f"{_VERSION}.{_GROUP}")
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _objects(self) -> dict[str, Any]:
        """The API server finds this process as it would find an extension server of the cluster: by a Service."""
        port = self._server.server_port
        service = {
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics", "namespace": _NAMESPACE},
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
        }  # fmt: skip
        aggregated = {
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": f"{_VERSION}.{_GROUP}"},
            "spec": {
                "group": _GROUP, "version": _VERSION, "groupPriorityMinimum": 100, "versionPriority": 100,
                "service": {"name": "metrics", "namespace": _NAMESPACE, "port": port}, "insecureSkipTLSVerify": True,
            },
        }  # fmt: skip
        return {"apiVersion": "v1", "kind": "List", "items": [service, aggregated]}

    def _is_available(self) -> bool:
        conditions = self._api.kubectl("get", "apiservice", f"{_VERSION}.{_GROUP}", "-o", "jsonpath={.status.conditions}")
        return any(each["type"] == "Available" and each["status"] == "True" for each in json.loads(conditions or "[]"))

    def _answer(self, url: str) -> dict[str, Any] | None:
        asked = urlsplit(url)
        match asked.path.removeprefix(_ROOT).strip("/").split("/"):
            case [""]:
                pods = {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]}
                return {
                    "kind": "APIResourceList",
                    "apiVersion": "v1",
                    "groupVersion": f"{_GROUP}/{_VERSION}",
                    "resources": [pods],
                }
            case ["namespaces", namespace, "pods"]:
                selector = parse_qs(asked.query).get("labelSelector", [""])[0]
                return {"kind": "PodMetricsList", "apiVersion": f"{_GROUP}/{_VERSION}", "metadata": {},
                        "items": [self._used(pod) for pod in self._running_pods(namespace, selector)]}  # fmt: skip
            case _:
                return None

    def _running_pods(self, namespace: str, selector: str) -> list[dict[str, Any]]:
        with self._api.client() as api:
            answer = client.CoreV1Api(api).list_namespaced_pod(namespace, label_selector=selector, _preload_content=False)
        pods = json.loads(cast(Any, answer).data)["items"]
        return [pod for pod in pods if pod["status"]["phase"] == "Running"]

    def _used(self, pod: dict[str, Any]) -> dict[str, Any]:
        containers = pod["spec"]["containers"]
        usage = {"cpu": f"{self.cpu(pod) / len(containers) * 1000:.0f}m", "memory": "64Mi"}
        kept = {key: pod["metadata"].get(key) for key in ("name", "namespace", "labels")}
        return {
            "metadata": kept, "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "window": "10s",
            "containers": [{"name": each["name"], "usage": usage} for each in containers],
        }  # fmt: skip

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer = api._answer(self.path)
                body = json.dumps(answer).encode()
                self.send_response(200 if answer is not None else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Every request in the test's output would hide what the test says."""

        return Handler
