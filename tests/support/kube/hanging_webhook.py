"""A webhook of the cluster whose server takes connections and never answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress

from kubernetes import client

from support.kube.apiserver import ApiServer

NAME = "slow.example.com"


@contextmanager
def hanging_webhook(
    api_server: ApiServer, namespace: str, groups: Sequence[str], resources: Sequence[str], seconds: int, policy: str = "Fail"
) -> Iterator[None]:
    """Inside, the API server waits `seconds` for it before each write of these resources, then does what `policy` says."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=512)) as listener:
        taken: list[socket.socket] = []
        threading.Thread(target=_take_all, args=(listener, taken), name="hanging webhook", daemon=True).start()
        hook = {
            "name": NAME,
            "clientConfig": {"url": f"https://127.0.0.1:{listener.getsockname()[1]}/"},
            "rules": [{"apiGroups": list(groups), "apiVersions": ["*"], "operations": ["*"], "resources": list(resources)}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": seconds,
            "failurePolicy": policy,
        }
        with api_server.client() as api:
            admission = client.AdmissionregistrationV1Api(api)
            admission.create_validating_webhook_configuration({"metadata": {"name": f"slow-{namespace}"}, "webhooks": [hook]})
            try:
                yield
            finally:
                admission.delete_validating_webhook_configuration(f"slow-{namespace}")
                for connection in taken:
                    connection.close()


def _take_all(listener: socket.socket, taken: list[socket.socket]) -> None:
    with suppress(OSError):  # closed
        while True:
            taken.append(listener.accept()[0])
