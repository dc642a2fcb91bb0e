"""The roll-out over topologies: one after the other, the ready ones first, and no further than one that does not settle."""

from __future__ import annotations

import asyncio
from typing import Any

from streamtopology.k8s.decide.decision import Decision
from streamtopology.k8s.io.queue import TopologyKey
from streamtopology.k8s.io.upgrade_turns import UpgradeTurns

A, B, C = (TopologyKey("space", name) for name in "abc")


def decision(*, waits: bool, ready: bool = True, changes: bool = False, action: str = "Routing") -> Decision:
    status: dict[str, Any] = {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    return Decision((), (), {**status, **({"intent": {"action": action}} if changes else {})}, waits=waits)


def nobody() -> tuple[TopologyKey, ...]:
    return ()


def test_the_next_turn_begins_when_the_former_topology_has_settled() -> None:
    reached: list[TopologyKey] = []
    roll_out = UpgradeTurns(1, reached.append, nobody)
    for key in (A, B):
        roll_out.saw(key, decision(waits=True))
    roll_out.next()
    assert (reached, roll_out.has_reached(A), roll_out.has_reached(B)) == ([A], True, False)
    roll_out.saw(A, decision(waits=True))
    roll_out.next()
    assert reached == [A], "it has not been looked at since"
    roll_out.saw(A, decision(waits=False, changes=True))
    roll_out.next()
    assert reached == [A], "its pods are being replaced"
    roll_out.saw(A, decision(waits=False))
    roll_out.next()
    assert (reached, roll_out.has_reached(A), len(roll_out)) == ([A, B], False, 1)


def test_topologies_that_are_not_ready_come_last() -> None:
    reached: list[TopologyKey] = []
    roll_out = UpgradeTurns(1, reached.append, nobody)
    roll_out.saw(A, decision(waits=True, ready=False))
    roll_out.saw(B, decision(waits=True, changes=True))
    roll_out.saw(C, decision(waits=True))
    roll_out.next()
    roll_out.saw(C, decision(waits=False))
    roll_out.next()
    assert reached == [C, A], "and one that changes is not reached at all"


def test_turn_of_a_topology_that_is_seen_last_is_waited_for() -> None:
    """An operator that starts sees one topology after the other, and may take longer for it than a turn is to last."""
    reached: list[TopologyKey] = []
    roll_out = UpgradeTurns(1, reached.append, lambda: (B, C))
    roll_out.saw(A, decision(waits=True))
    roll_out.leave(C)  # another release's by now
    roll_out.next()
    assert reached == []
    roll_out.saw(B, decision(waits=False, changes=True, action="Upgrading"))
    roll_out.next()
    assert reached == []
    roll_out.saw(B, decision(waits=False))
    roll_out.next()
    assert reached == [A]


def test_turn_that_another_process_has_begun_lasts_until_it_has_settled() -> None:
    reached: list[TopologyKey] = []
    roll_out = UpgradeTurns(1, reached.append, nobody)
    roll_out.saw(A, decision(waits=True))
    roll_out.saw(B, decision(waits=False, changes=True, action="Upgrading"))
    roll_out.next()
    assert reached == [], "the pods of this version may have broken it"
    roll_out.saw(B, decision(waits=False))
    roll_out.next()
    assert reached == [A]


def test_a_topology_that_is_gone_holds_no_turn() -> None:
    reached: list[TopologyKey] = []
    roll_out = UpgradeTurns(1, reached.append, nobody)
    for key in (A, B):
        roll_out.saw(key, decision(waits=True))
    roll_out.next()
    roll_out.forget(A)
    roll_out.next()
    assert reached == [A, B]


def test_without_an_interval_there_is_no_roll_out() -> None:
    reached: list[TopologyKey] = []
    roll_out = UpgradeTurns(0, reached.append, nobody)
    roll_out.saw(A, decision(waits=True))
    asyncio.run(roll_out.run())
    assert reached == []
