"""One release of the operator serves a topology: an annotation of the topology names it, by the namespace of its Lease."""

from __future__ import annotations

from collections.abc import Callable

from streamtopology.contract.conditions import EventReason
from streamtopology.k8s import names
from streamtopology.k8s.decide.fields import mapping_at
from streamtopology.k8s.decide.steps import Event
from streamtopology.k8s.instants import parse_time
from streamtopology.k8s.io.api import Api, ApiError
from streamtopology.k8s.io.leader import LEASE_NAME
from streamtopology.k8s.io.queue import TopologyKey
from streamtopology.k8s.resources.objects import Object
from streamtopology.k8s.settings import Settings

# A release whose Lease was not renewed for so long is gone: the namespace of one that is uninstalled keeps the Lease.
GONE_SECONDS = 600.0

# One that has released its Lease is gone once none of its other replicas has taken that for so long, as they do in an upgrade.
RELEASED_SECONDS = float(Settings.lease_seconds)

# Between two looks at the Lease of another release.
LOOK_SECONDS = 60.0


class TopologyClaims:
    """Claims topologies for this release, unless another one serves them. `clock`: seconds since 1970."""

    def __init__(self, api: Api, settings: Settings, clock: Callable[[], float]) -> None:
        self._api = api
        self._release = settings.namespace
        self._has_lease = settings.leader_election
        self._clock = clock
        self._others: dict[TopologyKey, str] = {}

    async def claim(self, key: TopologyKey, manifest: Object) -> Object | str:
        """The topology, from now on served by this release; else the release that serves it.

        Two that claim at once: the API server takes the first claim only, by the resource version. One that others have
        taken away (`kubectl replace`) stays with the release that had it.
        """
        metadata = manifest["metadata"]
        release = (metadata.get("annotations") or {}).get(names.SERVED_BY) or self._others.get(key, self._release)
        if release != self._release and not await self._is_gone(release):
            return release
        self._others.pop(key, None)
        if self.holds(manifest):
            return manifest
        claimed = {"resourceVersion": metadata["resourceVersion"], "annotations": {names.SERVED_BY: self._release}}
        return await self._api.patch(names.TOPOLOGY, key.namespace, key.name, {"metadata": claimed})

    def holds(self, manifest: Object) -> bool:
        """True if the topology names this release."""
        return (manifest["metadata"].get("annotations") or {}).get(names.SERVED_BY) == self._release

    def stepped_back(self, key: TopologyKey, release: str) -> Event | None:
        """The event for a topology that another release serves, the first time."""
        if self._others.get(key) == release:
            return None
        self._others[key] = release
        text = (
            f"the operator in namespace {self._release} leaves this topology to the one in namespace {release}, which serves "
            f"it: their watchNamespaces overlap. To hand it over: kubectl annotate stopo {key.name} -n {key.namespace} "
            f"--overwrite {names.SERVED_BY}={self._release}"
        )
        return Event("Warning", EventReason.SERVED_BY_ANOTHER, text)

    def forget(self, key: TopologyKey) -> None:
        """A topology is gone."""
        self._others.pop(key, None)

    async def _is_gone(self, release: str) -> bool:
        """True if it does not renew its Lease any more. Without a Lease of our own we cannot show that we live: never."""
        if not self._has_lease:
            return False
        try:
            lease = await self._api.get(names.LEASE, release, LEASE_NAME)
        except ApiError as refused:
            if refused.status == 403:  # an operator of a few namespaces may not look into others
                return False
            raise
        spec = mapping_at(lease or {}, "spec")
        renewed, patience = spec.get("renewTime"), GONE_SECONDS if spec.get("holderIdentity") else RELEASED_SECONDS
        return renewed is None or self._clock() - parse_time(renewed) > patience
