"""Topologies of this release in namespaces that it no longer watches: nobody else reports that no operator serves them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from streamtopology.contract.conditions import EventReason
from streamtopology.k8s import names
from streamtopology.k8s.decide.steps import Event
from streamtopology.k8s.io.api import Api, ApiAway, ApiError
from streamtopology.k8s.io.apply import Applier
from streamtopology.k8s.io.queue import TopologyKey
from streamtopology.k8s.settings import Settings

log = logging.getLogger(__name__)


async def report_unwatched(api: Api, applier: Applier, settings: Settings, clock: Callable[[], float]) -> None:
    """Post an event for each, as far as the operator may look into other namespaces. `clock`: seconds since 1970."""
    if not settings.namespaces:
        return
    try:
        async for page in api.pages(names.TOPOLOGY, None):
            for topology in page.items:
                metadata = topology["metadata"]
                release = (metadata.get("annotations") or {}).get(names.SERVED_BY)
                if release == settings.namespace and metadata["namespace"] not in settings.namespaces:
                    key = TopologyKey(metadata["namespace"], metadata["name"])
                    event = _event(key, settings.namespace)
                    log.warning("%s: %s: %s", key, event.reason, event.message)
                    await applier.post(topology, key, event, clock())
    except (ApiError, ApiAway) as error:
        log.info("whether topologies of other namespaces are without an operator is not known: %s", error)


def _event(key: TopologyKey, release: str) -> Event:
    text = (
        f"the operator in namespace {release} has served this topology and does not watch namespace {key.namespace} any more: "
        f"it runs as it is, changes have no effect, and a deletion does not end. Add {key.namespace} to watchNamespaces again, "
        f"or hand it over: kubectl annotate stopo {key.name} -n {key.namespace} --overwrite {names.SERVED_BY}=NAMESPACE"
    )
    return Event("Warning", EventReason.NOT_WATCHED, text)
