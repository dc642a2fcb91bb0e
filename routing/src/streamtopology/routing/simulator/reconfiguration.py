"""The reconfiguration protocol of locality-aware routing (section 3.4, algorithm 1, figure 6) as a small pure model.

A manager, the instances of the operators of a DAG, and a first-in first-out channel between any two of them. What
happens next is chosen from outside (`possible`, `happen`), so that a test can try any interleaving and stop at any
point. In order: gather statistics, compute, save the configuration, send it, await acknowledgements, propagate down
the DAG, migrate state. On Spark the boundary of a batch takes the place of all this (docs/papers/locality.md).

It is a model of who may do what when, for tests; it is not made to be fast.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import cast

Instance = tuple[str, int]
"""Operator and number; the manager is `MANAGER`."""

Channel = tuple[Instance, Instance]

Metrics = Counter[tuple[str, int, str, int]]
"""How often (operator, key) was followed by (operator, key)."""

MANAGER: Instance = ("(manager)", 0)


class ProtocolError(AssertionError):
    """What the protocol promises never to happen has happened."""


class Kind(Enum):
    """The messages of algorithm 1, and the tuples of the stream."""

    GET_METRICS = auto()
    SEND_METRICS = auto()
    SEND_RECONF = auto()
    ACK_RECONF = auto()
    PROPAGATE = auto()
    MIGRATE = auto()
    TUPLE = auto()


@dataclass(frozen=True)
class Configuration:
    """The routing tables of all operators with state: operator -> owner of key 0, 1, 2, ..."""

    number: int
    owners: Mapping[str, tuple[int, ...]]

    def lost(self, operator: str, number: int, then: Configuration) -> dict[int, list[int]]:
        """Keys that an instance has here and another one has `then`, by that one: `reconfiguration send` of the paper."""
        lost: defaultdict[int, list[int]] = defaultdict(list)
        for key, (now, later) in enumerate(zip(self.owners[operator], then.owners[operator], strict=True)):
            if now == number != later:
                lost[later].append(key)
        return dict(lost)


@dataclass(frozen=True)
class Tuple:
    """One tuple: its number, and its key at every operator with state."""

    number: int
    keys: Mapping[str, int]


@dataclass(frozen=True)
class Message:
    kind: Kind
    content: object = None


@dataclass
class Poi:
    """An instance: the configuration in force, the one received, the state it holds (key -> tuples counted there)."""

    configuration: Configuration
    state: dict[int, list[int]]
    coming: Configuration | None = None
    propagated: set[Instance] = field(default_factory=set[Instance])
    awaited: set[int] = field(default_factory=set[int])
    early: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """State received before this instance was told to switch."""
    buffered: list[Tuple] = field(default_factory=list[Tuple])
    metrics: Metrics = field(default_factory=Metrics)


class World:
    """All processes, channels and the manager's stable storage. Sources are operators without predecessors and state."""

    def __init__(
        self,
        operators: Sequence[str],
        edges: Sequence[tuple[str, str]],
        instances: int,
        first: Configuration,
        compute: Callable[[Metrics], Configuration],
    ) -> None:
        """`operators` in an order in which every edge leads forward; `compute` is the manager's planner."""
        self.saved: list[Configuration] = [first]
        self.channels: defaultdict[Channel, deque[Message]] = defaultdict(deque)
        self._successors = {name: [after for before, after in edges if before == name] for name in operators}
        self._predecessors = {name: [before for before, after in edges if after == name] for name in operators}
        self._instances, self._compute = instances, compute
        self.pois: dict[Instance, Poi] = {
            (name, number): Poi(first, {key: [] for key, owner in enumerate(first.owners.get(name, ())) if owner == number})
            for name in operators
            for number in range(instances)
        }
        self._metrics: dict[Instance, Metrics] = {}
        self._acknowledged: set[Instance] = set()

    def possible(self) -> list[Channel]:
        """The channels whose next message may be delivered, in a fixed order."""
        return sorted(channel for channel, messages in self.channels.items() if messages)

    def happen(self, channel: Channel) -> None:
        """Delivers the next message of a channel. ProtocolError when that breaks a promise."""
        sender, receiver = channel
        message = self.channels[channel].popleft()
        if receiver == MANAGER:
            self._manage(sender, message)
        else:
            self._receive(receiver, sender, message)

    def reconfigure(self) -> None:
        """The manager begins: it asks every instance for its statistics (1)."""
        self._metrics.clear()
        self._acknowledged.clear()
        self._to_all(Kind.GET_METRICS)

    def emit(self, source: Instance, item: Tuple) -> None:
        """A source instance sends a tuple on."""
        self._route(source, item)

    def settled(self) -> bool:
        """Whether every instance runs the newest configuration saved and holds all of its state."""
        newest = self.saved[-1]
        return all(poi.configuration == newest and not poi.awaited and not poi.buffered for poi in self.pois.values())

    # ---- the manager ---------------------------------------------------------------------------------------------

    def _manage(self, sender: Instance, message: Message) -> None:
        if message.kind is Kind.SEND_METRICS:
            self._metrics[sender] = cast(Metrics, message.content)
            if len(self._metrics) == len(self.pois):
                configuration = self._compute(sum(self._metrics.values(), start=Metrics()))
                self.saved.append(configuration)  # before anyone can know of it
                self._to_all(Kind.SEND_RECONF, configuration)
        elif message.kind is Kind.ACK_RECONF:
            self._acknowledged.add(sender)
            if len(self._acknowledged) == len(self.pois):
                for instance in self.pois:
                    if not self._predecessors[instance[0]]:
                        self._send(MANAGER, instance, Kind.PROPAGATE)

    # ---- an instance ---------------------------------------------------------------------------------------------

    def _receive(self, here: Instance, sender: Instance, message: Message) -> None:
        poi, content = self.pois[here], message.content
        match message.kind:
            case Kind.GET_METRICS:
                self._send(here, MANAGER, Kind.SEND_METRICS, poi.metrics)
                poi.metrics = Counter()
            case Kind.SEND_RECONF:
                poi.coming = cast(Configuration, content)
                self._send(here, MANAGER, Kind.ACK_RECONF)
            case Kind.PROPAGATE:
                poi.propagated.add(sender)
                if len(poi.propagated) == max(len(self._predecessors[here[0]]) * self._instances, 1):
                    self._switch(here)
            case Kind.MIGRATE:
                poi.early.update(cast("dict[int, list[int]]", content))
                self._take_in(here)
            case Kind.TUPLE:
                self._process(here, cast(Tuple, content))
            case _:
                raise ProtocolError(f"{here} does not expect {message.kind}")

    def _switch(self, here: Instance) -> None:
        """All predecessors route anew: so does this instance, and state changes hands (6)."""
        poi, (operator, number) = self.pois[here], here
        before, now = poi.configuration, poi.coming
        if now is None:
            raise ProtocolError(f"{here} shall switch to a configuration that it does not have")
        poi.configuration, poi.coming, poi.propagated = now, None, set()
        if operator in now.owners:
            for other, keys in before.lost(operator, number, now).items():
                self._send(here, (operator, other), Kind.MIGRATE, {key: poi.state.pop(key) for key in keys})
            poi.awaited = {key for key, owner in enumerate(now.owners[operator]) if owner == number} - poi.state.keys()
        self._take_in(here, propagate=True)

    def _take_in(self, here: Instance, propagate: bool = False) -> None:
        """State that has come is taken in, its tuples are processed; when all has come, the successors are told (5)."""
        poi = self.pois[here]
        arrived = poi.awaited & poi.early.keys()
        for key in arrived:
            poi.state[key] = poi.early.pop(key)
        poi.awaited -= arrived
        waiting, poi.buffered = poi.buffered, []
        for item in waiting:
            self._process(here, item)
        if not poi.awaited and (arrived or propagate):
            for successor in self._successors[here[0]]:
                for number in range(self._instances):
                    self._send(here, (successor, number), Kind.PROPAGATE)

    def _process(self, here: Instance, item: Tuple) -> None:
        poi, (operator, number) = self.pois[here], here
        key = item.keys[operator]
        if poi.configuration.owners[operator][key] == number and key not in poi.awaited:
            if key not in poi.state:
                raise ProtocolError(f"{here} processes key {key}, whose state is not here")
            poi.state[key].append(item.number)
            self._route(here, item)
        elif key in poi.awaited or (poi.coming and poi.coming.owners[operator][key] == number):
            poi.buffered.append(item)
        else:
            raise ProtocolError(f"{here} received tuple {item.number} of key {key}, which it neither owns nor will own")

    def _route(self, here: Instance, item: Tuple) -> None:
        poi, (operator, _) = self.pois[here], here
        for successor in self._successors[operator]:
            owner = poi.configuration.owners[successor][item.keys[successor]]
            if operator in item.keys:
                poi.metrics[operator, item.keys[operator], successor, item.keys[successor]] += 1
            self._send(here, (successor, owner), Kind.TUPLE, item)

    # ---- channels ------------------------------------------------------------------------------------------------

    def _to_all(self, kind: Kind, content: object = None) -> None:
        for instance in self.pois:
            self._send(MANAGER, instance, kind, content)

    def _send(self, sender: Instance, receiver: Instance, kind: Kind, content: object = None) -> None:
        self.channels[sender, receiver].append(Message(kind, content))
