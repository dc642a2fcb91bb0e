"""`helm test` runs `python -m streamtopology.k8s.install_check` with the operator's rights.

In each namespace that the operator serves it makes a topology of its own, waits until the operator has written its status,
and deletes it. The topology is paused: nothing else is made for it. An operator that leads but lacks a right writes none.

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
from streamtopology.k8s.resources.objects import Object
from streamtopology.k8s.settings import Settings, read_settings

# Looks at the Lease, a second apart, before it counts as not renewed: an operator that has just been installed pulls its image,
# and one that is replaced releases the Lease.
PATIENCE = 90

# As many before a status counts as not written.
STATUS_PATIENCE = 60

LABELS = {"app.kubernetes.io/name": "streamtopology-test"}

# Whatever is valid: the annotation keeps the operator from making anything for it.
PAUSED: Object = {
    "apiVersion": names.TOPOLOGY.api_version,
    "kind": names.TOPOLOGY.kind,
    "metadata": {"generateName": "streamtopology-test-", "labels": LABELS, "annotations": {names.PAUSE: "true"}},
    "spec": {
        "sources": [{"name": "rows", "format": "parquet", "schema": "k INT", "options": {"path": "/nothing"}}],
        "operators": [{"name": "counts", "inputs": ["rows"], "grouping": {"policy": "fields", "key": "k"}, "run": "count"}],
        "executors": [{"name": "one", "replicas": 1, "cpu": "100m"}],
        "checkpoint": "/nothing/of-helm-test",
    },
}

Sleep = Callable[[float], Awaitable[None]]


class NotInstalled(Unavailable):
    """Something that the operator needs is missing; the text has the remedy."""


async def installed(api: Api, settings: Settings, sleep: Sleep = asyncio.sleep) -> str:
    """The sentence of an operator that works. Raises NotInstalled, and ApiAway if the API server does not answer."""
    for namespace in settings.namespaces or (None,):
        await _topologies_are_served(api, namespace)
    holder = await _leader(api, settings, sleep)
    for namespace in settings.namespaces or (settings.namespace,):
        await _status_is_written(api, namespace, sleep)
    where = ", ".join(settings.namespaces) or "all namespaces"
    return (
        f"{holder} leads and renews its lease; it serves StreamTopologies in {where}: it wrote the status of one made for this"
    )


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


async def _status_is_written(api: Api, namespace: str, sleep: Sleep) -> None:
    """Make a paused topology, wait for its status, delete it; those that a killed test has left are deleted before."""
    try:
        async for page in api.pages(names.TOPOLOGY, namespace, f"app.kubernetes.io/name={LABELS['app.kubernetes.io/name']}"):
            for left in page.items:
                await api.delete(names.TOPOLOGY, namespace, left["metadata"]["name"], left["metadata"]["uid"])
        made = (await api.create(names.TOPOLOGY, namespace, PAUSED))["metadata"]
    except ApiError as refused:
        raise NotInstalled(
            f"no StreamTopology can be made in namespace {namespace} to try the operator: {refused}"
        ) from refused
    try:
        for _ in range(STATUS_PATIENCE):
            found = await api.get(names.TOPOLOGY, namespace, made["name"])
            if found is not None and (found.get("status") or {}).get("conditions"):
                return
            await sleep(1)
    finally:
        await api.delete(names.TOPOLOGY, namespace, made["name"], made["uid"])
    raise NotInstalled(
        f"the operator leads, but has written no status of StreamTopology {namespace}/{made['name']} in {STATUS_PATIENCE} s: "
        "if it lacks a right (rbac.create), its log names it"
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
