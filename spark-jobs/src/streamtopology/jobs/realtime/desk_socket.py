"""The driver's ZeroMQ socket, to which all workers connect, and the thread that listens at it."""

from __future__ import annotations

import os
import queue
import threading
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import zmq
from zmq.utils.monitor import recv_monitor_message

from streamtopology.jobs.realtime import messages
from streamtopology.jobs.realtime.desk import Desk
from streamtopology.jobs.realtime.secure import Keys, secured, server


class DeskSocket:
    """A context manager; while entered, workers reach `desk` at `address`."""

    def __init__(self, keys: Keys, listens: str) -> None:
        self._keys = keys
        self._listens = listens
        self._undo = ExitStack()
        self._outbox: queue.SimpleQueue[list[bytes] | None] = queue.SimpleQueue()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC)
        self._workers: dict[int, str] = {}
        """By the number of a connection's socket, who has said hello there."""
        self._thread = threading.Thread(target=self._run, name="real-time desk", daemon=True)
        self.desk = Desk(self._put)

    def __enter__(self) -> Self:
        self._undo.callback(os.close, self._wake)
        context = self._undo.enter_context(secured(self._keys))
        self._router = server(context, self._keys)
        self._router.bind(f"tcp://{self._listens}")
        self.address = self._router.getsockopt_string(zmq.LAST_ENDPOINT)
        self._monitor = self._router.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._undo.callback(self._router.disable_monitor)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._put(None)
        self._thread.join()
        self._undo.close()

    def _put(self, frames: list[bytes] | None) -> None:
        self._outbox.put(frames)
        os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        poller = zmq.Poller()
        for source in (self._router, self._monitor, self._wake):
            poller.register(source, zmq.POLLIN)
        while True:
            ready = dict(poller.poll())
            if self._wake in ready:
                os.eventfd_read(self._wake)
                while not self._outbox.empty():
                    frames = self._outbox.get()
                    if frames is None:
                        return
                    self._router.send_multipart(frames, copy=False)
            frames = self._router.recv_multipart(copy=False) if self._router in ready else None
            while self._monitor.poll(0):  # first: a new connection may have the socket's number of one that ended
                self._disconnected(recv_monitor_message(self._monitor)["value"])
            if frames is not None:
                self._hear(frames)

    def _hear(self, frames: list[zmq.Frame]) -> None:
        worker, kind = frames[0].bytes.decode(), frames[1].bytes
        if kind == messages.HELLO:
            others = {socket: of for socket, of in self._workers.items() if of != worker}
            self._workers = others | {frames[1].get(zmq.SRCFD): worker}
        self.desk.heard(worker, kind, [frame.buffer for frame in frames[2:]])

    def _disconnected(self, socket: int) -> None:
        if worker := self._workers.pop(socket, None):
            self.desk.disconnected(worker)
