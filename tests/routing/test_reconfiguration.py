"""The reconfiguration protocol under any order of events and any crash: what section 3.4 promises, and why each step."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamtopology.routing.simulator.reconfiguration import MANAGER, Configuration, Kind, ProtocolError, Tuple, World

KEYS = 4
CHAIN = (("S", "A", "B"), (("S", "A"), ("A", "B")))
DIAMOND = (("S", "A", "B", "C"), (("S", "A"), ("S", "B"), ("A", "C"), ("B", "C")))


def configuration(number: int, owners: dict[str, list[int]]) -> Configuration:
    return Configuration(number, {name: tuple(keys) for name, keys in owners.items()})


@st.composite
def worlds(draw):
    operators, edges = draw(st.sampled_from([CHAIN, DIAMOND]))
    instances = draw(st.integers(1, 3))
    tables = st.lists(st.integers(0, instances - 1), min_size=KEYS, max_size=KEYS)
    old, new = ({name: draw(tables) for name in operators[1:]} for _ in range(2))
    stream = draw(
        st.lists(st.tuples(st.integers(0, instances - 1), *[st.integers(0, KEYS - 1) for _ in operators[1:]]), max_size=12)
    )
    return operators, edges, instances, configuration(1, old), configuration(2, new), stream


class Run:
    """One run: what happens next is drawn; the stream is emitted in between, the reconfiguration begins at any time."""

    def __init__(self, world, data) -> None:
        self.operators, edges, instances, first, self.second, stream = world
        self.asked: list[Counter] = []
        self.world = World(self.operators, edges, instances, first, self._compute)
        self.items = [
            (("S", source), Tuple(i, dict(zip(self.operators[1:], keys, strict=True))))
            for i, (source, *keys) in enumerate(stream)
        ]
        self.data, self.begun, self.emitted = data, False, 0

    def _compute(self, metrics: Counter) -> Configuration:
        self.asked.append(metrics)
        return self.second

    def step(self) -> bool:
        """One event; False when nothing is left to happen."""
        choices = [("deliver", channel) for channel in self.world.possible()]
        if self.emitted < len(self.items):
            choices.append(("emit", None))
        if not self.begun:
            choices.append(("begin", None))
        if not choices:
            return False
        what, channel = choices[self.data.draw(st.integers(0, len(choices) - 1), label="next")]
        if what == "deliver":
            self.world.happen(channel)
        elif what == "emit":
            self.world.emit(*self.items[self.emitted])
            self.emitted += 1
        else:
            self.world.reconfigure()
            self.begun = True
        return True


@settings(max_examples=150, deadline=None)
@given(world=worlds(), data=st.data())
def test_no_tuple_is_processed_where_its_key_is_not_owned_and_none_is_lost(world, data):
    run = Run(world, data)
    while run.step():
        for name in run.operators[1:]:
            holders = Counter(key for poi, it in run.world.pois.items() if poi[0] == name for key in it.state)
            assert all(count == 1 for count in holders.values()), "two instances hold the state of one key"
    assert run.world.settled()
    for name in run.operators[1:]:
        paths = 2 if name == "C" else 1  # the diamond's sink gets a tuple along either side
        counted: dict[int, list[int]] = {}
        for (operator, number), poi in run.world.pois.items():
            if operator == name:
                assert {key for key in range(KEYS) if run.second.owners[name][key] == number} == poi.state.keys()
                counted.update(poi.state)
        for key in range(KEYS):
            expected = sorted(paths * [item.number for _, item in run.items if item.keys[name] == key])
            assert sorted(counted[key]) == expected


@settings(max_examples=150, deadline=None)
@given(world=worlds(), data=st.data(), crash_after=st.integers(0, 120))
def test_wherever_it_crashes_every_configuration_that_anyone_has_or_may_get_was_saved(world, data, crash_after):
    run = Run(world, data)
    for _ in range(crash_after):
        if not run.step():
            break
    saved, pois = run.world.saved, run.world.pois.values()
    in_flight = [
        message.content for messages in run.world.channels.values() for message in messages if message.kind is Kind.SEND_RECONF
    ]
    assert saved
    for known in [*(poi.configuration for poi in pois), *(poi.coming for poi in pois if poi.coming), *in_flight]:
        assert known in saved
    assert all(set(one.owners) == set(run.operators[1:]) for one in saved), "what is saved is complete: all can begin from it"


def until_settled(world: World, prefer) -> None:
    """Delivers everything; `prefer` orders the channels, first the ones that happen first."""
    while channels := world.possible():
        world.happen(min(channels, key=prefer))


def two_servers(compute) -> World:
    """A chain of S, A and B on two servers; every key changes its owner at both."""
    first = configuration(1, {"A": [0, 1], "B": [0, 1]})
    return World(*CHAIN, 2, first, compute)


SWAPPED = configuration(2, {"A": [1, 0], "B": [1, 0]})


def test_the_statistics_of_all_instances_reach_the_planner_and_begin_anew():
    seen: list[Counter] = []
    world = two_servers(lambda metrics: seen.append(metrics) or SWAPPED)
    for number, key in enumerate([0, 0, 1]):
        world.emit(("S", number % 2), Tuple(number, {"A": key, "B": key}))
    until_settled(world, str)
    world.reconfigure()
    until_settled(world, str)
    assert seen == [Counter({("A", 0, "B", 0): 2, ("A", 1, "B", 1): 1})]
    assert not any(poi.metrics for poi in world.pois.values())
    assert world.settled()


def test_tuples_that_come_before_the_state_of_their_key_wait_for_it():
    world = two_servers(lambda _: SWAPPED)
    world.emit(("S", 0), Tuple(0, {"A": 0, "B": 0}))
    until_settled(world, str)
    world.reconfigure()
    # Up to the switch of S everything happens; then a tuple overtakes the instruction of the other source.
    while world.pois["S", 0].configuration.number == 1:
        world.happen(next(c for c in world.possible() if c[0] == MANAGER or c[1] == MANAGER))
    world.emit(("S", 0), Tuple(1, {"A": 0, "B": 0}))
    while world.channels[("S", 0), ("A", 1)]:
        world.happen((("S", 0), ("A", 1)))
    assert [item.number for item in world.pois["A", 1].buffered] == [1]
    until_settled(world, str)
    assert world.pois["A", 1].state == {0: [0, 1]}


class Hasty(World):
    """Tells the first instances to go on before all have acknowledged."""

    def _manage(self, sender, message):
        super()._manage(sender, message)
        if message.kind is Kind.ACK_RECONF and len(self._acknowledged) == 1:
            for number in range(2):
                self._send(MANAGER, ("S", number), Kind.PROPAGATE)


def test_without_awaiting_all_acknowledgements_tuples_reach_instances_that_do_not_know_yet():
    world = Hasty(*CHAIN, 2, configuration(1, {"A": [0, 1], "B": [0, 1]}), lambda _: SWAPPED)
    world.reconfigure()

    def go():
        emitted = False
        while channels := world.possible():
            world.happen(min(channels, key=lambda channel: ("S" not in (channel[0][0], channel[1][0]), channel)))
            if world.pois["S", 0].configuration.number == 2 and not emitted:
                world.emit(("S", 0), Tuple(0, {"A": 0, "B": 0}))
                emitted = True

    with pytest.raises(ProtocolError):
        go()
