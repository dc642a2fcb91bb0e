"""A controller at a made-up stream: what it decides, and what that costs and gains."""

from __future__ import annotations

from dataclasses import replace

from streamtopology.contract.reasons import Hold, HoldReason
from streamtopology.routing.control.controller import Controller
from streamtopology.routing.control.decisions import Decision, Reroute, TopologyFacts
from streamtopology.routing.control.feed import CommittedBatch
from streamtopology.topology import Rebalance
from support.observed import SLOTS, Stream

FACTS = TopologyFacts((1.0,) * SLOTS, {"count": "mixed"})


class Run:
    """A controller at a stream; `time` is what its clock says."""

    def __init__(self, stream: Stream, facts: TopologyFacts = FACTS, **rebalance: object) -> None:
        self.stream, self.facts, self.time = stream, facts, 0.0
        self.controller = Controller(replace(Rebalance(), **rebalance), lambda: self.time)
        self.epoch = stream.first_epoch()
        self.batches = 0
        self.decisions: list[tuple[int, Decision]] = []

    def go(self, batches: int) -> Run:
        for _ in range(batches):
            seconds, reports, sources = self.stream.batch(self.epoch)
            self.time += seconds
            self.batches += 1
            self.controller.observe(CommittedBatch(self.batches, self.epoch.number, seconds, reports, sources).observed())
            decision = self.controller.step(self.time, self.epoch, self.facts)
            self.decisions.append((self.batches, decision))
            if isinstance(decision, Reroute):
                self.epoch = decision.epoch
        return self

    def held(self, reason: HoldReason) -> list[tuple[int, Hold]]:
        """The batches after which the routing was left as it was for this reason."""
        return [(batch, one) for batch, one in self.decisions if isinstance(one, Hold) and one.reason is reason]

    @property
    def reroutes(self) -> list[tuple[int, Reroute]]:
        return [(batch, decision) for batch, decision in self.decisions if isinstance(decision, Reroute)]
