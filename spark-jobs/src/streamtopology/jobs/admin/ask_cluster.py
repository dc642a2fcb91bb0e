"""Questions to a driver on a cluster, as the user's kubeconfig may: by the API server's proxy, else by a port-forward.

The proxy needs `get` on `services/proxy`, and a way from the API server to the pod; many clusters grant neither. A
port-forward needs `get` on the Service, `list` on pods, `get` and `create` on `pods/portforward`, as kubectl's does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from streamtopology.contract.errors import Unavailable
from streamtopology.contract.page import PageCondition
from streamtopology.contract.pods import HTTP_PORT, HTTP_PORT_NAME, driver_name
from streamtopology.jobs.errors import WrongUse
from streamtopology.topology.crd import GROUP, PLURAL, VERSION

if TYPE_CHECKING:
    from kubernetes.client import ApiClient, CoreV1Api

ANSWER_SECONDS = 10

# The path of the value that is asked for.
Answer = Literal["stats", "page.json"]

# Answers of the API server where this user may not use its proxy, or the proxy does not reach the pod.
_NOT_BY_PROXY = {
    HTTPStatus.FORBIDDEN,
    HTTPStatus.METHOD_NOT_ALLOWED,
    HTTPStatus.BAD_GATEWAY,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
}


class Unreachable(Unavailable):
    """The driver cannot be asked; the message says what to look at."""


class NoKubeconfig(WrongUse):
    """There is no cluster to ask, as this user has no kubeconfig."""


class ClusterDriver:
    """Asks the driver of a topology for its stats, or its page, with the batches after number `since`.

    A question goes by the way that the last one was answered by. Raises Unreachable.
    """

    def __init__(self, api: ApiClient, topology: str, namespace: str, answer: Answer) -> None:
        self.namespace = namespace
        self._api = api
        self._topology = topology
        self._driver = driver_name(topology)
        self._answer: Answer = answer
        self._where = f"topology {topology!r} in namespace {namespace}"
        self.forwards = False
        """The last answer came by a port-forward."""

    def __call__(self, since: int) -> Mapping[str, Any]:
        if self.forwards:
            return self._forwarded(since)
        status, body = self._by_proxy(since)
        if status == HTTPStatus.OK:
            return self._read(body)
        refused = f"{status}, {_message(body)}"
        if status not in _NOT_BY_PROXY:
            raise Unreachable(f"{self._where}: {refused}")
        try:
            answer = self._forwarded(since)
        except Unreachable as neither:
            raise Unreachable(f"{neither} (and by the API server's proxy: {refused})") from neither
        self.forwards = True
        return answer

    def conditions(self) -> Sequence[PageCondition]:
        """The conditions of the resource now; none where this user may not read it."""
        return [_condition(each) for each in self._status().get("conditions") or ()]

    def measured_gains(self) -> Mapping[int, float]:
        """Epoch -> the gain that the operator has measured of it; of none where this user may not read the resource."""
        reroutings = self._status().get("reroutings", ())
        return {each["epoch"]: each["measuredGain"] for each in reroutings if "measuredGain" in each}

    def _status(self) -> Mapping[str, Any]:
        """The status of the resource; empty where this user may not read it."""
        from kubernetes.client import ApiException, CustomObjectsApi
        from urllib3.exceptions import HTTPError

        resources = CustomObjectsApi(self._api)
        try:
            found = cast(
                Any,
                resources.get_namespaced_custom_object(
                    GROUP, VERSION, self.namespace, PLURAL, self._topology, _request_timeout=ANSWER_SECONDS
                ),
            )
        except (ApiException, HTTPError, OSError):
            return {}  # all else is shown; the driver's own answer shows whether the cluster is there
        return found.get("status") or {}

    def _by_proxy(self, since: int) -> tuple[int, bytes]:
        from urllib3.exceptions import HTTPError

        path = f"/api/v1/namespaces/{self.namespace}/services/{self._driver}:{HTTP_PORT_NAME}/proxy/{self._answer}"
        request = self._api.param_serialize("GET", path, query_params=[("since", since)], auth_settings=["BearerToken"])
        try:
            given = self._api.call_api(*request, _request_timeout=ANSWER_SECONDS)
            return given.status, given.read()
        except (HTTPError, OSError) as failure:
            raise Unreachable(f"the API server does not answer: {failure}") from failure

    def _forwarded(self, since: int) -> Mapping[str, Any]:
        """A connection of its own for each question: the driver's pod may be another one by the next."""
        from kubernetes.client import ApiClient, ApiException, CoreV1Api
        from kubernetes.stream import portforward
        from urllib3.exceptions import HTTPError

        core = CoreV1Api(ApiClient(self._api.configuration))  # `portforward` changes its client while it connects
        try:
            forwarded = portforward(
                core.connect_get_namespaced_pod_portforward, self._pod(core), self.namespace, ports=str(HTTP_PORT)
            )
        except ApiException as refused:
            raise Unreachable(f"{self._where}, by a port-forward: {_reason(refused)}") from refused
        except (HTTPError, OSError) as failure:
            raise Unreachable(f"the API server does not answer: {failure}") from failure
        connection = HTTPConnection("localhost", HTTP_PORT)
        try:
            connection.sock = forwarded.socket(HTTP_PORT)
            connection.sock.settimeout(ANSWER_SECONDS)
            connection.request("GET", f"/{self._answer}?since={since}")
            given = connection.getresponse()
            body = given.read()
        except (HTTPException, OSError) as failure:
            why = (forwarded.error(HTTP_PORT) or str(failure) or type(failure).__name__).strip()
            raise Unreachable(f"{self._where}, by a port-forward: {why}") from failure
        finally:
            connection.close()
        if given.status != HTTPStatus.OK:
            raise Unreachable(f"{self._where}, by a port-forward: {given.status}, {_message(body)}")
        return self._read(body)

    def _read(self, body: bytes) -> Mapping[str, Any]:
        try:
            return json.loads(body)
        except ValueError as wrong:
            raise Unreachable(f"{self._where}: the answer is cut off or damaged: {wrong}") from wrong

    def _pod(self, core: CoreV1Api) -> str:
        """The newest running pod behind the driver's Service. Unreachable if there is none; ApiException."""
        plain: Any = {"_request_timeout": ANSWER_SECONDS, "_preload_content": False}  # its models refuse a list without items
        service: Any = core.read_namespaced_service(self._driver, self.namespace, **plain)
        chosen = (self._read(service.data).get("spec") or {}).get("selector") or {}
        selector = ",".join(f"{name}={value}" for name, value in chosen.items())
        pods: Any = core.list_namespaced_pod(self.namespace, label_selector=selector, **plain)
        running = [each for each in self._read(pods.data).get("items") or () if _runs(each)]
        if not selector or not running:
            raise Unreachable(f"{self._where}: no pod of its driver runs; see kubectl get pods -n {self.namespace}")
        return str(max(running, key=lambda each: each["metadata"].get("creationTimestamp") or "")["metadata"]["name"])


