"""The search for a running topology, here or on a cluster, and the questions to its driver."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal, Protocol, cast
from urllib.error import URLError
from urllib.request import urlopen

from streamtopology.contract.errors import StreamTopologyError, Unavailable
from streamtopology.contract.pods import HTTP_PORT_NAME, driver_name
from streamtopology.jobs.errors import WrongUse
from streamtopology.jobs.local.control_socket import NotRunning, ask

_ANSWER_SECONDS = 10


@dataclass(frozen=True)
class Where:
    """The place to look: this machine first, or only `here`, or only the cluster if a namespace or context names one."""

    namespace: str | None = None
    context: str | None = None
    here: bool = False

    @property
    def only_cluster(self) -> bool:
        return not self.here and (self.namespace is not None or self.context is not None)


Answer = Literal["stats", "page.json"]
"""The path of the value that is asked for."""

STATS: Answer = "stats"
PAGE: Answer = "page.json"


class Unreachable(Unavailable):
    """The driver cannot be asked; the message says what to look at."""


class NoKubeconfig(WrongUse):
    """There is no cluster to ask, as this user has no kubeconfig."""


class AskDriver(Protocol):
    """Asks a driver for its stats, or its page, with the batches after number `since`; raises `Unreachable`."""

    def __call__(self, since: int) -> Mapping[str, Any]: ...


def find_run(name: str, where: Where, answer: Answer = STATS) -> AskDriver:
    """Find the topology, here or on the cluster. Raises NotRunning if it is at neither, and says why."""
    if where.only_cluster:
        return asking_the_cluster(name, where.namespace, where.context, answer)
    try:
        return asking_here(name, answer)
    except NotRunning as not_here:
        if where.here:
            raise
        return _on_the_cluster(name, not_here, answer)


def _on_the_cluster(name: str, not_here: NotRunning, answer: Answer) -> AskDriver:
    try:
        asking = asking_the_cluster(name, None, None, answer)
        asking(-1)
        return asking
    except NoKubeconfig:
        raise not_here from None  # nobody who has no cluster wants to read of one
    except StreamTopologyError as not_there:
        raise NotRunning(f"{not_here} (and on the cluster: {not_there})") from not_there


def asking_the_cluster(name: str, namespace: str | None, context: str | None, answer: Answer = STATS) -> AskDriver:
    """Asks through the API server, as the user's kubeconfig may. Raises NoKubeconfig, or WrongUse for a damaged one."""
    try:
        from kubernetes import config
        from kubernetes.config.config_exception import ConfigException
        from urllib3.exceptions import HTTPError
        from yaml import YAMLError
    except ImportError as missing:
        raise WrongUse("asking a cluster needs the package kubernetes: install streamtopology-jobs[kubernetes]") from missing

    file = os.environ.get("KUBECONFIG")
    if file is None and not Path("~/.kube/config").expanduser().exists():
        raise NoKubeconfig("no cluster to ask: there is no ~/.kube/config, and KUBECONFIG names no other file")
    try:
        api = config.new_client_from_config(file, context)
        contexts, active = cast(Any, config).list_kube_config_contexts(file)  # its types know not what it returns
    except (ConfigException, YAMLError, OSError, ValueError, TypeError, LookupError) as missing:  # also of a damaged file
        raise WrongUse(f"no cluster to ask: {str(missing).rstrip('.')}") from missing
    chosen = next((each for each in contexts if each["name"] == context), active)
    where = namespace or chosen["context"].get("namespace", "default")
    path = f"/api/v1/namespaces/{where}/services/{driver_name(name)}:{HTTP_PORT_NAME}/proxy/{answer}"

    def asking(since: int) -> Mapping[str, Any]:
        request = api.param_serialize("GET", path, query_params=[("since", since)], auth_settings=["BearerToken"])
        try:
            given = api.call_api(*request, _request_timeout=_ANSWER_SECONDS)
            if given.status != HTTPStatus.OK:
                raise Unreachable(f"topology {name!r} in namespace {where}: {given.status}, {_message(given.read())}")
            return json.loads(given.read())
        except (HTTPError, OSError) as failure:
            raise Unreachable(f"the API server does not answer: {failure}") from failure

    return asking


def _message(answer: bytes) -> str:
    """The message in the Status of the API server, or the text of the server behind it."""
    text = answer.decode(errors="replace").strip()
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text


def asking_here(name: str, answer: Answer = STATS) -> AskDriver:
    """Asks the topology that runs on this machine under this user; NotRunning says that none does."""
    return asking_url(f"{ask(name, 'address')}/{answer}")


def asking_url(url: str) -> AskDriver:
    """Asks the driver whose `/stats` is at `url`, an http:// or https:// address."""

    def asking(since: int) -> Mapping[str, Any]:
        try:
            with urlopen(f"{url}{'&' if '?' in url else '?'}since={since}", timeout=_ANSWER_SECONDS) as answer:
                return json.load(answer)
        except (URLError, OSError) as failure:
            raise Unreachable(f"nothing answers at {url}: {failure}") from failure
        except ValueError as error:
            raise WrongUse(f"{url} does not answer in JSON ({error}); name the driver's /stats") from error

    return asking
