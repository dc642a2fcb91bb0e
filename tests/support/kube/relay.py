"""Carries connections to a listening socket on to HOST PORT, as seen from where this process runs.

    nsenter --net ... python -S relay.py LISTENING_FD HOST PORT

A socket stays in the network namespace that it was made in: the listener is the machine's, the connections are the node's.
"""

from __future__ import annotations

import asyncio
import socket
import sys


async def main(listener: socket.socket, host: str, port: int) -> None:
    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection(host, port)
        except OSError:  # nobody listens (yet): to the caller a connection that ends
            writer.close()
            return
        await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer))

    async with await asyncio.start_server(carry, sock=listener) as server:
        await server.serve_forever()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Relay one direction until its end. Closing ends the other direction: none of our protocols speaks half-open."""
    try:
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
    except ConnectionError:  # either side went away, which ends the other
        pass
    finally:
        target.close()


if __name__ == "__main__":
    asyncio.run(main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2], int(sys.argv[3])))