def asking_the_cluster(name: str, namespace: str | None, context: str | None, answer: Answer = "stats") -> ClusterDriver:
    """Asks through the API server, as the user's kubeconfig may. Raises NoKubeconfig, or WrongUse for a damaged one."""
    try:
        from kubernetes import config
        from kubernetes.config.config_exception import ConfigException
        from yaml import YAMLError
    except ImportError as missing:
        raise WrongUse("asking a cluster needs the package kubernetes: install streamtopology[kubernetes]") from missing

    file = os.environ.get("KUBECONFIG")
    if file is None and not Path("~/.kube/config").expanduser().exists():
        raise NoKubeconfig("no cluster to ask: there is no ~/.kube/config, and KUBECONFIG names no other file")
    try:
        api = config.new_client_from_config(file, context)
        contexts, active = cast(Any, config).list_kube_config_contexts(file)  # its types know not what it returns
    except (ConfigException, YAMLError, OSError, ValueError, TypeError, LookupError) as missing:  # also of a damaged file
        raise WrongUse(f"no cluster to ask: {str(missing).rstrip('.')}") from missing
    chosen = next((each for each in contexts if each["name"] == context), active)
    return ClusterDriver(api, name, namespace or chosen["context"].get("namespace", "default"), answer)


def _runs(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")


def _condition(given: Mapping[str, Any]) -> PageCondition:
    since = given.get("lastTransitionTime")
    return PageCondition(
        given["type"],
        given["status"],
        given.get("reason", ""),
        given.get("message", ""),
        None if since is None else datetime.fromisoformat(since).timestamp(),
    )


def _message(answer: bytes) -> str:
    """The message in the Status of the API server, or the text of the server behind it."""
    text = answer.decode(errors="replace").strip()
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text


def _reason(refused: Any) -> str:
    """Of an ApiException: the API server's words; of one by a web socket, which has no status, all that there is."""
    return f"{refused.status}, {_message(refused.body)}" if refused.body else str(refused.reason).strip()
