"""The outcome of a history, and the places where faults came."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

# The first words about a history that is given up.
NO_END = "no end after"

# A fault as the journal has it: a process, this, `before`, and what it was about to do.
STRUCK = {
    "kill": "is killed",
    "kill and edit": "is killed, and the manifest edited,",
    "old volume": "and all others end, and the volume of the checkpoint is an older copy of itself,",
    "power": "and all others lose power",
    "no space": "has no space on its disk",
    "requests fail": "finds the bucket failing",
    "answers lost": "gets no answer from the bucket, which did as it was asked; this comes",
    "hang": "stands still for minutes",
    "short hang": "stands still for seconds",
    "slow": "takes its time",
    "lost envelopes": "loses what it sends; this comes",
    "connection lost": "loses a connection, and what is under way on it; this comes",
    "message twice": "sends a message, or gets one, twice; this comes",
    "message late": "gets a message late, or what it sends is late; this comes",
    "commit answer lost": "gets no answer from Kafka, which did as it was asked; this comes",
    "task twice": "runs its task twice; this comes",
    "task elsewhere": "is so busy that another one runs its next task; this comes",
}


class Place(NamedTuple):
    """The place of a fault: the operation of a process of `role`, and the situation that the topology was in."""

    role: str
    operation: str
    situation: str
    fault: str


@dataclass
class Outcome:
    """The end of a history. `wrong`: what does not hold, None if all does. `trace`: a hash of everything that happened."""

    wrong: str | None
    batches: int
    lives: int
    steps: int
    trace: str
    journal: list[str]
    covered: Counter[Place] = field(default_factory=Counter["Place"])


def kind_of_file(where: str) -> str:
    """The kind of file that a path names: `commits`, or `state *.delta`."""
    parts = where.split("/")
    if len(parts) < 2:
        return where
    if parts[-1].startswith("."):
        return f"a draft of {parts[1]}" if len(parts) > 2 else "a draft of the header"
    return f"{parts[1]} *{Path(where).suffix}" if parts[1] in ("state", "migrations", "spark") else parts[1]
