"""Workers of real time in simulated executors: the worker's own loop on simulated lines, and Spark's word on its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

from streamtopology.jobs.driver.attempt_runner import Executor, ExecutorLost, PythonWorkerDied
from streamtopology.jobs.realtime import messages
from streamtopology.jobs.realtime.messages import Bytes, OrderPart
from streamtopology.jobs.realtime.worker import Arrival, Event, LostPeer, Worker
from streamtopology.lab.faults.executors import HEARTBEAT_SECONDS, Cluster, SimulatedExecutor, SimulatedExecutors
from streamtopology.lab.faults.network import NOTICES, Connection, Network
from streamtopology.lab.faults.scheduler import Died, Process, Task

_END_SECONDS = 10.0
# From the end of a worker until Spark tells of it; the driver waits for that for 5 s.
_TELLING = (0.0, 0.0, 0.1, 3.0, 8.0)


class SimulatedWorkers(SimulatedExecutors):
    """Implements `Workers`."""

    def __init__(self, cluster: Cluster, network: Network) -> None:
        super().__init__(cluster)
        self._network = network
        self._started: list[tuple[SimulatedExecutor, Task]] = []

    def rehearsing(self, rehearse: Callable[[Executor], None]) -> AbstractContextManager[None]:
        return nullcontext()

    def start(self, executor: Executor, name: str, ended: Callable[[Exception], None]) -> None:
        there = self.known().get(executor.id)
        if there is None:
            self._scheduler.spawn(self._network.driver, lambda: ended(ExecutorLost([executor.slot])), "Spark's listener")
            return

        def serve() -> None:
            lines = SimulatedLines(self._network, name, there.process)
            Worker(lines, there.worker, lambda orders: None, lambda: self._scheduler.now).serve()

        task = self._scheduler.spawn(there.process, serve, f"worker {name}")
        self._started.append((there, task))
        self._scheduler.spawn(self._network.driver, lambda: ended(self._end_of(there, task)), f"job of worker {name}")

    def give_up(self, name: str) -> None:
        for executor, task in self._started:
            if task.name == f"worker {name}":
                executor.process.alive = False

    def await_ends(self) -> None:
        """Wait for the workers; what does not end is ended along with Spark."""
        self._scheduler.wait(lambda: all(task.is_done for _, task in self._started), _END_SECONDS)
        for executor, _ in self._started:
            executor.process.alive = False

    def _end_of(self, executor: SimulatedExecutor, task: Task) -> Exception:
        """Wait until Spark tells why a worker has ended, or takes its executor for lost; return that."""
        scheduler, process = self._scheduler, executor.process

        def has_ended() -> bool:
            return task.is_done or not process.alive

        while not has_ended():
            scheduler.wait(lambda: has_ended() or process.frozen_until - scheduler.now > HEARTBEAT_SECONDS)
            if not has_ended() and not scheduler.wait(has_ended, HEARTBEAT_SECONDS):
                self._cluster.drop(executor)
                return ExecutorLost([executor.slot])
        scheduler.wait(None, self._network.random.choice(_TELLING))
        if task.error is not None and not isinstance(task.error, Died):
            return RuntimeError(f"the worker on {executor.slot} ended by {task.error!r}")
        return PythonWorkerDied() if process.alive else ExecutorLost([executor.slot])


class SimulatedLines:
    """The lines of a worker in `process`; implements `Lines`."""

    def __init__(self, network: Network, worker: str, process: Process) -> None:
        self._network = network
        self._worker = worker
        self._process = process
        self._address = f"simulated://{worker}"
        self._inbox: list[Connection] = []
        network.inboxes[self._address] = process, self._inbox
        self._peers: dict[str, Connection] = {}
        self._unsent: list[list[bytes]] = []
        # None from when this end has learnt that it broke until there is a new one.
        self._driver: Connection | None = network.connect_to_driver(worker, process)
        self._has_connected = True

    def receive(self) -> list[Event]:
        self._network.scheduler.wait(self._has_something)
        if self._has_connected:
            self._has_connected = False
            self.tell(messages.HELLO, self._address.encode())
        events: list[Event] = []
        for take in self._network.shuffled([self._orders, self._envelopes, self._losses]):
            events += take()
        return events

    def tell(self, *frames: Bytes) -> None:
        """Without a connection what is sent waits for the next one."""
        if self._driver is None:
            self._unsent.append([bytes(frame) for frame in frames])
        else:
            self._network.transmit(self._driver, self._driver.to_server, frames)

    def send(self, worker: str, *frames: Bytes) -> None:
        if worker not in self._peers:
            process, inbox = self._network.inboxes[worker]
            self._peers[worker] = Connection(self._process, process)
            inbox.append(self._peers[worker])
        self._network.transmit(self._peers[worker], self._peers[worker].to_server, frames)

    def keep(self, workers: Sequence[str]) -> None:
        for worker in self._peers.keys() - set(workers):
            self._network.end(self._peers.pop(worker))

    def _has_something(self) -> bool:
        network, now = self._network, self._network.scheduler.now
        made = [*self._peers.values()] if self._driver is None else [self._driver, *self._peers.values()]
        return (
            self._has_connected
            or any(one.to_server.has_arrived(now) for one in self._inbox)
            or any(one.to_client.has_arrived(now) or network.is_doomed(one, self._process) for one in made)
        )

    def _orders(self) -> Iterator[Event]:
        if self._driver is None:
            return
        self._network.end_if_doomed(self._driver, self._process)
        for frames in self._network.arrived(self._driver.to_client):
            if frames is None:
                self._driver = None
                self._connect_again()
                return
            yield None if frames[0] == messages.END else OrderPart.of(*frames[1:])

    def _envelopes(self) -> Iterator[Event]:
        for connection in self._network.shuffled(self._inbox):
            for frames in self._network.arrived(connection.to_server):
                if frames is None:
                    self._inbox.remove(connection)
                    break
                yield Arrival.of(frames[1], frames[2], frames[3:])

    def _losses(self) -> Iterator[Event]:
        for worker, connection in list(self._peers.items()):
            self._network.end_if_doomed(connection, self._process)
            if any(frames is None for frames in self._network.arrived(connection.to_client)):
                del self._peers[worker]
                yield LostPeer(worker)

    def _connect_again(self) -> None:
        """As ZeroMQ's own thread does: what waited is sent before the worker can say hello."""
        network = self._network

        def connect() -> None:
            driver, scheduler = network.driver, network.scheduler
            scheduler.wait(lambda: not driver.alive or driver.frozen_until <= scheduler.now)
            if not (driver.alive and self._process.alive):
                return
            self._driver = network.connect_to_driver(self._worker, self._process)
            self._driver.to_server.waiting.extend(self._unsent)
            self._unsent.clear()
            self._has_connected = True

        network.later(network.random.choice(NOTICES), connect)
