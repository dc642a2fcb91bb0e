"""`streamtopology arena switch`: measures, prints the tables and writes the page with its pictures."""

from __future__ import annotations

import os

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streamtopology.jobs.cli.parameters import FAILURE, SUCCESS
from streamtopology.jobs.errors import WrongUse
from streamtopology.lab.arena.engines import ENGINES, Place
from streamtopology.lab.arena.peer import Arena
from streamtopology.lab.arena.run import FOLDER
from streamtopology.lab.arena.switch import CALM, CONTESTANTS, EVENTS, OURS, WORKERS, Switch, measure
from streamtopology.lab.arena.switch_page import draw_switch, is_right, switch_page
from streamtopology.lab.arena.switch_player import BROKER
from streamtopology.lab.bench.cluster import announce
from streamtopology.lab.bench.figures import machine

_REACH_SECONDS = 10


def run_switch(asked: Switch, bootstrap: str, *, fresh: bool) -> int:
    """Measure what is asked, unless it was before; 1 if a result of ours is missing or wrong."""
    for kind, names, known in (("event", asked.events, EVENTS), ("engine", asked.contestants, CONTESTANTS)):
        if unknown := [name for name in names if name not in known]:
            raise WrongUse(f"--{kind} {unknown[0]}: there is no such {kind}; there are {', '.join(known)}")
    if "leave" in asked.events and "join" not in asked.events:
        raise WrongUse("--event leave: the worker that leaves is the one that has joined: add --event join")
    place = Place(FOLDER)
    _check_broker(bootstrap)
    os.environ[BROKER] = bootstrap
    rows = measure(asked, Arena(ENGINES, place, announce, fresh=fresh), place)
    found = machine(keys=asked.keys, rows_per_second=asked.rate, workers=WORKERS, lives=asked.lives)
    folder = FOLDER / asked.case
    folder.mkdir(parents=True, exist_ok=True)
    for event in asked.events:
        if event != CALM and any(each["event"] == event for row in rows for each in row.get("events", ())):
            draw_switch(rows, event, folder / f"switch-{event}.svg")
    text = f"Least / median / most of the lives, on {found}.\n\n{switch_page(rows)}"
    (folder / "switch.md").write_text(f"# Through the switch\n\n{text}")
    print(text)
    print(f"written to {folder / 'switch.md'}")
    return FAILURE if any(row["contestant"] == OURS and ("failed" in row or not is_right(row)) for row in rows) else SUCCESS


def _check_broker(bootstrap: str) -> None:
    """Raises WrongUse without one there."""
    try:
        AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=_REACH_SECONDS)
    except KafkaException as error:
        raise WrongUse(f"--bootstrap {bootstrap}: no broker of Kafka answers there ({error.args[0].str()})") from None
