"""The operator's own state for the kubelet: whether it works, and whether it knows the cluster yet."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from streamtopology.k8s.io.queue import Queue

# Topologies that wait while for so long none is taken and none is done show that all workers hang: every call that they make
# has a timeout, and a look ends after some of them, well or not.
STUCK_SECONDS = 300.0

# Topologies are listed twice in this time.
HEARD_SECONDS = 60.0


@dataclass
class Health:
    """`started` is called once this replica leads; `listed` with each namespace whose owned objects are known."""

    _queue: Queue | None = None
    _awaited: dict[str | None, None] = field(default_factory=dict[str | None, None])
    _listed: set[str | None] = field(default_factory=set[str | None])
    _heard_at: float = 0.0
    _unserved: str = ""
    _refusals: dict[str, dict[str | None, str]] = field(default_factory=lambda: defaultdict(dict))
    clock: Callable[[], float] = time.monotonic

    def started(self, queue: Queue, namespaces: Sequence[str | None]) -> None:
        """Take note of the queue that is worked on, and of the namespaces (None: all) that are being listed."""
        self._queue = queue
        self._awaited = dict.fromkeys(namespaces)
        self._heard_at = self.clock()
        self._listed = set()

    def listed(self, namespace: str | None) -> None:
        """Take note that topologies of this namespace are looked at from now on."""
        self._listed.add(namespace)

    def heard(self) -> None:
        """Take note that topologies have just been listed."""
        self._heard_at = self.clock()

    def in_vain(self, why: str) -> None:
        """Take note that this replica will not lead, as another release does; empty: it may."""
        self._unserved = why

    def refused(self, kind: str, namespace: str | None, why: str) -> None:
        """Take note that objects of a kind may not be listed in a namespace (None: in all); empty: they may."""
        if why:
            self._refusals[kind][namespace] = why
        else:
            self._refusals[kind].pop(namespace, None)

    @property
    def unready(self) -> str | None:
        """The reason why this replica is not ready; None if it is."""
        waits_for = self.waits_for
        return self._unserved or self._refusal or (f"waits for {waits_for}" if waits_for else None)

    @property
    def _refusal(self) -> str:
        """The refusal of a kind that may not be listed anywhere; empty where there is none: others are served meanwhile."""
        refusals = (by_namespace for by_namespace in self._refusals.values() if by_namespace)
        return next((next(iter(each.values())) for each in refusals if each.keys() >= self._awaited.keys()), "")

    @property
    def problem(self) -> str | None:
        """The reason to start the operator again; None if it works, or stands by."""
        seconds = self._queue.stuck_seconds if self._queue is not None else 0.0
        return f"no topology was looked at for {seconds:.0f} s, and some wait" if seconds > STUCK_SECONDS else None

    @property
    def waits_for(self) -> str | None:
        """The lists without which nothing is done yet; None if some namespace is served, or this replica stands by."""
        if not self._awaited:
            return None
        if self._listed:
            is_deaf = self.clock() - self._heard_at > HEARD_SECONDS
            return "StreamTopologies, which could not be listed for a minute" if is_deaf else None
        return "the lists of owned objects in " + ", ".join(name or "all namespaces" for name in self._awaited)
