"""The network between a driver and its long-lived workers, as ZeroMQ makes it of TCP.

Messages of a connection arrive in their order; between connections there is none. When one breaks, what has not arrived is
lost, and its two ends learn of it, each in its time. An end that is gone, or silent for too long, breaks its connections.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from streamtopology.jobs.realtime import messages
from streamtopology.jobs.realtime.desk import Desk
from streamtopology.jobs.realtime.messages import Bytes
from streamtopology.lab.faults.scheduler import Process, Scheduler

# As `secure.SILENCE_SECONDS`, which is in a module that needs ZeroMQ.
SILENCE_SECONDS = 30.0
# The time until an end learns that its connection broke, and until a worker has connected again.
NOTICES = (0.0, 0.0, 0.1, 3.0)
_LATE = (0.01, 0.1, 1.0, 20.0)

Frames = list[bytes]
T = TypeVar("T")


@dataclass(eq=False)
class Stream:
    """One direction of a connection. None in it: the connection has ended. Nothing arrives before `held_until`."""

    waiting: deque[Frames | None] = field(default_factory=deque[Frames | None])
    held_until: float = 0.0

    def has_arrived(self, now: float) -> bool:
        return bool(self.waiting) and now >= self.held_until


@dataclass(eq=False)
class Connection:
    client: Process
    server: Process
    to_client: Stream = field(default_factory=Stream)
    to_server: Stream = field(default_factory=Stream)
    is_open: bool = True

    def far_end(self, process: Process) -> Process:
        return self.server if process is self.client else self.client


@dataclass(eq=False)
class Network:
    """The connections of one driver's life.

    `loses`: whether the connection of the message that is sent breaks; it is a step. `doubles`, `delays`: whether the next
    message from or to a process arrives twice, or late.
    """

    scheduler: Scheduler
    driver: Process
    random: Random
    loses: Callable[[], bool]
    doubles: Callable[[Process], bool]
    delays: Callable[[Process], bool]
    inboxes: dict[str, tuple[Process, list[Connection]]] = field(default_factory=dict[str, tuple[Process, list[Connection]]])
    """By address of a worker, the connections that others have made to it."""
    _to_driver: dict[str, Connection] = field(default_factory=dict[str, Connection])
    """By name of a worker, the newest connection that it has made."""
    _heard: list[tuple[str, Connection]] = field(default_factory=list[tuple[str, Connection]])

    # --- the driver's end ---

    def put(self, frames: Sequence[bytes]) -> None:
        """Send to the worker that the first frame names; without a connection to it the message is dropped."""
        worker, *rest = frames
        connection = self._to_driver.get(worker.decode())
        if connection is not None:
            self.transmit(connection, connection.to_client, rest)

    def listen(self, desk: Desk) -> None:
        """The desk's thread: without end."""
        greeted: dict[Connection, str] = {}
        while True:
            self.scheduler.wait(self._has_news)
            for worker, connection in self.shuffled(self._heard):
                self.end_if_doomed(connection, self.driver)
                for frames in self.arrived(connection.to_server):
                    if frames is None:
                        self._heard = [one for one in self._heard if one[1] is not connection]
                        if greeted.pop(connection, None):
                            desk.disconnected(worker)
                        break
                    if frames[0] == messages.HELLO:
                        greeted = {one: of for one, of in greeted.items() if of != worker} | {connection: worker}
                    desk.heard(worker, frames[0], frames[1:])

    def _has_news(self) -> bool:
        now = self.scheduler.now
        return any(
            connection.to_server.has_arrived(now) or self.is_doomed(connection, self.driver) for _, connection in self._heard
        )

    def connect_to_driver(self, worker: str, process: Process) -> Connection:
        connection = Connection(process, self.driver)
        self._to_driver[worker] = connection
        self._heard.append((worker, connection))
        return connection

    # --- any end ---

    def transmit(self, connection: Connection, stream: Stream, frames: Sequence[Bytes]) -> None:
        """Send `frames`, of which nothing arrives on a connection that has ended. A step of the sender."""
        if self.loses():
            self.end(connection)
        if not connection.is_open:
            return
        ends = (connection.client, connection.server)
        message = [bytes(frame) for frame in frames]
        stream.waiting.extend([message, message] if any(map(self.doubles, ends)) else [message])
        if any(map(self.delays, ends)):
            self._hold(stream, self.random.choice(_LATE))

    def arrived(self, stream: Stream) -> Iterator[Frames | None]:
        """What has arrived and was not taken yet."""
        while stream.has_arrived(self.scheduler.now):
            yield stream.waiting.popleft()

    def shuffled(self, those: Sequence[T]) -> list[T]:
        """Those in any order."""
        return self.random.sample(those, len(those))

    def is_doomed(self, connection: Connection, near: Process) -> bool:
        """True if the end of an open connection far from `near` is gone, or silent for too long from now on."""
        far = connection.far_end(near)
        return connection.is_open and (not far.alive or far.frozen_until - self.scheduler.now > SILENCE_SECONDS)

    def end_if_doomed(self, connection: Connection, near: Process) -> None:
        if self.is_doomed(connection, near):
            self.end(connection, SILENCE_SECONDS if connection.far_end(near).alive else 0.0)

    def end(self, connection: Connection, seconds: float = 0.0) -> None:
        """Lose what has not arrived, all or the last of it; tell both ends `seconds` later or more."""
        if not connection.is_open:
            return
        connection.is_open = False
        for stream in (connection.to_client, connection.to_server):
            for _ in range(self.random.randint(0, len(stream.waiting))):
                stream.waiting.pop()
            stream.waiting.append(None)
            self._hold(stream, seconds + self.random.choice(NOTICES))

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Do `act` after `seconds`, in no thread of its processes."""

        def wait() -> None:
            self.scheduler.wait(None, seconds)
            act()

        self.scheduler.spawn(Process("network", "world"), wait, "network")

    def _hold(self, stream: Stream, seconds: float) -> None:
        if seconds:
            stream.held_until = max(stream.held_until, self.scheduler.now + seconds)
            self.later(seconds, lambda: None)  # time passes only up to somebody's alarm
