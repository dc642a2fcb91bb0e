"""The arena's case switch: latency over time while keys move, a worker joins, leaves and is killed, Kafka to Kafka.

A life is one run of an engine, with all its keys in state, through all events, one after the other. Lives of the engines take
turns. Workers may use all CPU of the machine, and share it with the broker and the player.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamtopology.lab.arena.engines import EngineMissing, Place, fetched_jar
from streamtopology.lab.arena.peer import SCRIPTS, Arena, Measurement

CALM = "calm"
EVENTS = {
    CALM: "nothing happens",
    "move": "10 % of the keys move",
    "join": "a worker joins",
    "leave": "a worker leaves",
    "kill": "a worker is killed",
}
WORKERS = 3
# By engine; that of Spark 4.3 is not to be had, and that of 4.2 works with it.
CONNECTORS = {
    "flink": ("org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2",),
    "spark": (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0",
        "org.apache.kafka:kafka-clients:3.9.1",
        "org.apache.commons:commons-pool2:2.12.1",
    ),
}
_PLAYER = ("-m", "streamtopology.lab.arena.switch_player")


@dataclass(frozen=True)
class Contestant:
    """An engine as it is set up for the case; Flink's sink commits with each checkpoint if it is to be exact.

    `events`: those that it can go through. `trigger`: Spark's.
    """

    title: str
    engine: str
    guarantee: str
    events: Sequence[str] = tuple(EVENTS)
    trigger: Mapping[str, str] | None = None


OURS = "streamtopology"
CONTESTANTS = {
    OURS: Contestant("StreamTopology, exactly once", "streamtopology", "exactly-once"),
    "flink-at-least-once": Contestant("Flink, sink at least once", "flink", "at-least-once"),
    "flink-exactly-once": Contestant("Flink, sink exactly once", "flink", "exactly-once"),
    "spark-real-time": Contestant(
        "Spark in real-time mode, sink at least once", "spark", "at-least-once", (CALM,), {"realTime": "20 seconds"}
    ),
    "spark-micro-batch": Contestant(
        "Spark in micro-batches, sink at least once", "spark", "at-least-once", (CALM,), {"processingTime": "0 seconds"}
    ),
}


@dataclass(frozen=True)
class Switch:
    """What is measured: `lives` of each of `contestants` with `keys` keys, at `rate` rows/s, through `events`."""

    keys: int
    rate: int
    lives: int
    events: Sequence[str]
    contestants: Sequence[str]

    @property
    def case(self) -> str:
        return f"switch-{self.keys}-{self.rate}"


def measure(asked: Switch, arena: Arena, place: Place) -> list[dict[str, Any]]:
    """A row of each life and contestant, in turns; of those that can go through one of the events."""
    return [
        {**_row(asked, name, life, arena, place), "contestant": name, "life": life}
        for life in range(1, asked.lives + 1)
        for name in asked.contestants
        if set(CONTESTANTS[name].events) & set(asked.events)
    ]


def _row(asked: Switch, name: str, life: int, arena: Arena, place: Place) -> dict[str, Any]:
    contestant = CONTESTANTS[name]
    events = [event for event in contestant.events if event in asked.events]
    request: dict[str, Any] = {
        "workers": WORKERS,
        "player": [sys.executable, *_PLAYER],
        "play": {"keys": asked.keys, "rate": asked.rate, "events": events},
        "guarantee": contestant.guarantee,
        "trigger": contestant.trigger,
    }
    try:
        artifacts = CONNECTORS.get(contestant.engine, ())
        request["jars"] = [str(fetched_jar(artifact, place.folder / "jars")) for artifact in artifacts]
    except EngineMissing as reason:
        return {"engine": contestant.engine, "failed": str(reason)}
    case = f"{asked.case}/{name}/life-{life}"
    return arena.row(Measurement(contestant.engine, case, SCRIPTS / f"{contestant.engine}_switch.py", request))
