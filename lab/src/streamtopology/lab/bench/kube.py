"""The cluster of the benchmarks on Kubernetes: that of the kubeconfig, as kubectl takes it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from kubernetes import client, config
from kubernetes.config.config_exception import ConfigException

from streamtopology.jobs.errors import WrongUse
from streamtopology.topology.crd import GROUP, NAME, PLURAL, VERSION, custom_resource_definition


def connect() -> client.ApiClient:
    """A client of the kubeconfig's cluster. WrongUse: there is none."""
    try:
        return config.new_client_from_config(os.environ.get("KUBECONFIG"))
    except ConfigException as missing:
        raise WrongUse(f"no cluster to measure ({missing}); `make bench-operator` and `make bench-node` start one") from missing


def install_crd(api: client.ApiClient) -> None:
    """Install the CRD, unless it is there, and wait until it is served."""
    extensions: Any = client.ApiextensionsV1Api(api)
    try:
        extensions.create_custom_resource_definition(custom_resource_definition())
    except client.ApiException as error:
        if error.status != 409:  # it is installed
            raise

    def established() -> bool:
        conditions = extensions.read_custom_resource_definition(NAME).status.conditions or ()
        return any(one.type == "Established" and one.status == "True" for one in conditions)

    wait_until(established, "CRD", 30)


def new_namespace(api: client.ApiClient, prefix: str) -> str:
    """Create a namespace of a unique name, with the ServiceAccount of its pods; returns the name."""
    core: Any = client.CoreV1Api(api)
    name = core.create_namespace({"metadata": {"generateName": f"{prefix}-"}}).metadata.name
    try:
        core.create_namespaced_service_account(name, {"metadata": {"name": "default"}})
    except client.ApiException as error:
        if error.status != 409:  # made by the controllers, which an API server alone lacks
            raise
    return name


class Topologies:
    """The StreamTopologies of one namespace."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self.namespace = namespace
        self._custom: Any = client.CustomObjectsApi(api)  # its types are narrower than what it takes

    def create(self, manifest: Mapping[str, Any]) -> None:
        self._custom.create_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, manifest)

    def get(self, name: str) -> Mapping[str, Any]:
        return self._custom.get_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, name)

    def change(self, name: str, **spec: Any) -> Mapping[str, Any]:
        """Replace parts of the spec; returns the topology as the API server has it then."""
        return self._custom.patch_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL, name, {"spec": spec})

    def phases(self) -> set[str]:
        """The phases of all of them."""
        listed = self._custom.list_namespaced_custom_object(GROUP, VERSION, self.namespace, PLURAL)
        return {(item.get("status") or {}).get("phase", "") for item in listed["items"]}


def wait_until(holds: Callable[[], bool], what: str, seconds: float, pause: float = 0.05) -> float:
    """Wait for `what`; returns the seconds that it took. RuntimeError after `seconds`."""
    started = time.monotonic()
    while not holds():
        if time.monotonic() - started > seconds:
            raise RuntimeError(f"no {what} in {seconds:.0f} s")
        time.sleep(pause)
    return time.monotonic() - started
