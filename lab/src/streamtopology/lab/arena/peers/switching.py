"""Between an engine's script and the player: the topics, the events, and the result, which is printed."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any

# An event returns what else is to be said of it, once it is done.
Event = Callable[[], dict[str, Any]]


class Play:
    """The player of a request, while entered; `topics` are there then, and empty."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._command = [*request["player"], json.dumps(request["play"])]

    def __enter__(self) -> Play:
        self._player = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.topics: dict[str, str] = self._said()["ready"]
        return self

    def __exit__(self, *error: object) -> None:
        self._player.terminate()
        self._player.wait()

    def run(self, events: Mapping[str, Event]) -> None:
        """Do what the player asks for, and print what it has found. Raises RuntimeError if it ends without."""
        while True:
            said = self._said()
            if "do" in said:
                asked = time.monotonic()
                more = events.get(said["do"], dict)()
                self._answer({"asked": asked, "done": time.monotonic(), **more})
            elif "found" in said:
                print(json.dumps(said["found"]), flush=True)
                return
            else:
                print(json.dumps(said), flush=True)

    def _said(self) -> dict[str, Any]:
        assert self._player.stdout is not None
        line = self._player.stdout.readline()
        if not line:
            raise RuntimeError(f"the player ended with code {self._player.wait()}; what it said is above")
        return json.loads(line)

    def _answer(self, answer: dict[str, Any]) -> None:
        assert self._player.stdin is not None
        print(json.dumps(answer), file=self._player.stdin, flush=True)
