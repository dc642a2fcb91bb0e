"""The roll-out of this version's pods over the topologies that run those of an old one: one after the other.

A new version of the operator makes other pod templates. If it applied them at once, every topology would restart in the same
minute, and a bad image would break all of them. So topologies keep their pods until their turn, and the next turn comes
only once the previous topology has settled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from streamtopology.contract.conditions import ConditionType, ReconfiguringReason
from streamtopology.k8s.decide.decision import Decision
from streamtopology.k8s.io.queue import TopologyKey

log = logging.getLogger(__name__)


class UpgradeTurns:
    """Gives each outdated topology its turn. `reach` is called with the one whose turn begins.

    A turn lasts until the topology has settled, so the first one that this version's pods break is also the last, also where
    the operator restarts: status has the turn. Those that are not ready come after all others: they may never settle.
    """

    def __init__(
        self, seconds: float, reach: Callable[[TopologyKey], None], begun: Callable[[], Iterable[TopologyKey]]
    ) -> None:
        """`seconds`: the least time between the beginnings of two turns; 0 for none at all.

        `begun`: the topologies whose stored status says that they have a turn. An operator that has just started waits until it
        has seen these: one of them may be broken, and come late.
        """
        self._seconds = seconds
        self._reach = reach
        self._begun = begun
        self._seen: set[TopologyKey] = set()
        self._waiting: dict[TopologyKey, bool] = {}
        self._turn: TopologyKey | None = None

    def __len__(self) -> int:
        """The number of topologies that wait."""
        return len(self._waiting)

    def has_reached(self, key: TopologyKey) -> bool:
        return self._turn == key

    def saw(self, key: TopologyKey, decision: Decision) -> None:
        """Take in the newest decision on a topology."""
        self._seen.add(key)
        changes = decision.status.get("intent") is not None
        if self._turn is None and has_turn(decision.status):
            self._turn = key
        ready = any(
            one["type"] == ConditionType.READY and one["status"] == "True" for one in decision.status.get("conditions") or ()
        )
        if decision.waits and not changes:
            self._waiting[key] = ready
        else:
            self._waiting.pop(key, None)
        if self._turn == key and not changes and not decision.waits:
            self._turn = None

    def leave(self, key: TopologyKey) -> None:
        """A topology is another release's: its turn is not ours to wait for."""
        self.forget(key)
        self._seen.add(key)

    def forget(self, key: TopologyKey) -> None:
        """A topology is gone."""
        self._seen.discard(key)
        self._waiting.pop(key, None)
        if self._turn == key:
            self._turn = None

    async def run(self) -> None:
        """Begin turns until cancelled."""
        while self._seconds > 0:
            await asyncio.sleep(self._seconds)
            self.next()

    def next(self) -> None:
        """Begin the turn of the next topology, unless one lasts."""
        if self._turn is not None or not self._waiting or not self._seen.issuperset(self._begun()):
            return
        self._turn = min(self._waiting, key=lambda key: not self._waiting[key])  # of equal ones the first
        log.info("%s: its pods become those of this version; %d more wait", self._turn, len(self._waiting) - 1)
        self._reach(self._turn)


def has_turn(status: Mapping[str, Any]) -> bool:
    """True if a status says that its topology has the turn."""
    change = status.get("intent")
    return change is not None and change["action"] == ReconfiguringReason.UPGRADING
