"""Who plays a switch to an engine: produces the rows, reads their counts, and says when which event is due.

A process of its own (`python -m streamtopology.lab.arena.switch_player REQUEST`), so that both times of a row are of one
clock. It talks to the peer's script in JSON, one object a line: `ready` has the topics, `do` asks for an event, whose begin
and end the peer answers, and `found` is the result.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from streamtopology.lab.arena.switch_series import AFTER_SECONDS, BEFORE_SECONDS, series, switch_figures

# The variable with the broker's HOST:PORT; it is no part of what is asked, so that results stay valid with another broker.
BROKER = "STREAMTOPOLOGY_ARENA_KAFKA"
PARTITIONS = 4
SETTLE_SECONDS = 10.0
START_SECONDS = 300.0
EVENT_SECONDS = 180.0
END_SECONDS = 60.0
_MOST_AT_ONCE = 10_000


class Player:
    """Plays to `source`, listens to `sink`. Row `i` has key `i % keys`, so a count says which rows it is of."""

    def __init__(self, bootstrap: str, keys: int, rate: int, source: str, sink: str) -> None:
        self._keys, self._rate, self._source = keys, rate, source
        self._producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 2_000_000})
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": sink, "isolation.level": "read_committed"})
        self._consumer.assign([TopicPartition(sink, partition, 0) for partition in range(PARTITIONS)])
        self.produced = np.full(4 * keys, np.nan)
        self.seen = np.full(4 * keys, np.nan)
        self._newest = np.zeros(keys, np.int64)
        self._began = 0.0
        self.sent = 0
        self.repeated = 0
        # When this process came late to its own loop, and by how much: no engine's fault.
        self.stalls: list[tuple[float, float]] = []

    def send(self, row: int) -> None:
        if row == len(self.produced):
            more = np.full(len(self.produced), np.nan)
            self.produced, self.seen = np.concatenate([self.produced, more]), np.concatenate([self.seen, more])
        self.produced[row] = time.monotonic()
        self._producer.produce(self._source, str(row % self._keys), partition=row % PARTITIONS)
        self.sent = row + 1

    def warm_up(self) -> None:
        """Every key once, at full speed; the first alone, as its count says that the engine is up."""
        self.send(0)
        self._listen_until(lambda: self._newest[0] > 0, START_SECONDS, "no count came: the engine is not up")
        for row in range(1, self._keys):
            self.send(row)
            if row % _MOST_AT_ONCE == 0:
                self._listen()
        self._listen_until(lambda: bool(self._newest.all()), START_SECONDS, "not all keys have come")

    def play_until(self, ends: Callable[[], bool], seconds: float, otherwise: str) -> None:
        """Rows at the rate, until `ends`. Raises TimeoutError."""
        self._began = self._began or time.monotonic() - (self.sent - self._keys) / self._rate
        until, last = time.monotonic() + seconds, time.monotonic()
        while not ends():
            now = time.monotonic()
            if now > until:
                raise TimeoutError(f"{otherwise} in {seconds:.0f} s")
            if now - last > 0.05:
                self.stalls.append((last, now - last))
            last = now
            for row in range(self.sent, self._keys + int((now - self._began) * self._rate)):
                self.send(row)
            self._listen()

    def finish(self) -> dict[str, int]:
        """Await what is under way; what is lost then is lost, and what is counted too often was twice."""
        with suppress(TimeoutError):
            self._listen_until(lambda: not np.isnan(self.seen[: self.sent]).any(), END_SECONDS, "")
        until = time.monotonic() + AFTER_SECONDS / 2  # a row that is published again comes now
        self._listen_until(lambda: time.monotonic() > until, END_SECONDS, "")
        self._consumer.close()
        wanted = np.bincount(np.arange(self.sent) % self._keys, minlength=self._keys)
        return {
            "rows": self.sent,
            "lost": int(np.maximum(wanted - self._newest, 0).sum()),
            "counted_twice": int(np.maximum(self._newest - wanted, 0).sum()),
            "repeated": self.repeated,
        }

    def _listen_until(self, ends: Callable[[], bool], seconds: float, otherwise: str) -> None:
        until = time.monotonic() + seconds
        while not ends():
            if time.monotonic() > until:
                raise TimeoutError(f"{otherwise} in {seconds:.0f} s")
            self._listen()

    def _listen(self) -> None:
        """Take the counts that have come; waits a moment for them."""
        self._producer.poll(0)
        first = self._consumer.poll(1 / self._rate)
        messages: list[Message] = [] if first is None else [first, *self._consumer.consume(_MOST_AT_ONCE, timeout=0)]
        now = time.monotonic()
        for message in messages:
            if message.error() is None and (value := message.value()):
                row = json.loads(value)
                self._take(row["key"], row["count"], now)

    def _take(self, key: int, count: int, now: float) -> None:
        newest = self._newest[key]
        if count <= newest:
            self.repeated += 1
            return
        self.seen[newest * self._keys + key : count * self._keys : self._keys] = now
        self._newest[key] = count


class _Peer:
    """The script of the engine, whose child this process is."""

    def __init__(self) -> None:
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def say(self, **what: Any) -> None:
        print(json.dumps(what), flush=True)

    def asked(self, player: Player, event: str) -> dict[str, Any]:
        """The answer to an event, while rows are played."""
        self.say(do=event)
        answers: list[dict[str, Any]] = []

        def answered() -> bool:
            if not self._answers.empty():
                answers.append(self._answers.get())
            return bool(answers)

        player.play_until(answered, EVENT_SECONDS, f"{event}: not done")
        return answers[0]

    def _read(self) -> None:
        for line in sys.stdin:
            self._answers.put(json.loads(line))


def _while(seconds: float) -> Callable[[], bool]:
    until = time.monotonic() + seconds
    return lambda: time.monotonic() >= until


def _found(player: Player, event: str, answer: dict[str, Any]) -> dict[str, Any]:
    asked, done = answer["asked"], answer["done"]
    begin, end = asked - BEFORE_SECONDS, done + AFTER_SECONDS
    produced, seen = player.produced[: player.sent], player.seen[: player.sent]
    stalls = [seconds for at, seconds in player.stalls if begin <= at < end]
    slices = series(produced, seen, begin, end)
    return {
        "event": event,
        **answer,
        "figures": {name: round(value, 4) for name, value in switch_figures(produced, seen, asked, done).items()},
        "longest_stall_of_the_player": round(max(stalls, default=0.0), 3),
        "series": [(round(at - BEFORE_SECONDS, 1), round(median, 4), round(longest, 4)) for at, median, longest in slices],
    }


def play(request: dict[str, Any]) -> None:
    bootstrap = os.environ[BROKER]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    name = f"streamtopology-arena-{uuid.uuid4().hex[:8]}"
    topics = source, sink = f"{name}-in", f"{name}-out"
    for made in admin.create_topics([NewTopic(topic, PARTITIONS) for topic in topics]).values():
        made.result()
    try:
        peer, player = _Peer(), Player(bootstrap, request["keys"], request["rate"], source, sink)
        peer.say(ready={"bootstrap": bootstrap, "source": source, "sink": sink})
        player.warm_up()
        peer.say(progress=f"all {request['keys']:,} keys have state")
        answers: list[tuple[str, dict[str, Any]]] = []
        for event in request["events"]:
            player.play_until(_while(SETTLE_SECONDS + BEFORE_SECONDS), 600, "")
            answers.append((event, peer.asked(player, event)))
            player.play_until(_while(AFTER_SECONDS + 1), 600, "")
            peer.say(progress=f"{event}: {_short(_found(player, *answers[-1]))}")
            peer.asked(player, f"after {event}")
        check = player.finish()
        peer.say(found={"events": [_found(player, *each) for each in answers], "check": check})
    finally:
        for deleted in admin.delete_topics(list(topics)).values():
            deleted.result()


def _short(found: dict[str, Any]) -> str:
    shown = ("p99_before", "p99_through", "longest_through", "silence_through")
    return ", ".join(f"{name} {found['figures'][name]:.3f} s" for name in shown)


if __name__ == "__main__":
    play(json.loads(sys.argv[1]))
