"""The reasons for which pods of StatefulSets and Jobs are not created.

Only the events of their controllers say so (Deployments have a condition).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from streamtopology.k8s import names
from streamtopology.k8s.decide.attempts import Place
from streamtopology.k8s.decide.owned_objects import Job, OwnedObject, Pod, Workload
from streamtopology.k8s.instants import parse_time
from streamtopology.k8s.io.api import Api, ApiAway, ApiError
from streamtopology.k8s.io.queue import TopologyKey
from streamtopology.k8s.resources.objects import Object

log = logging.getLogger(__name__)

# Pods that are missing for less are on their way: most are.
PATIENCE_SECONDS = 3.0

# Between two looks at the events of a topology: the API server has no index of them.
INTERVAL_SECONDS = 15.0

# The controller tries again, and says so, at intervals of up to a quarter of an hour.
RECENT_SECONDS = 1800.0


@dataclass
class _Missing:
    since: float
    asked: float = 0.0
    found: Mapping[Place, str] = field(default_factory=dict[Place, str])


class NotCreated:
    """The reasons by workload, of each topology that misses pods. `clock`: seconds since 1970."""

    def __init__(self, api: Api, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._missing: dict[TopologyKey, _Missing] = {}

    async def ask(self, key: TopologyKey, lacking: Mapping[Place, OwnedObject]) -> None:
        """Look at the events, if it is time for it. `lacking`: the StatefulSets and Jobs that lack pods."""
        if not lacking:
            self.forget(key)
            return
        now = self._clock()
        known = self._missing.setdefault(key, _Missing(now))
        if now - known.since >= PATIENCE_SECONDS and now - known.asked >= INTERVAL_SECONDS:
            known.asked = now
            known.found = await self._ask(key, lacking, now)

    def reasons(self, key: TopologyKey) -> Mapping[Place, str]:
        """Workload -> why the cluster does not create its next pod."""
        known = self._missing.get(key)
        return known.found if known is not None else {}

    def forget(self, key: TopologyKey) -> None:
        self._missing.pop(key, None)

    async def _ask(self, key: TopologyKey, lacking: Mapping[Place, OwnedObject], now: float) -> dict[Place, str]:
        events: list[Object] = []
        try:
            for kind in sorted({kind for kind, _ in lacking}):
                events += await self._api.events(key.namespace, kind, "FailedCreate")
        except (ApiError, ApiAway) as error:  # without the right to list events their topologies run all the same
            log.warning("%s: cannot see why pods are not created: %s", key, error)
            return {}
        newest = {event["involvedObject"].get("uid"): event for event in sorted(events, key=_last)}
        recent = {uid: event for uid, event in newest.items() if now - _last(event) < RECENT_SECONDS}
        return {place: recent[each.uid].get("message", "") for place, each in lacking.items() if each.uid in recent}


def lacking(objects: Mapping[Place, OwnedObject]) -> dict[Place, OwnedObject]:
    """The StatefulSets with fewer pods than they should have, and the active Jobs that have none."""
    pods = Counter(owned.owner for owned in objects.values() if isinstance(owned, Pod))
    return {place: owned for place, owned in objects.items() if pods[owned.uid] < _wanted(owned)}


def _wanted(owned: OwnedObject) -> int:
    if isinstance(owned, Job):
        return 0 if owned.done or owned.failed or owned.deleting else 1
    return owned.replicas if isinstance(owned, Workload) and owned.kind == names.STATEFUL_SET.kind else 0


def _last(event: Object) -> float:
    moment = (event.get("series") or {}).get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return parse_time(moment) if moment else 0.0
