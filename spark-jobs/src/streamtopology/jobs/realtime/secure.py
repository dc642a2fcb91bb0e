"""Sockets whose two ends prove by CURVE that they belong to one run, and between which nothing is readable (decision 110).

All ends of a run have one pair of keys. It is made of Spark's secret, which each of them has, so no key travels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.utils import z85

# A peer that answers no ping of ZeroMQ's own thread for so long is gone, however busy its Python is.
SILENCE_SECONDS = 30
_PING_SECONDS = 5
# A connection that cannot be made is tried again after so long, and after twice that, up to a second.
_RECONNECT_MS, _MOST_RECONNECT_MS = 20, 1000


@dataclass(frozen=True)
class Keys:
    """The CURVE keys of a run, in ZeroMQ's text form (Z85)."""

    public: bytes
    secret: bytes

    @staticmethod
    def of_run(secret: str, run: str) -> Keys:
        """The keys of `run`, for those who know Spark's `secret`."""
        seed = hashlib.blake2b(run.encode(), key=hashlib.sha256(secret.encode()).digest(), digest_size=32).digest()
        own = z85.encode(seed)
        return Keys(zmq.curve_public(own), own)

    def callback(self, domain: str, key: bytes) -> bool:
        """For ZeroMQ's authenticator: True if a client with the public `key` is of this run."""
        return key == self.public


@contextmanager
def secured(keys: Keys) -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    """A context whose servers let nobody in but holders of `keys`. At its end what was not sent is dropped."""
    context = zmq.Context()
    guard = ThreadAuthenticator(context)
    guard.start()
    guard.configure_curve_callback(credentials_provider=keys)
    try:
        yield context
    finally:
        guard.stop()
        context.destroy(linger=0)


def server(context: zmq.Context[zmq.Socket[bytes]], keys: Keys) -> zmq.Socket[bytes]:
    """A ROUTER socket, not yet bound."""
    socket = context.socket(zmq.ROUTER)
    socket.curve_server = True
    socket.setsockopt(zmq.ROUTER_HANDOVER, 1)  # a client that connects again has the name of its former connection
    return _common(socket, keys)


def client(context: zmq.Context[zmq.Socket[bytes]], keys: Keys, name: str) -> zmq.Socket[bytes]:
    """A DEALER socket, not yet connected, that servers know by `name`. What it sends waits for a connection."""
    socket = context.socket(zmq.DEALER)
    socket.setsockopt_string(zmq.IDENTITY, name)
    socket.curve_serverkey = keys.public
    socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, _MOST_RECONNECT_MS)
    return _common(socket, keys)


def _common(socket: zmq.Socket[bytes], keys: Keys) -> zmq.Socket[bytes]:
    socket.curve_publickey, socket.curve_secretkey = keys.public, keys.secret
    socket.set_hwm(0)  # an attempt is bounded by its batch; a limit here would drop envelopes
    socket.linger = 0
    socket.setsockopt(zmq.HEARTBEAT_IVL, _PING_SECONDS * 1000)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENCE_SECONDS * 1000)
    return socket
