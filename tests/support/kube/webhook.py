"""A mutating webhook of a cluster's owner, served to the real API server: it changes what anybody writes."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from kubernetes import client

from support.kube.cluster import Cluster

Object = dict[str, Any]
# From an object to the operations of a JSON patch; none leaves it as it is.
Change = Callable[[Object], Sequence[Object]]


class MutatingWebhook:
    """A context manager: inside, `change` is made to objects of these resources (`apps/v1/deployments`) in the namespace.

    `operations`: CREATE, UPDATE. `asked` counts the objects that it was given.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        resources: Sequence[str],
        change: Change,
        operations: Sequence[str] = ("CREATE", "UPDATE"),
    ) -> None:
        self.asked = 0
        self._cluster = cluster
        self._namespace = namespace
        self._rules = [_rule(resource, operations) for resource in resources]
        self._change = change
        certificate, key = cluster.pki.certificate(f"webhook-{namespace}", "webhook", hosts=["127.0.0.1"])
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, name="webhook", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        own = {"url": f"https://127.0.0.1:{self._server.server_port}/", "caBundle": self._authority()}
        webhook = {
            "name": "images.example.com",
            "clientConfig": own,
            "rules": self._rules,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self._namespace}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "reinvocationPolicy": "IfNeeded",
        }
        with self._cluster.client() as api:
            body: Any = {"metadata": {"name": self._namespace}, "webhooks": [webhook]}
            client.AdmissionregistrationV1Api(api).create_mutating_webhook_configuration(body)
        return self

    def __exit__(self, *_: object) -> None:
        with self._cluster.client() as api:
            client.AdmissionregistrationV1Api(api).delete_mutating_webhook_configuration(self._namespace)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _authority(self) -> str:
        return base64.b64encode(self._cluster.pki.ca.read_bytes()).decode()

    def _answer(self, review: Object) -> Object:
        request = review["request"]
        self.asked += 1
        response: Object = {"uid": request["uid"], "allowed": True}
        if operations := self._change(request["object"]):
            patch = base64.b64encode(json.dumps(list(operations)).encode()).decode()
            response |= {"patchType": "JSONPatch", "patch": patch}
        return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answer = json.dumps(webhook._answer(review)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *_: object) -> None:
                pass

        return Handler


def _rule(resource: str, operations: Sequence[str]) -> Object:
    *group, version, plural = resource.split("/", 2) if resource[0] != "v" else ["", *resource.split("/", 1)]
    return {"apiGroups": group, "apiVersions": [version], "operations": list(operations), "resources": [plural]}
