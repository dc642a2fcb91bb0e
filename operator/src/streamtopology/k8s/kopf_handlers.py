"""The watch of topologies by kopf: the handlers that it calls, each of which makes one call to the reconciler, its settings,
and how it ends."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable
from typing import Any

import kopf
from kopf._cogs.clients.errors import APIError  # kopf exports these two nowhere else
from kopf._cogs.clients.watching import WatchingError
from kubernetes.aio.client import Configuration

from streamtopology.k8s import names
from streamtopology.k8s.io.api import ApiError
from streamtopology.k8s.io.bodies import without_nulls
from streamtopology.k8s.io.kopf_tasks import OthersTasks
from streamtopology.k8s.io.queue import TopologyKey
from streamtopology.k8s.io.reconciler import Reconciler
from streamtopology.k8s.io.topology_body import key_of
from streamtopology.k8s.io.watchdog import WatchBroken
from streamtopology.k8s.settings import Settings

# Seconds between retries while the API server answers with errors: ten minutes in all, kopf's default is one. Then the operator
# ends with the reason in its log, and its Deployment restarts it.
BACKOFFS = (1, 1, 2, 3, 5, 8, 13, 21, *[30] * 18)


async def watch_topologies(
    reconciler: Reconciler,
    access: Configuration,
    settings: Settings,
    changed: Callable[[TopologyKey], None],
    stopped: asyncio.Event,
) -> None:
    """Watch until `stopped`; `changed` hears of each event. ApiError: refused, WatchBroken: it may begin again.

    Signals set `stopped`, which outlives this watch: kopf's own handlers would stop this one alone, which may be about to be
    replaced by another.
    """
    try:
        tasks = await kopf.spawn_tasks(
            registry=registry(reconciler, access, changed),
            settings=kopf_settings(settings),
            standalone=True,
            clusterwide=not settings.namespaces,
            namespaces=settings.namespaces,
            stop_flag=stopped,
        )
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        await kopf.run_tasks(tasks, ignored=OthersTasks())
    except APIError as error:
        raise ApiError(error.status or 0, "", str(error), "the watch of StreamTopologies") from error
    except kopf.LoginError as error:
        raise WatchBroken("the watch of StreamTopologies broke: the operator's token is not valid") from error
    except WatchingError as error:
        raise WatchBroken(f"the watch of StreamTopologies broke: {error}") from error
    if not stopped.is_set():  # one of its tasks has ended, or was cancelled, which it takes for its own end
        raise WatchBroken("the watch of StreamTopologies has ended by itself")


def registry(reconciler: Reconciler, access: Configuration, changed: Callable[[TopologyKey], None]) -> kopf.OperatorRegistry:
    """The registry whose events go to `reconciler`, then to `changed`; kopf reaches the API server as our own client does.

    `on.event` alone, which keeps no state in annotations and adds no finalizer: the reconciler is level-triggered, retries
    and has a finalizer of its own.
    """
    handlers = kopf.OperatorRegistry()

    @kopf.on.login(registry=handlers)
    async def login(**context: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**context) or await _connection(access)

    @kopf.on.event(names.TOPOLOGY.api_version, names.TOPOLOGY.plural, registry=handlers)
    async def topology(event: Any, **_: Any) -> None:
        body = without_nulls(event["object"])
        (reconciler.lost if event["type"] == "DELETED" else reconciler.saw)(body)
        changed(key_of(body))

    return handlers


async def _connection(access: Configuration) -> kopf.ConnectionInfo:
    scheme, _, token = (await access.get_api_key_with_prefix("BearerToken") or "").rpartition(" ")
    return kopf.ConnectionInfo(
        server=access.host,
        ca_path=access.ssl_ca_cert,
        insecure=not access.verify_ssl,
        certificate_path=access.cert_file,
        private_key_path=access.key_file,
        scheme=scheme or None,
        token=token or None,
    )


def kopf_settings(settings: Settings) -> kopf.OperatorSettings:
    """Let kopf watch and call, but post no events, keep no state and elect no leader."""
    chosen = kopf.OperatorSettings()
    chosen.peering.standalone = True
    chosen.posting.enabled = False
    chosen.scanning.disabled = bool(settings.namespaces)  # else it needs rights over all namespaces and definitions
    chosen.watching.server_timeout = 290
    chosen.watching.client_timeout = 330
    chosen.networking.request_timeout = 20
    chosen.networking.connect_timeout = 5
    chosen.networking.error_backoffs = BACKOFFS
    return chosen
