"""The common part of the API server alone and the whole node: an API, an admin, namespaces, tokens."""

from __future__ import annotations

import itertools
import json
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client, config

from support.kube.binaries import binary
from support.kube.pki import Pki
from support.kube.processes import run
from support.waiting import eventually


class Cluster:
    """An API server at `url`; it makes the certificates of its users in `folder`."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.pki = Pki(folder / "pki")
        self.kubeconfig = self.pki.kubeconfig_by_certificate(folder / "admin.kubeconfig", url, "admin", "system:masters")
        self._numbers = itertools.count(1)

    def client(self, kubeconfig: Path | None = None) -> client.ApiClient:
        """A client of the `kubernetes` package; as admin, or as the user of `kubeconfig`."""
        return config.new_client_from_config(config_file=str(kubeconfig or self.kubeconfig))

    def kubectl(self, *arguments: str, stdin: str | None = None, seconds: float = 60) -> str:
        """Run kubectl as admin and return its output. Raises `ProcessFailed` with its complaint."""
        return run([str(binary("kubectl")), f"--kubeconfig={self.kubeconfig}", *arguments], seconds, stdin)

    def read(self, path: str) -> Any:
        """An object or a list, as JSON, by a connection that is kept. For waits: each look by kubectl takes 50 ms of CPU."""
        request = self._reader.param_serialize("GET", path, auth_settings=["BearerToken"])
        answer = self._reader.call_api(*request)
        body = answer.read()
        assert answer.status == HTTPStatus.OK, f"GET {path}: {answer.status}, {body.decode()}"
        return json.loads(body)

    @cached_property
    def _reader(self) -> client.ApiClient:
        return self.client()

    def served(self, *definitions: str) -> None:
        """Wait until these definitions (`crd/name`) are served; `kubectl wait` fails as long as one has no conditions."""

        def established(name: str) -> bool:
            status = json.loads(self.kubectl("get", name, "-o", "json")).get("status") or {}
            return ("Established", "True") in {(each["type"], each["status"]) for each in status.get("conditions") or ()}

        eventually(lambda: all(map(established, definitions)), 300)

    def new_namespace(self, prefix: str = "test") -> str:
        """A new namespace with the ServiceAccount `default`, which pods need and the controllers, if they run, make later."""
        name = f"{prefix}-{next(self._numbers)}"
        with self.client() as api:
            core = client.CoreV1Api(api)
            core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=name)))
            try:
                account = client.V1ServiceAccount(metadata=client.V1ObjectMeta(name="default"))
                core.create_namespaced_service_account(name, account)
            except client.ApiException as problem:
                if problem.status != 409:  # the controllers were first
                    raise
        return name

    def kubeconfig_of(self, namespace: str, service_account: str) -> Path:
        """A kubeconfig with a token of an existing ServiceAccount and its namespace: to see what RBAC lets it do."""
        with self.client() as api:
            asked = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[]))
            token = client.CoreV1Api(api).create_namespaced_service_account_token(service_account, namespace, asked)
        assert token.status is not None
        path = self.folder / f"{namespace}.{service_account}.kubeconfig"
        return self.pki.kubeconfig(path, self.url, {"token": str(token.status.token)}, namespace)

    def answers(self) -> bool:
        """True if the API server reports ready."""
        try:
            with urllib3.PoolManager(ca_certs=str(self.pki.ca)) as pool:
                return pool.request("GET", f"{self.url}/readyz", retries=False, timeout=2).status == 200
        except urllib3.exceptions.HTTPError:
            return False
