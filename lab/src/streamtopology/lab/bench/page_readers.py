"""Readers of a run's page, for `bench page`: a process that reads when it has an address. It imports nothing that loads slowly.

Each line of its input is the address to ask at from then on; an empty one ends the asking.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from urllib.request import urlopen

READERS = 10
_SECOND = 1.0


def read(heard: Heard) -> None:
    """Ask as that many open pages do: each once a second, for the batches that it lacks."""
    known = [-1] * READERS
    while True:
        for reader in range(READERS):
            time.sleep(_SECOND / READERS)
            if heard.address:
                with urlopen(f"{heard.address}page.json?since={known[reader]}", timeout=60) as answer:
                    known[reader] = json.load(answer)["batch"]


class Heard:
    """The address that was heard last; "" for none."""

    address = ""

    def listen(self) -> None:
        for line in sys.stdin:
            self.address = line.strip()


if __name__ == "__main__":
    heard = Heard()
    threading.Thread(target=read, args=(heard,), daemon=True).start()
    heard.listen()
