"""A story: everything that happens to a topology in one history, drawn from a seed. Any part can be left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from streamtopology.lab.faults.rows import File, draw_files
from streamtopology.lab.faults.topologies import SPLIT, Shape

_FAULTS_PER_BATCH = 0.22
_EVENTS_PER_BATCH = 0.25
# Operations of a role in a batch, roughly: a fault comes at one of them.
_OPERATIONS = {"driver": 90, "executor": 60, "copier": 40}

ROLES = ("driver", "driver", "executor", "executor", "copier")
FAULTS = {
    "driver": ("kill", "kill", "kill and edit", "no space", "power", "hang", "commit answer lost", "slow", "slow"),
    "executor": ("kill", "kill", "hang", "short hang", "lost envelopes", "task twice", "task elsewhere", "no space", "slow"),
    "copier": ("kill", "kill", "hang", "no space", "slow"),
}
EVENTS = (
    "re-route", "re-route", "re-route prepared", "re-route prepared", "epoch ready", "rescale", "rescale and back", "restart",
    "clock step", "edit",
)  # fmt: skip

# In real time these happen in place of what happens to Spark's tasks.
ON_THE_NETWORK = {"lost envelopes": "connection lost", "task twice": "message twice", "task elsewhere": "message late"}

_OLD_VOLUMES = 0.15
_CONTESTED = ("", "", "", "migrations/", "epochs/", "batches/", "commits/", "state/")
# The share of events that the next one follows within a few operations.
_BURST = 0.3


@dataclass(frozen=True)
class Fault:
    """`kind` happens to a process of `role` at its `nth` operation while `batch` is the next one to be committed."""

    batch: int
    role: str
    nth: int
    kind: str
    seed: int

    def __str__(self) -> str:
        return f"batch {self.batch}, operation {self.nth} of a {self.role}: {self.kind}"


@dataclass(frozen=True)
class Event:
    """Somebody does something, at the driver's `nth` operation while `batch` is the next one to be committed."""

    batch: int
    nth: int
    kind: str
    seed: int

    def __str__(self) -> str:
        return f"batch {self.batch}, operation {self.nth} of the driver: {self.kind}"


@dataclass(frozen=True)
class Story:
    """`switching`: the share of steps after which another thread continues; 0: each runs as long as it can.

    `contested`: a folder of the checkpoint; at most operations on it another thread continues. Empty: none. `step_seconds`:
    the time that an operation takes; where it is long, batches last for seconds, and others look on meanwhile. `real_time`:
    by long-lived workers and a network.
    """

    seed: int
    shape: Shape
    files: tuple[File, ...]
    faults: tuple[Fault, ...]
    events: tuple[Event, ...]
    switching: float
    contested: str
    most_deltas: int
    commits_per_sweep: int
    step_seconds: float
    real_time: bool

    @staticmethod
    def draw(seed: int, real_time: bool = False) -> Story:
        random = Random(seed)
        shape = Shape.draw(random)
        files = random.choice((8, 20, 40, 80))
        batches = files // shape.files_per_batch
        drawn = draw_files(random, files, shape.sources)
        faults, events = _some_faults(random, batches), _some_events(random, batches)
        return Story(
            seed,
            shape,
            drawn,
            (*faults, *_old_volume(seed, shape, faults, events, batches)),
            events,
            random.choice((0.02, 0.1, 0.3, 0.7)),
            random.choice(_CONTESTED),
            random.choice((2, 3, 6)),
            random.choice((1, 3, 7)),
            random.choice((0.0005, 0.0005, 0.005, 0.02)),
            real_time,
        )

    def without(self, faults: frozenset[int] = frozenset(), events: frozenset[int] = frozenset()) -> Story:
        """The story without these of its faults and events, by index."""
        return replace(
            self,
            faults=tuple(fault for index, fault in enumerate(self.faults) if index not in faults),
            events=tuple(event for index, event in enumerate(self.events) if index not in events),
        )


def _swarm(random: Random, kinds: Sequence[str]) -> Sequence[str]:
    """All kinds, or each by the toss of a coin, or one or two alone, in a third of the stories each: some wrongs come from few
    kinds, often, and others mend what these would show (Groce et al., Swarm Testing, ISSTA 2012)."""
    match random.randrange(3):
        case 0:
            return kinds
        case 1:
            return [kind for kind in kinds if random.random() < 0.5] or [random.choice(kinds)]
        case _:
            return random.choices(kinds, k=2)


def _some_faults(random: Random, batches: int) -> tuple[Fault, ...]:
    rate = _FAULTS_PER_BATCH * random.choice((0.0, 0.5, 1.0, 2.0, 4.0))
    roles = _swarm(random, ROLES)
    kinds = {role: _swarm(random, FAULTS[role]) for role in roles}
    faults: list[Fault] = []
    for batch in range(batches + 2):
        while random.random() < rate / (1 + rate):
            role = random.choice(roles)
            nth = random.randrange(_OPERATIONS[role])
            faults.append(Fault(batch, role, nth, random.choice(kinds[role]), random.getrandbits(32)))
    return tuple(faults)


def _old_volume(seed: int, shape: Shape, faults: Sequence[Fault], events: Sequence[Event], batches: int) -> Iterator[Fault]:
    """Once, in some of the stories in which batches that come again under their numbers have the same rows for sinks.

    Where the topology is edited, and of keys at several instances, they may have others. The draws are apart from all others,
    so that seeds of former versions are the same stories.
    """
    apart = Random(f"old volume {seed}")
    is_edited = any("edit" in one.kind for one in (*faults, *events))
    if apart.random() < _OLD_VOLUMES and batches > 4 and not (is_edited or shape.bucket or set(shape.operators) & set(SPLIT)):
        batch, nth = apart.randrange(3, batches), apart.randrange(_OPERATIONS["driver"])
        yield Fault(batch, "driver", nth, "old volume", apart.getrandbits(32))


def _some_events(random: Random, batches: int) -> tuple[Event, ...]:
    """Some events by themselves, and some in bursts."""
    rate = _EVENTS_PER_BATCH * random.choice((0.5, 1.0, 2.0, 4.0))
    kinds = _swarm(random, EVENTS)
    events: list[Event] = []
    for batch in range(batches):
        chance, nth = rate, random.randrange(_OPERATIONS["driver"])
        while random.random() < chance:
            events.append(Event(batch, nth, random.choice(kinds), random.getrandbits(32)))
            chance, nth = _BURST, nth + random.randrange(12)
    return tuple(events)
