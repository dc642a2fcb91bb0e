"""`helm test` runs `python -m streamtopology.k8s.install_check` with the operator's rights. It reads only.

The last line is a sentence. Exit codes: 0 installed, 1 not, with the remedy; 2 usage error.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable

from kubernetes.aio.client import ApiClient

from streamtopology.contract.errors import Unavailable
from streamtopology.k8s import names
from streamtopology.k8s.__main__ import configuration
from streamtopology.k8s.io.api import Api, ApiAway, ApiError, NoCluster
from streamtopology.k8s.io.leader import LEASE_NAME, held_by_another
from streamtopology.k8s.settings import Settings, read_settings

# Looks at the Lease, a second apart, before it counts as not renewed: an operator that has just been installed pulls its image,
# and one that is replaced releases the Lease.
PATIENCE = 90

Sleep = Callable[[float], Awaitable[None]]


class NotInstalled(Unavailable):
    """Something that the operator needs is missing; the text has the remedy."""


async def installed(api: Api, settings: Settings, sleep: Sleep = asyncio.sleep) -> str:
    """The sentence of an operator that works. Raises NotInstalled, and ApiAway if the API server does not answer."""
    for namespace in settings.namespaces or (None,):
        await _topologies_are_served(api, namespace)
    holder = await _leader(api, settings, sleep)
    where = ", ".join(settings.namespaces) or "all namespaces"
    return f"{holder} leads and renews its lease; StreamTopologies are served, and it may read them in {where}"


async def _topologies_are_served(api: Api, namespace: str | None) -> None:
    try:
        async for _ in api.pages(names.TOPOLOGY, namespace):
            return
    except ApiError as refused:
        if refused.status == 404:
            raise NotInstalled(
                f"{names.TOPOLOGY.api_version} {names.TOPOLOGY.plural} are not served: apply the resource definition "
                "(crds/, or the chart with crds.install=true)"
            ) from refused
        where = f"namespace {namespace}" if namespace else "all namespaces"
        raise NotInstalled(
            f"the operator may not read StreamTopologies in {where} ({refused.message}): see rbac.create and watchNamespaces"
        ) from refused


async def _leader(api: Api, settings: Settings, sleep: Sleep) -> str:
    """The replica that renews the Lease while we look. No clock is compared with the renewals': ours may be another one."""
    first: object = None
    namespace = settings.namespace
    for _ in range(PATIENCE):
        try:
            lease = await api.get(names.LEASE, namespace, LEASE_NAME)
        except ApiError as refused:
            raise NotInstalled(f"the lease cannot be read, see rbac.create: {refused}") from refused
        spec = (lease or {}).get("spec") or {}
        renewed = (spec.get("holderIdentity"), spec.get("renewTime"))
        if renewed[0] and first and renewed != first:
            if another := held_by_another(lease or {}, settings.release, namespace):
                raise NotInstalled(another)
            return str(renewed[0])
        first = renewed if renewed[0] else first
        await sleep(1)
    raise NotInstalled(
        f"no operator renews the lease {namespace}/{LEASE_NAME}: see its pods and their log "
        f"(kubectl -n {namespace} get pods -l app.kubernetes.io/name=streamtopology-operator)"
    )


async def _checked(settings: Settings) -> str:
    async with ApiClient(await configuration()) as client:
        return await installed(Api(client), settings)


def main() -> None:
    try:
        print(asyncio.run(_checked(read_settings([], os.environ))))
    except (NotInstalled, ApiAway, NoCluster) as problem:
        sys.exit(f"not installed: {problem}")


if __name__ == "__main__":
    main()
